#define BOOST_TEST_MODULE scheduling_dispatch_property
#include <algorithm>
#include <numeric>
#include <set>

#include <boost/test/unit_test.hpp>
#include <rapidcheck.h>
#include <rapidcheck/boost_test.h>

#include "scheduling/dispatch.hpp"
#include "tests/scheduling/support.hpp"

// A failing property prints the RC_PARAMS that repeat it.

namespace troupe::scheduling {
namespace {

using testing::Random;
using testing::StepWorld;

const testing::FixedSeed kSeed;

/// Ranks, experts, replicas with any shares, tokens with padding, further choices: all of it from one number, which is
/// what RapidCheck makes up and shrinks, beside the sizes.
StepWorld any_world() {
  const auto ranks = *rc::gen::inRange<std::uint32_t>(1, 7);
  const auto experts = *rc::gen::inRange<std::uint32_t>(1, 13);
  const auto most_tokens = *rc::gen::inRange<std::uint32_t>(0, 25);
  Random random(*rc::gen::arbitrary<std::uint32_t>());

  StepWorld world;
  world.shape = testing::shape_of(experts, 1 + static_cast<std::uint32_t>(random.below(std::min(experts, 4U))));
  Placement placement{Epoch{1}, {}};
  std::vector<RankPlace> places;
  for (std::uint32_t r = 0; r < ranks; ++r) places.push_back({GpuId{NodeId{static_cast<std::uint16_t>(r)}, 0}});
  std::vector<std::uint32_t> slots(ranks, 0);
  for (std::uint32_t e = 0; e < experts; ++e) {
    std::set<std::uint32_t> holders;
    const std::uint64_t copies = 1 + random.below(ranks);
    while (holders.size() < copies) holders.insert(static_cast<std::uint32_t>(random.below(ranks)));
    std::vector<double> weights;
    double sum = 0;
    for (std::size_t i = 0; i < holders.size(); ++i) sum += weights.emplace_back(0.01 + random.uniform(0.0F, 1.0F));
    std::size_t i = 0;
    for (const std::uint32_t r : holders)
      placement.replicas.push_back({ExpertId{0, e}, places[r].gpu, slots[r]++, weights[i++] / sum});
  }
  world.sites = resolve(world.shape, placement, places)->front();

  // A few experts that many tokens like, so that there is overflow.
  const std::uint64_t popular = 1 + random.below(experts);
  world.extra_per_token = static_cast<std::uint32_t>(random.below(4));
  const std::size_t k = world.shape.top_k;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    const std::uint64_t tokens = random.chance(0.2) ? 0 : random.below(most_tokens + 1);
    std::vector<std::int32_t> ids;
    std::vector<std::int32_t> extra;
    for (std::uint64_t t = 0; t < tokens; ++t) {
      std::vector<std::int32_t> order(experts);
      std::iota(order.begin(), order.end(), 0);
      for (std::size_t i = 0; i < experts; ++i) {
        const std::uint64_t end = random.chance(0.7) ? std::max<std::uint64_t>(popular, i + 1) : experts;
        std::swap(order[i], order[i + random.below(std::max<std::uint64_t>(1, end - i))]);
      }
      for (std::size_t j = 0; j < k; ++j) ids.push_back(random.chance(0.1) ? -1 : order[j]);
      for (std::size_t j = 0; j < world.extra_per_token; ++j) extra.push_back(k + j < experts ? order[k + j] : -1);
    }
    add_rank(world, ids);
    world.extra.back() = extra;
  }
  world.choose(random.next());
  return world;
}

Capacity any_capacity(Overflow policy) {
  return {*rc::gen::inRange<std::uint32_t>(1, 12), policy};
}

std::uint32_t any_limit() {
  return *rc::gen::inRange<std::uint32_t>(1, 40);
}

/// Visits per expert, of one rank.
std::vector<std::uint64_t> visits(const StepWorld& world, const Demand& demand) {
  std::vector<std::uint64_t> result(world.shape.experts, 0);
  for (const Demand::Row& row : demand.rows) ++result[world.sites.sites[row.site].expert];
  return result;
}

}  // namespace

RC_BOOST_PROP(every_visit_has_one_site_and_shares_are_met_to_within_one, ()) {
  const StepWorld world = any_world();
  RC_ASSERT(testing::check_demands(world) == "");
  for (const Demand& demand : world.demands) {
    const std::vector<std::uint64_t> per_expert = visits(world, demand);
    for (std::size_t s = 0; s < world.sites.sites.size(); ++s) {
      const Site& site = world.sites.sites[s];
      const double exact = static_cast<double>(per_expert[site.expert]) * site.share;
      RC_ASSERT(demand.counts[s] > exact - 1.0 - 1e-9);
      RC_ASSERT(demand.counts[s] < exact + 1.0 + 1e-9);
    }
  }
}

RC_BOOST_PROP(plans_of_all_ranks_agree_without_a_capacity, ()) {
  const StepWorld world = any_world();
  RC_ASSERT(testing::check_plans(world, {}, any_limit()) == "");
}

RC_BOOST_PROP(plans_of_all_ranks_agree_when_overflow_waits, ()) {
  const StepWorld world = any_world();
  RC_ASSERT(testing::check_plans(world, any_capacity(Overflow::kWait), any_limit()) == "");
}

