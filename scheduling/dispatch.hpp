#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "messages/error.hpp"
#include "scheduling/gate.hpp"
#include "scheduling/placement.hpp"

/// From routes to what travels where: site choice, capacity, rounds.
///
/// A step goes so: every rank makes its demand (choose_sites), the ranks exchange their per-site counts, and from the same
/// matrix of counts each rank draws the same StepPlan (plan_step), with no further word between them.
namespace troupe::scheduling {

enum class Overflow {
  kWait,     ///< overflow rows are computed in a later round of the same step: exact, slower (default)
  kDrop,     ///< overflow rows are left out; the token is flagged kTokenDropped
  kNext,     ///< the token's next choice beyond top_k that has room; flagged kTokenRerouted; dropped if none has
  kReplica   ///< another replica of the same expert that has room; waits if none has: exact
};
std::string_view to_string(Overflow policy);

struct Capacity {
  std::uint32_t tokens_per_replica = 0;  ///< most rows that a replica takes in a round; 0: no limit
  Overflow overflow = Overflow::kWait;
};

/// One rank's wish for a step. Rows are sorted by (site, token, k).
struct Demand {
  struct Row {
    std::uint32_t site = 0;
    std::uint32_t token = 0;
    std::uint32_t k = 0;
  };
  std::vector<Row> rows;
  std::vector<std::uint32_t> counts;  ///< [sites]
};

/// Chooses a replica for every valid (token, k), spreading an expert's rows over its replicas by their shares (largest
/// remainder, deterministic from `first_token_number` on, so that no random number is needed). Every (token, expert) gets
/// exactly one site (C10).
Demand choose_sites(const Routes& routes, const LayerSites& sites, std::uint64_t first_token_number);

/// What one rank does in one round of a step. All spans of rows refer to the rank's own Demand order.
struct Round {
  /// My rows to rank r, in the order sent: indices into Demand::rows. Sorted by (site, token, k).
  std::vector<std::vector<std::uint32_t>> send;
  /// Rows that come from rank r for each of my sites: [ranks x sites_on_me].
  std::vector<std::uint32_t> recv_counts;
};

struct StepPlan {
  std::vector<Round> rounds;           ///< equal number on all ranks; at least one
  std::vector<std::uint32_t> dropped;  ///< indices into Demand::rows that overflow policy kDrop leaves out
  std::uint64_t total_rows = 0;        ///< rows computed by all ranks in this step
  std::vector<std::uint64_t> rows_per_rank;  ///< [ranks] rows computed on each rank in this step
};

/// counts: [ranks x sites], every rank's Demand::counts after its own overflow adjustments. Allocation of a site's room goes
/// by rank, then by the order of rows. max_rows_per_round: most rows that a rank may receive in a round (its scratch);
/// more are split into rounds (C18). Same arguments, same plan: on all ranks the number of rounds agrees.
/// Errors: kBadInput where counts do not fit the sites or the demand.
Result<StepPlan> plan_step(const LayerSites& sites, std::span<const std::uint32_t> counts, Rank self, const Demand& demand,
                           const Capacity& capacity, std::uint32_t max_rows_per_round);

/// Overflow policies that move rows (kNext, kReplica) settle before plan_step: given every rank's counts, rewrites this rank's
/// own demand, routes and flags. The ranks must then exchange counts again. Deterministic: each rank fills the room that
/// is its own by rank order, so that all ranks together never exceed a site's room where room is to be had.
/// extra: [tokens x extra_per_token] further choices from route_by_gate; empty for client routes.
void settle_overflow(const LayerSites& sites, std::span<const std::uint32_t> counts, Rank self, const Capacity& capacity,
                     std::span<const std::int32_t> extra, std::uint32_t extra_per_token, Routes& routes, Demand& demand);

/// Load check: the busiest GPU against the mean.
struct LoadCheck {
  double imbalance = 1.0;  ///< busiest / mean; 1.0 where there is no load
  std::uint32_t busiest = 0;
  bool over = false;       ///< imbalance > threshold
};
/// Overload is load beyond `threshold` (1.5 by default) times the mean.
LoadCheck check_load(std::span<const std::uint64_t> rows_per_gpu, double threshold = 1.5);

}  // namespace troupe::scheduling
