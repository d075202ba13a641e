#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>

#include "actors/directory.hpp"
#include "actors/hooks.hpp"
#include "messages/control.hpp"
#include "scheduling/model_shape.hpp"
#include "scheduling/placement.hpp"

namespace troupe::actors {

/// What the process around a coordinator hears.
struct ClusterServes {
  messages::ViewPublished view;
  Epoch epoch;
};
struct ClusterFailed {
  Error error;
};
struct ClusterStopped {};
struct NodeJoined {
  std::string node;
  Incarnation incarnation;
};
using ClusterEvent = std::variant<NodeJoined, ClusterServes, ClusterFailed, ClusterStopped>;

struct MembershipOptions {
  std::vector<std::string> nodes;  ///< expected, in config order
  std::uint64_t plan_digest = 0;
  std::uint32_t max_tokens_per_pass = 0;
  std::chrono::milliseconds heartbeat_limit{5000};  ///< zero: no heartbeats are watched (single-process cluster)
  std::chrono::milliseconds join_timeout{120000};   ///< all nodes must serve by then
  std::shared_ptr<Ledger> ledger;
  std::shared_ptr<Directory> directory;
  std::shared_ptr<Identity> identity;
  ConnectPeer connect;                         ///< may be null
  std::function<void(ClusterEvent)> on_event;  ///< from an actor's thread: must not block
  Log log;
};

/// Spawns the membership actor: who is in, in which view; ready; gone. Decisions: scheduling/join_machine.hpp.
/// Takes Join, NodeReady, Leave, Heartbeat, StopCluster, EpochIssued. Says JoinAccepted, Reject, ViewPublished,
/// ServingStarted, Shutdown to the node actors, PlanForView to the placement manager.
caf::actor spawn_membership(caf::actor_system& system, MembershipOptions options);

/// Tells all nodes to finish. Returns when the messages are on their way, or after two seconds.
void stop_cluster(caf::actor_system& system, const caf::actor& membership, const std::string& reason);

struct PlacementOptions {
  scheduling::ModelShape shape;
  std::vector<scheduling::GpuSlots> slots;  ///< all GPUs of the cluster
  scheduling::UniformOrder order = scheduling::UniformOrder::kContiguous;
  double half_life_windows = 8.0;
  double imbalance_threshold = 1.5;
  std::shared_ptr<Ledger> ledger;
  std::shared_ptr<Directory> directory;
  std::shared_ptr<Identity> identity;
  Log log;
};

/// Spawns the placement manager: plans the placement of a view, writes each epoch to the ledger, then sends it to all
/// nodes; takes heat reports and says when a GPU's load is beyond the threshold. Takes PlanForView (answered to the
/// sender with EpochIssued), HeatReport.
caf::actor spawn_placement_manager(caf::actor_system& system, PlacementOptions options);

}  // namespace troupe::actors
