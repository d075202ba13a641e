#pragma once

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>

#include "actors/local_messages.hpp"

namespace troupe::actors {

/// Spawns the actor of one replica. It is pinned to its gpu actor: monitored, and ended with it.
/// Takes SlotLoaded, ExpertWorked, ExpertStatusAsked. Says LoadSlot, ExpertServing, ExpertFailed to the gpu actor.
caf::actor spawn_expert(caf::actor_system& system, const caf::actor& gpu, ExpertId expert, std::uint32_t device_slot);

}  // namespace troupe::actors
