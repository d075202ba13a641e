#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>

#include "actors/directory.hpp"
#include "scheduling/model_shape.hpp"

namespace troupe::actors {

/// Spawns a node's heat reporter: sums its GPUs' PassHeat into windows of `window_passes` passes (the same windows on
/// all nodes, since all ranks walk all passes) and sends a HeatReport per window to the placement manager.
caf::actor spawn_heat_reporter(caf::actor_system& system, std::string node, std::uint32_t gpus,
                               std::uint32_t window_passes, scheduling::ModelShape shape,
                               std::shared_ptr<Directory> directory);

}  // namespace troupe::actors
