#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "messages/error.hpp"
#include "messages/ids.hpp"

/// The life of one replica: loading -> serving -> draining -> released. Pure.
namespace troupe::scheduling {

enum class ReplicaState { kLoading, kServing, kDraining, kReleased };
std::string_view to_string(ReplicaState state);

class ReplicaMachine {
 public:
  explicit ReplicaMachine(ExpertId expert) : expert_(expert) {}

  ReplicaState state() const { return state_; }
  /// Its weights are in the slot and checked.
  Result<void> on_loaded();
  /// An epoch without it was published. Passes of earlier epochs may still need it.
  Result<void> on_drain();
  /// The fence pass has opened: nothing of an earlier epoch is left to do (docs/architecture.md, "Ordered handoff").
  Result<void> on_fence();
  /// Its weights could not be loaded.
  Result<void> on_load_failed();

 private:
  Result<void> move(ReplicaState from, ReplicaState to, std::string_view event);
  ExpertId expert_;
  ReplicaState state_ = ReplicaState::kLoading;
};

}  // namespace troupe::scheduling
