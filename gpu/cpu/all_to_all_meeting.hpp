#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <poll.h>

#include "gpu/cpu/all_to_all_channel.hpp"

namespace troupe::gpu::cpu {

/// The peers of a view that one transport reaches, while connect brings them together. First every pair gets to know
/// each other; who knows all its peers, over all transports, says ready to all; who has heard ready from all may
/// return. So no rank starts before all have agreed.
class Meeting {
 public:
  virtual ~Meeting() = default;

  /// Does what can be done without waiting. Errors: kMismatch, kStale, kRefused, kUnavailable (each names the rank).
  virtual Result<void> step() = 0;
  /// Descriptors whose events call for another step. False: step again before waiting.
  virtual bool watch(std::vector<pollfd>& fds) = 0;
  /// step wants to be called again soon though no descriptor says so.
  virtual bool impatient() const { return false; }
  virtual void say_ready() = 0;
  /// Adds the ranks that we do not know yet; with `ready`, those that have not said ready.
  virtual void missing(bool ready, std::vector<std::uint32_t>& ranks) const = 0;
  /// The finished channels, into their ranks' places. Once, after all are ready.
  virtual void hand_over(std::vector<std::unique_ptr<Channel>>& channels) = 0;
};

}  // namespace troupe::gpu::cpu
