#include "cluster/wire.hpp"

#include <algorithm>
#include <array>
#include <system_error>
#include <thread>
#include <utility>

#include "cluster/wire_address.hpp"
#include "cluster/wire_loop.hpp"
#include "cluster/wire_queues.hpp"
#include "cluster/zmq_sockets.hpp"

namespace troupe::cluster {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::size_t kMaxFrameBytesAllowed = std::size_t{1} << 31;
constexpr int kMaxHighWaterMark = 1 << 20;

Result<void> check_key(const std::string& what, const std::string& key) {
  if (zmq_sockets::is_key(key)) return {};
  return fail(ErrorCode::kBadInput, what + " is no CURVE key: '" + key.substr(0, 64) + "' is not Z85 of 40 characters");
}

Result<void> check(const WireOptions& options) {
  const auto& keys = options.keys;
  if (options.self.empty()) return fail(ErrorCode::kBadInput, "the wire needs a name for `self`");
  if (options.max_frame_bytes == 0 || options.max_frame_bytes > kMaxFrameBytesAllowed) {
    return fail(ErrorCode::kBadInput, "max_frame_bytes = " + std::to_string(options.max_frame_bytes) + ", use 1 to " +
                                          std::to_string(kMaxFrameBytesAllowed));
  }
  if (options.high_water_mark < 2 || options.high_water_mark > kMaxHighWaterMark) {
    return fail(ErrorCode::kBadInput, "high_water_mark = " + std::to_string(options.high_water_mark) + ", use 2 to " +
                                          std::to_string(kMaxHighWaterMark));
  }
  if (keys.public_key.empty() != keys.secret_key.empty()) {
    return fail(ErrorCode::kBadInput, "CURVE needs a public and a secret key, or neither; one of the two is empty");
  }
  if (keys.public_key.empty()) {
    if (!options.listen || is_loopback(options.bind_host)) return {};
    return fail(ErrorCode::kBadInput, "without CURVE keys the wire listens on loopback only, not on " +
                                          options.bind_host + "; give it keys, or bind to 127.0.0.1");
  }
  if (::zmq_has("curve") == 0) return fail(ErrorCode::kUnavailable, "this ZeroMQ is built without CURVE (libsodium)");
  if (!zmq_sockets::is_pair(keys)) {
    return fail(ErrorCode::kBadInput,
                "the CURVE keys of " + options.self + " are no pair: two Z85 strings of 40 characters");
  }
  for (const auto& [name, key] : options.allowed_keys) {
    if (auto good = check_key("the allowed key of " + name, key); !good) return good;
  }
  return {};
}

class WireImpl final : public Wire {
 public:
  WireImpl(WireOptions options, OnFrame on_frame)
      : options_(std::move(options)),
        queues_({static_cast<std::size_t>(options_.high_water_mark - std::max(1, options_.high_water_mark / 2)),
                 options_.max_frame_bytes}),
        loop_(options_, std::move(on_frame), queues_) {}
  ~WireImpl() override { stop(milliseconds{0}); }
  WireImpl(const WireImpl&) = delete;
  WireImpl& operator=(const WireImpl&) = delete;

  Result<void> begin() {
    if (auto done = queues_.ready(); !done) return done;
    loop_.open();
    thread_ = std::thread([this] { loop_.run(); });
    return {};
  }

  std::string endpoint() const override { return loop_.endpoint(); }

  Result<void> connect(const std::string& name, const std::string& endpoint, const std::string& server_key) override {
    const auto host = endpoint_host(endpoint);
    if (!host) return fail_in(name, host.error());
    if (options_.keys.public_key.empty()) {
      if (!server_key.empty()) {
        return fail(ErrorCode::kBadInput, name + " has a CURVE key, this side has none; give both keys, or neither");
      }
      if (!is_loopback(*host)) {
        return fail(ErrorCode::kBadInput,
                    name + ": without CURVE keys the wire connects to loopback only, not to " + *host);
      }
    } else if (auto good = check_key("the key of " + name, server_key); !good) {
      return good;
    }
    return queues_.connect(name, endpoint, server_key);
  }

  void disconnect(const std::string& name) override { queues_.disconnect(name); }

  Result<void> allow(const std::vector<std::pair<std::string, std::string>>& keys) override {
    for (const auto& [name, key] : keys) {
      if (auto good = check_key("the allowed key of " + name, key); !good) return good;
    }
    for (const auto& [name, key] : keys) queues_.allow(name, key);
    return {};
  }

  Result<void> send(const std::string& peer, messages::Frame frame, bool droppable) override {
    return queues_.push(peer, frame, droppable);
  }

  Result<void> reply(const PeerHandle& peer, messages::Frame frame) override {
    if (peer.routing_id.empty()) {
      return fail(ErrorCode::kBadInput, "no reply to " + peer.name + ": it came over our own connection; use send()");
    }
    frame.envelope.sequence = 0;
    return queues_.push_reply(peer.routing_id, messages::encode_frame(frame));
  }

  WireStats stats() const override {
    const auto& counters = loop_.counters();
    return {counters.sent,     counters.received, counters.refused_frames, counters.refused_handshakes,
            queues_.dropped(), counters.gaps};
  }

  void stop(milliseconds linger) override {
    queues_.stop(steady_clock::now() + linger);
    if (thread_.joinable()) thread_.join();
  }

 private:
  const WireOptions options_;
  WireQueues queues_;
  WireLoop loop_;
  std::thread thread_;
};

}  // namespace

CurveKeys make_curve_keys() {
  std::array<char, zmq_sockets::kZ85Length + 1> public_key{};
  std::array<char, zmq_sockets::kZ85Length + 1> secret_key{};
  if (::zmq_curve_keypair(public_key.data(), secret_key.data()) != 0) return {};
  return {public_key.data(), secret_key.data()};
}

Result<std::unique_ptr<Wire>> Wire::start(WireOptions options, OnFrame on_frame) {
  if (auto good = check(options); !good) return fail_in("wire", good.error());
  const std::string where = options.listen ? bind_endpoint(options.bind_host, options.port) : std::string("no port");
  try {
    auto wire = std::make_unique<WireImpl>(std::move(options), std::move(on_frame));
    if (auto done = wire->begin(); !done) return fail_in("wire", done.error());
    return wire;
  } catch (const zmq::error_t& error) {
    return fail(ErrorCode::kIo,
                "wire: cannot listen on " + where + ": " + error.what() +
                    (error.num() == EADDRINUSE ? "; another process has the port, choose another one" : ""));
  } catch (const std::system_error& error) {
    return fail(ErrorCode::kIo, std::string("wire: no thread: ") + error.what());
  }
}

}  // namespace troupe::cluster
