#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <boost/test/unit_test.hpp>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cluster/wire.hpp"

/// Wires on loopback, what they hear, and raw TCP beside them.
namespace troupe::cluster::wire_test {

/// How long a condition may take before a test gives up. Never what a test measures.
inline constexpr std::chrono::seconds kPatience{60};

/// Whether `condition` comes true.
inline bool eventually(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  return true;
}

struct Heard {
  messages::Frame frame;
  PeerHandle from;
};

/// A wire and all that it heard, logged and missed.
class Party {
 public:
  explicit Party(WireOptions options) {
    options.log = [this](std::string_view text) {
      const std::lock_guard lock(mutex_);
      lines_.emplace_back(text);
    };
    options.on_gap = [this](const std::string& from, std::uint64_t expected, std::uint64_t got) {
      const std::lock_guard lock(mutex_);
      gaps_.push_back(from + ":" + std::to_string(expected) + "-" + std::to_string(got));
    };
    auto wire = Wire::start(std::move(options), [this](messages::Frame frame, const PeerHandle& from) {
      const std::lock_guard lock(mutex_);
      if (echo_ && std::holds_alternative<messages::Ping>(frame.payload)) {
        messages::Frame pong;
        pong.envelope.from = frame.envelope.to;
        pong.payload = messages::Pong{std::get<messages::Ping>(frame.payload).cookie};
        (void)wire_->reply(from, std::move(pong));
      }
      heard_.push_back({std::move(frame), from});
    });
    BOOST_REQUIRE_MESSAGE(wire.has_value(), (wire ? "" : wire.error().message));
    const std::lock_guard lock(mutex_);
    wire_ = std::move(*wire);
  }
  ~Party() {
    if (wire_) wire_->stop(std::chrono::milliseconds{0});
  }
  Party(const Party&) = delete;
  Party& operator=(const Party&) = delete;

  Wire* operator->() { return wire_.get(); }
  /// Answers each Ping with a Pong from whom it was addressed to.
  void echo() {
    const std::lock_guard lock(mutex_);
    echo_ = true;
  }
  std::vector<Heard> heard() const {
    const std::lock_guard lock(mutex_);
    return heard_;
  }
  std::size_t heard_count() const {
    const std::lock_guard lock(mutex_);
    return heard_.size();
  }
  /// Waits until that many frames have come in all, and gives the last of these.
  Heard wait_for(std::size_t count) const {
    BOOST_REQUIRE_MESSAGE(eventually([&] { return heard_count() >= count; }), heard_count()
                                                                                  << " of " << count << " frames");
    const std::lock_guard lock(mutex_);
    return heard_[count - 1];
  }
  std::vector<std::string> gaps() const {
    const std::lock_guard lock(mutex_);
    return gaps_;
  }
  /// How many log lines hold this text.
  std::size_t logged(std::string_view text) const {
    const std::lock_guard lock(mutex_);
    std::size_t count = 0;
    for (const auto& line : lines_) count += line.find(text) != std::string::npos ? 1 : 0;
    return count;
  }

 private:
  mutable std::mutex mutex_;
  bool echo_ = false;
  std::vector<Heard> heard_;
  std::vector<std::string> lines_;
  std::vector<std::string> gaps_;
  std::unique_ptr<Wire> wire_;
};

inline WireOptions plain(const std::string& self) {
  WireOptions options;
  options.self = self;
  return options;
}

inline WireOptions with_keys(const std::string& self, const CurveKeys& keys,
                             std::vector<std::pair<std::string, std::string>> allowed) {
  WireOptions options;
  options.self = self;
  options.keys = keys;
  options.allowed_keys = std::move(allowed);
  return options;
}

inline messages::Frame ping(const std::string& from, std::uint64_t cookie, const std::string& to = "echo") {
  messages::Frame frame;
  frame.envelope.from = from;
  frame.envelope.to = to;
  frame.payload = messages::Ping{cookie};
  return frame;
}

inline std::uint16_t port_of(const std::string& endpoint) {
  return static_cast<std::uint16_t>(std::stoi(endpoint.substr(endpoint.rfind(':') + 1)));
}

/// A TCP connection to a port of 127.0.0.1, for what no decent peer would send.
class RawTcp {
 public:
  explicit RawTcp(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    BOOST_REQUIRE(::connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0);
  }
  ~RawTcp() { close(); }
  RawTcp(const RawTcp&) = delete;
  RawTcp& operator=(const RawTcp&) = delete;

  void send(const std::string& bytes) { (void)::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  /// Whether the other side closes or resets the connection.
  bool closed_by_peer() {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < end) {
      pollfd item{fd_, POLLIN, 0};
      if (::poll(&item, 1, 100) <= 0) continue;
      char buffer[4096];
      if (::recv(fd_, buffer, sizeof(buffer), 0) <= 0) return true;
    }
    return false;
  }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

}  // namespace troupe::cluster::wire_test