RC_BOOST_PROP(plans_of_all_ranks_agree_when_overflow_is_dropped, ()) {
  const StepWorld world = any_world();
  RC_ASSERT(testing::check_plans(world, any_capacity(Overflow::kDrop), any_limit()) == "");
}

RC_BOOST_PROP(replica_overflow_keeps_every_visit_and_uses_all_the_room, ()) {
  StepWorld world = any_world();
  const StepWorld before = world;
  const Capacity capacity = any_capacity(Overflow::kReplica);
  world.settle(capacity);
  RC_ASSERT(testing::check_demands(world) == "");
  const std::uint64_t limit = capacity.tokens_per_replica;
  const std::vector<std::uint64_t> was = before.queues();
  const std::vector<std::uint64_t> is = world.queues();
  for (std::size_t r = 0; r < world.routes.size(); ++r) {
    RC_ASSERT(world.routes[r].ids == before.routes[r].ids);
    RC_ASSERT(world.routes[r].flags == before.routes[r].flags);
    RC_ASSERT(visits(world, world.demands[r]) == visits(before, before.demands[r]));
  }
  for (std::uint32_t e = 0; e < world.shape.experts; ++e) {
    bool overflows = false;
    bool has_room = false;
    for (std::uint32_t s = world.sites.first_site[e]; s < world.sites.first_site[e + 1]; ++s) {
      // Nobody passes the capacity by a move, and nobody who was below it gives anything away.
      RC_ASSERT(is[s] <= std::max(was[s], limit));
      RC_ASSERT(is[s] >= std::min(was[s], limit));
      overflows = overflows || is[s] > limit;
      has_room = has_room || is[s] < limit;
    }
    RC_ASSERT(!(overflows && has_room));
  }
  RC_ASSERT(testing::check_plans(world, capacity, any_limit()) == "");
}

RC_BOOST_PROP(next_overflow_respects_the_room_and_flags_what_it_changed, ()) {
  StepWorld world = any_world();
  const StepWorld before = world;
  const Capacity capacity = any_capacity(Overflow::kNext);
  const std::vector<Settled> settled = world.settle(capacity);
  RC_ASSERT(testing::check_demands(world) == "");
  for (const std::uint64_t rows : world.queues()) RC_ASSERT(rows <= capacity.tokens_per_replica);
  const std::size_t k = world.shape.top_k;
  for (std::size_t r = 0; r < world.routes.size(); ++r) {
    const Routes& is = world.routes[r];
    const Routes& was = before.routes[r];
    std::uint64_t moved = 0;
    std::uint64_t dropped = 0;
    for (std::size_t t = 0; t < is.tokens; ++t) {
      std::set<std::int32_t> used;
      std::uint8_t flags = 0;
      for (std::size_t slot = t * k; slot < (t + 1) * k; ++slot) {
        if (is.ids[slot] >= 0) RC_ASSERT(used.insert(is.ids[slot]).second);
        if (is.ids[slot] == was.ids[slot]) {
          RC_ASSERT(is.weights[slot] == was.weights[slot]);
        } else if (is.ids[slot] == -1) {
          RC_ASSERT(is.weights[slot] == 0.0F);
          flags = static_cast<std::uint8_t>(flags | messages::kTokenDropped);
          ++dropped;
        } else {
          const auto first = world.extra[r].begin() + static_cast<std::ptrdiff_t>(t * world.extra_per_token);
          RC_ASSERT(std::count(first, first + world.extra_per_token, is.ids[slot]) > 0);
          RC_ASSERT(is.weights[slot] == was.weights[slot]);
          flags = static_cast<std::uint8_t>(flags | messages::kTokenRerouted);
          ++moved;
        }
      }
      RC_ASSERT(is.flags[t] == flags);
    }
    RC_ASSERT(moved == settled[r].moved);
    RC_ASSERT(dropped == settled[r].dropped);
  }
  RC_ASSERT(testing::check_plans(world, capacity, any_limit()) == "");
  // What is settled fits: nothing waits but for the rows of a round.
  RC_ASSERT(testing::check_plans(world, {capacity.tokens_per_replica, Overflow::kDrop}, any_limit()) == "");
}

RC_BOOST_PROP(the_same_arguments_give_the_same_plan, ()) {
  StepWorld a = any_world();
  StepWorld b = a;
  const Capacity capacity = any_capacity(Overflow::kNext);
  a.settle(capacity);
  b.settle(capacity);
  for (std::uint32_t r = 0; r < a.sites.ranks; ++r) {
    RC_ASSERT(a.demands[r].rows == b.demands[r].rows);
    const auto x = plan_step(a.sites, a.counts(), Rank{r}, a.demands[r], capacity, 7);
    const auto y = plan_step(b.sites, b.counts(), Rank{r}, b.demands[r], capacity, 7);
    RC_ASSERT(x->rounds.size() == y->rounds.size());
    for (std::size_t i = 0; i < x->rounds.size(); ++i) {
      RC_ASSERT(x->rounds[i].send == y->rounds[i].send);
      RC_ASSERT(x->rounds[i].recv_counts == y->rounds[i].recv_counts);
    }
  }
}

}  // namespace troupe::scheduling
