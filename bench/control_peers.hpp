#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <sys/types.h>

#include "messages/error.hpp"

/// What the control wire is measured against, and the process at the other end.
namespace troupe::bench {

/// A usual control message, envelope included.
inline constexpr std::size_t kMessageBytes = 270;

/// Messages of kMessageBytes per second between two processes on loopback: there and back one at a time, and one way.
struct Rates {
  double round_trips = 0;
  double one_way = 0;
};

/// A bare TCP connection, one write per message. Errors: kIo.
Result<Rates> tcp_rates(double seconds);
/// Bare ZeroMQ (DEALER to ROUTER), with CURVE or without; no codec, queues, names or allow-list. Errors: kIo,
/// kDeadline.
Result<Rates> zmq_rates(bool curve, double seconds);

/// Calls `batch` until `seconds` have passed, at least once. Gives how many per second, at `each` a call; its first
/// error.
Result<double> rate_over(double seconds, int each, const std::function<Result<void>()>& batch);

/// What a child says to its parent once it is ready: an endpoint, or nothing when it failed. At most 255 characters.
using Tell = std::function<void(const std::string&)>;
/// Never returns.
void wait_to_be_killed();

/// A forked process that is killed and reaped with its owner. The child gets no destructor of the parent's to run, and
/// must start what threads it needs itself: fork it before the parent opens sockets of its own for the same
/// measurement.
class Child {
 public:
  /// Forks, runs `body` in the child, and waits until it has told something. Errors: kIo (no process), kUnavailable (it
  /// told nothing).
  static Result<std::unique_ptr<Child>> start(const std::function<void(const Tell& tell)>& body);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  const std::string& told() const { return told_; }

 private:
  explicit Child(pid_t pid) : pid_(pid) {}
  pid_t pid_;
  std::string told_;
};

}  // namespace troupe::bench
