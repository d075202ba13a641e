#pragma once

#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "scheduling/dispatch.hpp"
#include "scheduling/gate.hpp"
#include "scheduling/placement.hpp"

/// What the tests of scheduling/ share.
namespace troupe::scheduling::testing {

/// A small random number generator (splitmix64, Steele et al. 2014) whose numbers are the same with every standard
/// library.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15U;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }
  /// 0 .. end-1.
  std::uint64_t below(std::uint64_t end) { return next() % end; }
  bool chance(double p) { return static_cast<double>(next() >> 11) * 0x1.0p-53 < p; }
  float uniform(float low, float high) { return low + (high - low) * (static_cast<float>(next() >> 40) * 0x1.0p-24F); }

 private:
  std::uint64_t state_;
};

/// The seed of a random test: fixed, unless TROUPE_SEED gives another.
inline std::uint64_t seed_or(std::uint64_t usual) {
  const char* given = std::getenv("TROUPE_SEED");
  return given == nullptr ? usual : std::strtoull(given, nullptr, 10);
}

/// A fixed seed for RapidCheck, unless RC_PARAMS gives another. A failing property prints the RC_PARAMS that repeat it.
struct FixedSeed {
  FixedSeed() { setenv("RC_PARAMS", "seed=20240611 max_success=1000", 0); }
};

ModelShape shape_of(std::uint32_t experts, std::uint32_t top_k, std::uint32_t layers = 1);

/// GPU g of node n is GpuId{n, g}; here one GPU per node.
std::vector<GpuSlots> gpus_of(std::span<const std::uint32_t> slots);

/// One layer by hand: for each expert the ranks that hold it, with equal shares; slots are counted up per rank.
LayerSites sites_of(std::uint32_t ranks, const std::vector<std::vector<std::uint32_t>>& holders);

/// FNV-1a over the bits of floats and ids, for golden values.
std::uint64_t digest(std::span<const float> values, std::uint64_t start = 0xCBF29CE484222325U);
std::uint64_t digest(std::span<const std::int32_t> values, std::uint64_t start = 0xCBF29CE484222325U);

/// All ranks of one step.
struct StepWorld {
  ModelShape shape;
  LayerSites sites;
  std::vector<Routes> routes;                    ///< [ranks]
  std::vector<std::vector<std::int32_t>> extra;  ///< [ranks], each [tokens x extra_per_token]
  std::uint32_t extra_per_token = 0;
  std::vector<Demand> demands;  ///< [ranks]

  void choose(std::uint64_t first_token_number = 0);
  std::vector<std::uint32_t> counts() const;  ///< [ranks x sites]
  std::vector<std::uint64_t> queues() const;  ///< [sites]
  /// Every rank settles with the same counts.
  std::vector<Settled> settle(const Capacity& capacity);
};

/// Adds a rank that brings these ids, [tokens x top_k], all of weight 1.
void add_rank(StepWorld& world, const std::vector<std::int32_t>& ids);

/// Each valid (token, k) of each rank stands in the demand exactly once, at a replica of its expert, rows in order.
/// Returns what is wrong, or nothing.
std::string check_demands(const StepWorld& world);

/// Plans the step on every rank and holds the plans against each other and against the limits: every row sent once or
/// dropped; what a sends b is what b expects of a, site by site; capacity per (replica, round) and rows per (rank,
/// round) kept; as many rounds on all ranks, and as few as the limits allow. Returns what is wrong, or nothing.
std::string check_plans(const StepWorld& world, const Capacity& capacity, std::uint32_t max_rows_per_round);

}  // namespace troupe::scheduling::testing
