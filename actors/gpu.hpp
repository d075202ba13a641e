#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>

#include "actors/directory.hpp"
#include "actors/hooks.hpp"
#include "gpu/all_to_all.hpp"
#include "gpu/device.hpp"
#include "gpu/pass_runner.hpp"
#include "scheduling/model_shape.hpp"

namespace troupe::actors {

struct GpuOptions {
  std::string node;
  std::uint32_t gpu = 0;  ///< number within the node
  scheduling::ModelShape shape;
  gpu::PassRunnerOptions runner;
  std::uint32_t max_tokens_per_pass = 256;
  std::chrono::milliseconds connect_timeout{60000};
  std::shared_ptr<gpu::BulkEndpoint> endpoint;
  std::shared_ptr<const gpu::WeightSource> weights;
  std::shared_ptr<Directory> directory;
  Log log;
};

/// Spawns a GPU's actor: detached, owner of the device and its thread. It runs the opening round of passes and one
/// expert actor per replica. Takes PrepareGpu, ServingStarted, TokensArrived, PassOpened, GpuStatusAsked, LoadSlot,
/// ExpertServing, ExpertFailed. Says GpuReady, GpuFailed to `node`; TokensDone to the sender of TokensArrived; PassHeat
/// to the node's heat reporter; PassOpened to the gpu actors of all other ranks.
caf::actor spawn_gpu(caf::actor_system& system, const caf::actor& node, GpuOptions options);

}  // namespace troupe::actors
