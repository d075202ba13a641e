#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>

#include "actors/directory.hpp"
#include "actors/hooks.hpp"
#include "gpu/all_to_all.hpp"
#include "gpu/device.hpp"
#include "gpu/pass_runner.hpp"
#include "messages/control.hpp"
#include "scheduling/model_shape.hpp"

namespace troupe::actors {

struct NodeOptions {
  messages::Join join;  ///< what it says when joining: name, nonce, digest, endpoints, bulk addresses, token limit
  scheduling::ModelShape shape;
  gpu::PassRunnerOptions runner;
  std::vector<scheduling::GpuSlots> cluster_slots;  ///< of all GPUs of the cluster, to check placements against
  std::uint32_t max_queued_tokens = 65536;
  std::uint32_t max_request_tokens = 16384;
  std::uint32_t heat_window_passes = 16;
  std::chrono::milliseconds connect_timeout{60000};
  std::vector<std::shared_ptr<gpu::BulkEndpoint>> endpoints;  ///< one per GPU
  std::shared_ptr<const gpu::WeightSource> weights;
  std::shared_ptr<Directory> directory;
  std::shared_ptr<Identity> identity;
  ConnectPeer connect;                                             ///< may be null
  std::function<void(Incarnation)> joined;                         ///< start heartbeats; may be null
  std::function<void(const messages::ViewPublished&)> view_known;  ///< for the checks of incoming frames; may be null
  std::function<void(Result<void>)> ended;        ///< called once: told to stop, or why it cannot go on
  std::function<std::uint64_t()> refused_frames;  ///< may be null
  Log log;
};

/// The actors of one node.
struct NodeActors {
  caf::actor node;
  caf::actor door;
  caf::actor heat;
  std::vector<caf::actor> gpus;
};

/// Spawns a node: its node, gpu, door and heat actors, registered in the directory under the node's name. It joins the
/// coordinator that the directory knows, and takes part from then on.
/// The node actor takes JoinAccepted, Reject, ViewPublished, EpochPublished, ServingStarted, Shutdown, StopNode,
/// GpuReady, GpuFailed. Says Join, NodeReady, Leave to the membership actor.
NodeActors spawn_node(caf::actor_system& system, NodeOptions options);

/// Ends the actors of a node in order and takes them from the directory. Returns when they are gone, or after the
/// deadline.
Result<void> stop_node(caf::actor_system& system, NodeActors& actors, Directory& directory, const std::string& name,
                       std::chrono::milliseconds deadline);

/// Closes a door: it answers all that waits with `why`. Returns when it has, or after two seconds.
void close_door(caf::actor_system& system, const caf::actor& door, const Error& why);

/// Asks `actors` to end and waits until they have. Errors: kDeadline, with how many are left.
Result<void> stop_actors(caf::actor_system& system, std::vector<caf::actor> actors, std::chrono::milliseconds deadline);

}  // namespace troupe::actors
