#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>

#include "scheduling/model_shape.hpp"

namespace troupe::actors {

struct DoorOptions {
  std::string node;
  scheduling::ModelShape shape;
  std::uint32_t max_queued_tokens = 65536;
  std::uint32_t max_request_tokens = 16384;
  std::function<std::uint64_t()> refused_frames;  ///< of the node's wires, for DoorStatus; may be null
};

/// Spawns a node's client door. Streams are dealt out to the node's GPUs; a stream stays with its GPU, so its answers
/// come in order. Every Submit is answered: with hidden states, or with a code and the reason. Takes Submit (answered
/// with Answer), DoorStatusAsked (answered with DoorStatus), DoorOpened, DoorClosed, TokensDone.
caf::actor spawn_door(caf::actor_system& system, std::vector<caf::actor> gpus, DoorOptions options);

}  // namespace troupe::actors
