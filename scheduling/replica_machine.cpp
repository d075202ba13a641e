#include "scheduling/replica_machine.hpp"

namespace troupe::scheduling {

std::string_view to_string(ReplicaState state) {
  switch (state) {
    case ReplicaState::kLoading:
      return "loading";
    case ReplicaState::kServing:
      return "serving";
    case ReplicaState::kDraining:
      return "draining";
    case ReplicaState::kReleased:
      return "released";
  }
  return "unknown";
}

Result<void> ReplicaMachine::move(ReplicaState from, ReplicaState to, std::string_view event) {
  if (state_ != from) {
    return fail(ErrorCode::kIllegalTransition, "replica of expert " + std::to_string(expert_.layer) + ":" +
                                                   std::to_string(expert_.expert) + ": " + std::string(event) +
                                                   " needs state " + std::string(to_string(from)) + ", it is " +
                                                   std::string(to_string(state_)));
  }
  state_ = to;
  return {};
}

Result<void> ReplicaMachine::on_loaded() {
  return move(ReplicaState::kLoading, ReplicaState::kServing, "loaded");
}
Result<void> ReplicaMachine::on_drain() {
  return move(ReplicaState::kServing, ReplicaState::kDraining, "drain");
}
Result<void> ReplicaMachine::on_fence() {
  return move(ReplicaState::kDraining, ReplicaState::kReleased, "fence");
}
Result<void> ReplicaMachine::on_load_failed() {
  return move(ReplicaState::kLoading, ReplicaState::kReleased, "load failed");
}

}  // namespace troupe::scheduling
