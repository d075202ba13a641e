#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "messages/error.hpp"
#include "scheduling/gate.hpp"
#include "scheduling/placement.hpp"

/// From routes to what travels where: site choice, capacity, rounds. Pure; any thread.
///
/// A step goes so: every rank makes its demand (choose_sites), the ranks exchange their per-site counts, and from the
/// same matrix of counts each rank draws the same StepPlan (plan_step), with no further word between them.
///
/// The queue of a site: its rows from rank 0 in that rank's order, then those of rank 1, and so on. A row's position in
/// it follows from the counts alone, so that all ranks know who holds which place without asking.
namespace troupe::scheduling {

enum class Overflow {
  kWait,    ///< overflow rows are computed in a later round of the same step: exact, slower (default)
  kDrop,    ///< overflow rows are left out; the token is flagged kTokenDropped
  kNext,    ///< the token's next choice beyond top_k that has room; flagged kTokenRerouted; dropped if none has
  kReplica  ///< another replica of the same expert that has room; waits if none has: exact
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
    friend bool operator==(const Row&, const Row&) = default;
  };
  std::vector<Row> rows;
  std::vector<std::uint32_t> counts;  ///< [sites]
};

/// Chooses a replica for every valid (token, k), spreading an expert's rows over its replicas by their shares. Every
/// (token, expert) gets exactly one site (C10); padding and refused slots (-1) get none. Of n rows a replica with share
/// s gets floor(n*s) or ceil(n*s); which of the two follows from first_token_number, so that over many steps the shares
/// are met, down to one row per step, without a random number (systematic sampling, Madow 1944, started at multiples of
/// the golden section). first_token_number: the running number of the first token, or anything that differs from step
/// to step; ranks that count from distant numbers do not all favour the same replica.
Demand choose_sites(const Routes& routes, const LayerSites& sites, std::uint64_t first_token_number);

/// What one rank does in one round of a step. All spans of rows refer to the rank's own Demand order.
struct Round {
  /// My rows to rank r, in the order sent: indices into Demand::rows. Sorted by (site, token, k).
  std::vector<std::vector<std::uint32_t>> send;
  /// Rows that come from rank r for each of my sites: [ranks x sites_on_me].
  std::vector<std::uint32_t> recv_counts;
};

struct StepPlan {
  std::vector<Round> rounds;                 ///< equal number on all ranks; at least one
  std::vector<std::uint32_t> dropped;        ///< indices into Demand::rows that overflow policy kDrop leaves out
  std::uint64_t total_rows = 0;              ///< rows computed by all ranks in this step
  std::vector<std::uint64_t> rows_per_rank;  ///< [ranks] rows computed on each rank in this step
};

/// More rounds than this in one step are refused: a capacity of a few rows against a load of thousands, or counts that
/// no honest rank sends.
inline constexpr std::uint64_t kMaxRoundsPerStep = 16'384;

/// counts: [ranks x sites], every rank's Demand::counts after its own overflow adjustments. Allocation of a site's room
/// goes by rank, then by the order of rows. max_rows_per_round: most rows that a rank may receive in a round (its
/// scratch); more are split into rounds (C18). Same arguments, same plan: on all ranks the number of rounds agrees.
///
/// Under kDrop a site takes the first tokens_per_replica rows of its queue, once. Under every other policy no row is
/// lost: a site's queue is spread over the rounds, at most tokens_per_replica in each. There are as few rounds as both
/// limits allow: the most that any rank needs, max(ceil(rows / max_rows_per_round), ceil(longest queue /
/// tokens_per_replica)). A queue above the capacity is dealt over the rounds like cards; the others stay whole where
/// they can, since an expert's weights are read once per round in which it has rows.
///
/// Time and memory are linear in own rows, ranks x sites, and rounds x ranks x own sites.
/// Errors: kBadInput where counts do not fit the sites or the demand, or max_rows_per_round is 0; kLimit beyond
/// kMaxRoundsPerStep (names rank and rows). All ranks meet the errors of the shared matrix together.
Result<StepPlan> plan_step(const LayerSites& sites, std::span<const std::uint32_t> counts, Rank self,
                           const Demand& demand, const Capacity& capacity, std::uint32_t max_rows_per_round);

/// What settle_overflow did to the own rank's rows.
struct Settled {
  std::uint64_t moved = 0;
  std::uint64_t dropped = 0;
};

/// Overflow policies that move rows (kNext, kReplica) settle before plan_step: given every rank's counts, rewrites this
/// rank's own demand, routes and flags. The ranks must then exchange counts again. Under other policies, without a
/// capacity, or with counts that do not fit (which plan_step refuses), nothing changes. Deterministic: each rank fills
/// the room that is its own by rank order, so that all ranks together never exceed a site's room. The overflow of a
/// site is what stands in its queue from place tokens_per_replica on; its room is what is left up to there.
///
/// kReplica: per expert, all overflow rows are numbered by (site, place), all free places by site; row i takes free
/// place i. Rows beyond the last free place stay and wait. So all room is used, and no site passes its capacity by a
/// move.
///
/// kNext: every site's room is divided among the ranks in proportion to their overflow rows in the whole layer (whole
/// places, all of them given out). A rank walks its overflow rows in order of (site, token, k); each takes the token's
/// first further choice that the token does not use already and one of whose sites has room of this rank's left, the
/// site with the most, the lower one of equals. The slot keeps its weight, the token is flagged kTokenRerouted. Without
/// such a choice the slot becomes -1, flagged kTokenDropped. A token may thus be dropped while another rank leaves room
/// unused: no further word is exchanged.
///
/// extra: [tokens x extra_per_token] further choices from route_by_gate; empty for client routes.
Settled settle_overflow(const LayerSites& sites, std::span<const std::uint32_t> counts, Rank self,
                        const Capacity& capacity, std::span<const std::int32_t> extra, std::uint32_t extra_per_token,
                        Routes& routes, Demand& demand);

/// Load check: the busiest GPU against the mean.
struct LoadCheck {
  double imbalance = 1.0;  ///< busiest / mean; 1.0 where there is no load
  std::uint32_t busiest = 0;
  bool over = false;  ///< imbalance > threshold
};
/// Overload is load beyond `threshold` (1.5 by default) times the mean. Of equals the first GPU counts as the busiest.
LoadCheck check_load(std::span<const std::uint64_t> rows_per_gpu, double threshold = 1.5);

}  // namespace troupe::scheduling
