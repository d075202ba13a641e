#include "cluster/zap.hpp"

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace troupe::cluster {

namespace {

// A request: version, request id, domain, address, routing id, mechanism, then what the mechanism proves.
constexpr std::size_t kVersion = 0;
constexpr std::size_t kRequestId = 1;
constexpr std::size_t kAddress = 3;
constexpr std::size_t kMechanism = 5;
constexpr std::size_t kKey = 6;
constexpr std::size_t kKeyBytes = 32;

std::string key_of(const std::vector<std::string>& request) {
  if (request.size() != kKey + 1 || request[kMechanism] != "CURVE" || request[kKey].size() != kKeyBytes) return {};
  std::array<char, 41> z85{};
  ::zmq_z85_encode(z85.data(), reinterpret_cast<const std::uint8_t*>(request[kKey].data()), kKeyBytes);
  return z85.data();
}

}  // namespace

ZapHandler::ZapHandler(zmq::context_t& context, bool plain,
                       std::function<void(const std::string&, const std::string&)> on_stranger)
    : socket_(context, zmq::socket_type::rep), plain_(plain), on_stranger_(std::move(on_stranger)) {
  socket_.set(zmq::sockopt::linger, 0);
  socket_.bind("inproc://zeromq.zap.01");
}

void ZapHandler::allow(const std::string& name, const std::string& public_key) {
  names_[public_key].insert(name);
}

bool ZapHandler::may_speak_as(const std::string& public_key, const std::string& name) const {
  const auto found = names_.find(public_key);
  return found != names_.end() && found->second.count(name) != 0;
}

void ZapHandler::answer_requests() {
  for (;;) {
    std::vector<std::string> request;
    zmq::message_t part;
    do {
      if (!socket_.recv(part, zmq::recv_flags::dontwait)) return;
      request.push_back(part.to_string());
    } while (part.more());
    const std::string key = key_of(request);
    bool known = false;
    if (request.size() > kMechanism && request[kVersion] == "1.0") {
      known = plain_ ? request[kMechanism] == "NULL" : !key.empty() && names_.count(key) != 0;
    }
    if (!known) on_stranger_(request.size() > kAddress ? request[kAddress] : std::string(), key);
    // 300, not 400: after a final refusal ZeroMQ's client never tries again, and who comes before its key is allowed
    // would stay out.
    const std::array<std::string, 6> answer{"1.0",
                                            request.size() > kRequestId ? request[kRequestId] : std::string(),
                                            known ? "200" : "300",
                                            known ? "OK" : "not on the list",
                                            known ? key : std::string(),
                                            ""};
    for (std::size_t i = 0; i < answer.size(); ++i) {
      (void)socket_.send(
          zmq::buffer(answer[i]),
          zmq::send_flags::dontwait | (i + 1 < answer.size() ? zmq::send_flags::sndmore : zmq::send_flags::none));
    }
  }
}

}  // namespace troupe::cluster
