#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include <caf/actor.hpp>

#include "messages/ids.hpp"

/// Actors by (node, name). Callers do not know whether an actor lives here or behind a link.
namespace troupe::actors {

/// Names of the actors, as in Envelope::to.
inline constexpr const char* kCoordinator = "coordinator";  ///< the node name of the coordinator
inline constexpr const char* kMembership = "membership";    ///< on the coordinator: Join, Leave, NodeReady, Heartbeat
inline constexpr const char* kPlacement = "placement";      ///< on the coordinator: HeatReport
inline constexpr const char* kNode =
    "node";  ///< on a node: JoinAccepted, Reject, ViewPublished, EpochPublished, ServingStarted, Shutdown
inline constexpr const char* kHeat = "heat";  ///< on a node: heat reporter
inline constexpr const char* kDoor = "door";  ///< on a node: Submit, DoorStatusAsked
inline std::string gpu_name(std::uint32_t gpu) {
  return "gpu/" + std::to_string(gpu);
}  ///< on a node: PassOpened

/// Thread-safe. Holds handles, so `clear` must be called before the actor system goes.
class Directory {
 public:
  /// Makes a stand-in for an actor of another process; see link.hpp.
  using MakeProxy = std::function<caf::actor(const std::string& node, const std::string& name)>;

  void add(const std::string& node, const std::string& name, caf::actor actor);
  void remove(const std::string& node, const std::string& name);
  /// From now on, actors that are not here are looked for behind links.
  void set_proxies(MakeProxy make);
  /// The actor, or a proxy of it; null where there is neither.
  caf::actor find(const std::string& node, const std::string& name);
  /// Only an actor that lives in this process.
  caf::actor find_local(const std::string& node, const std::string& name) const;
  /// Forgets all and returns the proxies, so that their owner can end them.
  std::vector<caf::actor> clear();

 private:
  using Key = std::pair<std::string, std::string>;
  mutable std::mutex mutex_;
  std::map<Key, caf::actor> local_;
  std::map<Key, caf::actor> proxies_;
  MakeProxy make_;
};

/// What a process says of itself in every envelope. Written by its node or membership actor, read by its links.
struct Identity {
  std::string node;
  std::atomic<std::uint64_t> incarnation{0};
  std::atomic<std::uint64_t> view{0};
  std::atomic<std::uint64_t> epoch{0};
};

}  // namespace troupe::actors
