#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/hooks.hpp"
#include "messages/client.hpp"
#include "messages/error.hpp"
#include "scheduling/dispatch.hpp"
#include "scheduling/model_shape.hpp"
#include "scheduling/placement.hpp"

/// A whole cluster in this process: the same actors, placement and passes as between machines, without a wire.
namespace troupe::actors {

struct LocalClusterOptions {
  scheduling::ModelShape shape;
  std::uint32_t nodes = 1;
  std::uint32_t gpus_per_node = 1;
  std::uint32_t slots_per_gpu = 0;  ///< per layer; 0: the least that holds all experts
  scheduling::UniformOrder order = scheduling::UniformOrder::kContiguous;
  scheduling::Capacity capacity;
  std::uint32_t max_tokens_per_pass = 256;
  std::uint32_t max_rows_per_round = 4096;
  std::uint32_t max_queued_tokens = 65536;
  std::uint32_t max_request_tokens = 16384;
  std::uint32_t heat_window_passes = 16;
  std::chrono::milliseconds start_timeout{60000};
  Log log;  ///< may be null
};

/// Thread rule: submit, ask and status may be called from any thread.
class LocalCluster {
 public:
  using OnAnswer = std::function<void(messages::Answer)>;

  /// Starts all actors and waits until they serve.
  /// Errors: kBadInput, kSlotsTooFew, kIo (memory), kDeadline; nothing is left running then.
  static Result<std::unique_ptr<LocalCluster>> start(const LocalClusterOptions& options);
  /// Ends all actors; requests under way are answered with kAborted.
  virtual ~LocalCluster() = default;

  /// Sends a request through the door of `node`. `on_answer` is called exactly once, on an actor's thread: it must not
  /// block. An answer that does not come in time has code kDeadline.
  virtual void submit(std::uint32_t node, messages::Submit submit, std::chrono::milliseconds timeout,
                      OnAnswer on_answer) = 0;
  /// The same, waiting for it.
  virtual Result<messages::Answer> ask(std::uint32_t node, messages::Submit submit,
                                       std::chrono::milliseconds timeout) = 0;
  virtual Result<messages::DoorStatus> status(std::uint32_t node, std::chrono::milliseconds timeout) = 0;
};

}  // namespace troupe::actors
