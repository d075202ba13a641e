#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "gpu/all_to_all.hpp"
#include "gpu/device.hpp"
#include "messages/error.hpp"
#include "scheduling/dispatch.hpp"
#include "scheduling/gate.hpp"
#include "scheduling/placement.hpp"

/// One rank's walk of a pass through all MoE layers: gate, dispatch, expert compute, combine (docs/architecture.md,
/// "Passes and steps").
namespace troupe::gpu {

/// Tokens that a rank brings to a pass. Per token either the client's routes or the gate's.
struct PassTokens {
  std::uint32_t tokens = 0;
  std::vector<float> hidden;                ///< [tokens x d_model], residual stream; in place the result
  std::vector<std::uint8_t> client_routed;  ///< [tokens], 1: route_ids holds the token's routes
  std::vector<std::int32_t> route_ids;      ///< [layers x tokens x top_k]; -1 where client_routed is 0
  std::vector<float> route_weights;         ///< likewise
  std::uint64_t first_token_number = 0;     ///< running number of the rank's first token, for spreading over replicas
};

struct PassOutcome {
  std::vector<std::uint8_t> flags;      ///< [tokens], messages::TokenFlag
  std::vector<std::uint32_t> routed;    ///< [layers x experts] token visits that this rank routed
  std::vector<std::uint64_t> computed;  ///< [layers x slots_per_layer] token visits computed here, per slot
  std::vector<std::uint64_t> step_ns;   ///< [layers]
  std::uint64_t all_to_all_ns = 0;
  std::uint64_t dropped = 0;  ///< token visits left out by the overflow policy
  std::uint64_t refused_slots = 0;
  std::uint64_t failed_tokens = 0;
};

struct PassRunnerOptions {
  scheduling::Capacity capacity;
  std::uint32_t slots_per_layer = 0;  ///< of this GPU; device slot = layer * slots_per_layer + slot
  std::uint32_t max_rows_per_round = 4096;
  std::chrono::milliseconds exchange_timeout{20000};
};

/// Thread rule: one thread, the device thread. Buffers are kept between passes.
class PassRunner {
 public:
  PassRunner(const scheduling::ModelShape& shape, const PassRunnerOptions& options, Device& device);

  /// Runs pass `pass` in the view of `exchange`. sites: one per layer, of the pass's epoch.
  /// Errors: those of AllToAll and Device, with pass and layer in front. After an error `tokens.hidden` is not usable;
  /// the caller keeps its own copy of the inputs.
  Result<PassOutcome> run(PassNumber pass, const std::vector<scheduling::LayerSites>& sites, AllToAll& exchange,
                          PassTokens& tokens);

 private:
  Result<void> run_step(StepId step, const scheduling::LayerSites& sites, AllToAll& exchange, PassTokens& tokens,
                        PassOutcome& outcome);
  Result<scheduling::Routes> route(std::uint32_t layer, const PassTokens& tokens, PassOutcome& outcome);
  Result<std::vector<std::uint32_t>> exchange_counts(ExchangeTag tag, AllToAll& exchange,
                                                     const std::vector<std::uint32_t>& mine, PassOutcome& outcome);

  scheduling::ModelShape shape_;
  PassRunnerOptions options_;
  Device& device_;
  std::vector<std::byte> normed_;  ///< [tokens x d_model], transport type: what is dispatched
  std::vector<float> gate_input_;  ///< the same values as f32, for the gate
  std::vector<float> logits_;
  std::vector<std::int32_t> extra_;  ///< further choices of the gate, for the overflow policy "next expert"
  std::uint32_t extra_per_token_ = 0;
  std::vector<std::byte> expert_in_;  ///< received rows, grouped by slot
  std::vector<std::byte> expert_out_;
  std::vector<std::byte> returned_;  ///< results kept over the rounds of a step that has several
};

}  // namespace troupe::gpu
