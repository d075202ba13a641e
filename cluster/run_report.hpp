#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "cluster/config.hpp"

namespace troupe::cluster {

/// What a run found. Its JSON keys are a promise to scripts: see docs/run.md.
struct RunReport {
  bool pass = false;
  std::vector<std::string> reasons;  ///< why not, where it is no pass
  std::uint32_t nodes = 0;
  std::uint32_t gpus = 0;
  std::uint64_t passes = 0;
  std::uint64_t steps = 0;  ///< passes x layers
  std::uint64_t tokens_submitted = 0;
  std::uint64_t tokens_completed = 0;
  std::uint64_t tokens_lost = 0;        ///< never answered, or answered with an error
  std::uint64_t tokens_duplicated = 0;  ///< answered more than once
  std::uint64_t order_violations = 0;   ///< answers out of their stream's order
  std::uint64_t tokens_dropped = 0;     ///< flagged: overflow left out an expert
  std::uint64_t tokens_rerouted = 0;
  std::uint64_t tokens_failed = 0;  ///< flagged: no usable gate scores
  std::uint64_t tokens_bad_route = 0;
  std::uint64_t tokens_differing = 0;  ///< bits unlike the reference's
  std::string output_digest;           ///< XXH3-128 over all outputs by stream and sequence
  std::string reference_digest;
  bool reference_checked = false;
  double imbalance = 1.0;  ///< mean over layers of busiest GPU / mean
  double worst_imbalance = 1.0;
  std::vector<std::uint64_t> tokens_per_gpu;                  ///< token visits computed
  std::vector<std::vector<std::uint64_t>> tokens_per_expert;  ///< [layers][experts]
  double step_ms_p50 = 0;
  double step_ms_p99 = 0;
  std::uint64_t all_to_all_bytes = 0;
  double all_to_all_share = 0;  ///< of step time
  double seconds = 0;
  double tokens_per_second = 0;
  double reference_seconds = 0;
  std::vector<std::uint64_t> arena_bytes;  ///< per GPU
  std::vector<std::uint64_t> arena_used_bytes;
  std::uint64_t refused_frames = 0;
};

std::string to_json(const RunReport& report);
/// A table for a person.
std::string to_text(const RunReport& report, const Config& config);

}  // namespace troupe::cluster
