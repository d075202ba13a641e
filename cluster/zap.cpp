#include "cluster/zap.hpp"

#include <array>
#include <cstdint>
#include <vector>

namespace troupe::cluster {

ZapHandler::ZapHandler(zmq::context_t& context) : socket_(context, zmq::socket_type::rep) {
  socket_.set(zmq::sockopt::linger, 0);
  socket_.bind("inproc://zeromq.zap.01");
}

void ZapHandler::allow(const std::string& name, const std::string& public_key) { names_[public_key] = name; }

std::uint64_t ZapHandler::answer_requests() {
  std::uint64_t refused = 0;
  for (;;) {
    std::vector<std::string> parts;
    bool more = true;
    while (more) {
      zmq::message_t part;
      if (!socket_.recv(part, zmq::recv_flags::dontwait)) return refused;
      parts.push_back(part.to_string());
      more = part.more();
    }
    // version, request id, domain, address, identity, mechanism, then for CURVE the 32 raw bytes of the key.
    const std::string id = parts.size() > 1 ? parts[1] : std::string();
    std::string name;
    if (parts.size() == 7 && parts[0] == "1.0" && parts[5] == "CURVE" && parts[6].size() == 32) {
      std::array<char, 41> z85{};
      ::zmq_z85_encode(z85.data(), reinterpret_cast<const std::uint8_t*>(parts[6].data()), parts[6].size());
      if (const auto found = names_.find(z85.data()); found != names_.end()) name = found->second;
    }
    const bool known = !name.empty();
    if (!known) ++refused;
    const std::array<std::string, 6> answer{"1.0", id, known ? "200" : "400", known ? "OK" : "not on the list", name, ""};
    for (std::size_t i = 0; i < answer.size(); ++i) {
      socket_.send(zmq::buffer(answer[i]), i + 1 < answer.size() ? zmq::send_flags::sndmore : zmq::send_flags::none);
    }
  }
}

}  // namespace troupe::cluster
