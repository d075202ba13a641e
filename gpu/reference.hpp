#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "gpu/device.hpp"
#include "gpu/pass_runner.hpp"
#include "messages/error.hpp"

/// What the answers must be: the same layers in one process, with no placement, dispatch or all-to-all in it.
namespace troupe::gpu {

struct ReferenceOptions {
  std::uint32_t rows_per_call = 1024;              ///< rows of one expert computed at once; does not change a bit
  std::function<void(double)> progress = nullptr;  ///< called with 0..1 now and then; may be null
  std::function<bool()> cancelled = nullptr;       ///< return true to stop early (kAborted); may be null
};

/// Walks `tokens` through all layers, expert by expert: only one expert's weights are in memory at a time, so the
/// reference of a model that fills a machine fits beside it. In place; returns the tokens' flags. Overflow policies
/// that change answers are not modelled here: a run that uses them has no reference.
Result<std::vector<std::uint8_t>> run_reference(const scheduling::ModelShape& shape, const WeightSource& weights,
                                                PassTokens& tokens, const ReferenceOptions& options = {});

}  // namespace troupe::gpu
