#define BOOST_TEST_MODULE scheduling_overflow
#include <vector>

#include <boost/test/unit_test.hpp>

#include "scheduling/dispatch.hpp"
#include "tests/scheduling/support.hpp"

namespace troupe::scheduling {
namespace {

using testing::add_rank;
using testing::check_demands;
using testing::check_plans;
using testing::shape_of;
using testing::sites_of;
using testing::StepWorld;
using Ids = std::vector<std::int32_t>;
using Counts = std::vector<std::uint32_t>;
using Queues = std::vector<std::uint64_t>;

const auto per_element = boost::test_tools::per_element();
constexpr std::uint8_t kMoved = messages::kTokenRerouted;
constexpr std::uint8_t kLost = messages::kTokenDropped;

StepWorld world_of(std::uint32_t top_k, const std::vector<std::vector<std::uint32_t>>& holders,
                   const std::vector<Ids>& ids) {
  StepWorld world;
  world.shape = shape_of(static_cast<std::uint32_t>(holders.size()), top_k);
  world.sites = sites_of(static_cast<std::uint32_t>(ids.size()), holders);
  for (const Ids& rank : ids) add_rank(world, rank);
  world.choose();
  return world;
}

/// Further choices, the same number for each token.
void give_choices(StepWorld& world, std::uint32_t each, const std::vector<Ids>& extra) {
  world.extra_per_token = each;
  world.extra = extra;
}

}  // namespace

BOOST_AUTO_TEST_CASE(replica_overflow_fills_the_free_places_of_the_other_replicas) {
  StepWorld world = world_of(1, {{0, 1, 2}}, {Ids(4, 0), Ids(3, 0), {}});
  // As if all rows had gone to the replica on rank 0, but for one on rank 2.
  for (Demand& demand : world.demands) {
    for (Demand::Row& row : demand.rows) row.site = 0;
    demand.counts = {static_cast<std::uint32_t>(demand.rows.size()), 0, 0};
  }
  world.demands[1].rows.back().site = 2;
  world.demands[1].counts = {2, 0, 1};
  const std::vector<Settled> settled = world.settle({3, Overflow::kReplica});
  // Places 3, 4, 5 of site 0 overflow: one row of rank 0, two of rank 1. Free: 3 places of site 1, then 2 of site 2.
  BOOST_TEST(settled[0].moved == 1U);
  BOOST_TEST(settled[1].moved == 2U);
  BOOST_TEST(settled[2].moved == 0U);
  BOOST_TEST(world.queues() == (Queues{3, 3, 1}), per_element);
  BOOST_TEST(world.demands[0].counts == (Counts{3, 1, 0}), per_element);
  BOOST_TEST(world.demands[1].counts == (Counts{0, 2, 1}), per_element);
  BOOST_TEST(check_demands(world) == "");
  BOOST_TEST(check_plans(world, {3, Overflow::kReplica}, 100) == "");
}

BOOST_AUTO_TEST_CASE(replica_overflow_without_room_waits) {
  StepWorld world = world_of(1, {{0, 1}, {0}}, {Ids(9, 0), {0, 1}});
  const Capacity capacity{3, Overflow::kReplica};
  world.settle(capacity);
  BOOST_TEST(world.queues()[0] + world.queues()[1] == 10U);
  BOOST_TEST(world.queues()[0] >= 3U);
  BOOST_TEST(world.queues()[1] >= 3U);
  for (const Routes& routes : world.routes) {
    for (const std::uint8_t flags : routes.flags) BOOST_TEST(flags == messages::kTokenExact);
  }
  BOOST_TEST(check_demands(world) == "");
  BOOST_TEST(check_plans(world, capacity, 100) == "");
}

BOOST_AUTO_TEST_CASE(replica_overflow_never_leaves_its_expert) {
  StepWorld world = world_of(1, {{0}, {1}}, {Ids(5, 0), {}});
  BOOST_TEST(world.settle({2, Overflow::kReplica})[0].moved == 0U);
  BOOST_TEST(world.queues() == (Queues{5, 0}), per_element);
}

BOOST_AUTO_TEST_CASE(next_overflow_takes_the_tokens_first_further_choice_with_room) {
  StepWorld world = world_of(1, {{0}, {0}, {0}}, {{0, 0, 0, 0, 1}});
  world.routes[0].weights = {0.1F, 0.2F, 0.3F, 0.4F, 0.5F};
  give_choices(world, 2, {{1, 2, 1, 2, 1, 2, 1, 2, 0, 2}});
  // Expert 0 takes two; of the two that overflow one finds a place at expert 1 (one is taken), the next at expert 2.
  const std::vector<Settled> settled = world.settle({2, Overflow::kNext});
  BOOST_TEST(settled[0].moved == 2U);
  BOOST_TEST(settled[0].dropped == 0U);
  BOOST_TEST(world.routes[0].ids == (Ids{0, 0, 1, 2, 1}), per_element);
  BOOST_TEST(world.routes[0].weights == (std::vector<float>{0.1F, 0.2F, 0.3F, 0.4F, 0.5F}),
             per_element);  // the slot's own
  BOOST_TEST(world.routes[0].flags == (std::vector<std::uint8_t>{0, 0, kMoved, kMoved, 0}), per_element);
  BOOST_TEST(check_demands(world) == "");
}

BOOST_AUTO_TEST_CASE(next_overflow_never_names_an_expert_twice_in_a_token) {
  // Token 1 has expert 1 already; its further choice 1 is no choice, 2 is.
  StepWorld world = world_of(2, {{0}, {0}, {0}, {0}}, {{0, 3, 0, 1}});
  give_choices(world, 2, {{1, 2, 1, 2}});
  world.settle({1, Overflow::kNext});
  BOOST_TEST(world.routes[0].ids == (Ids{0, 3, 2, 1}), per_element);
  // Both slots of the third token overflow. Expert 2 has room for both, but the second slot may not take it again.
  StepWorld both = world_of(2, {{0}, {0}, {0}, {0}}, {{0, 1, 0, 1, 0, 1}});
  give_choices(both, 1, {{2, 2, 2}});
  both.settle({2, Overflow::kNext});
  BOOST_TEST(both.routes[0].ids == (Ids{0, 1, 0, 1, 2, -1}), per_element);
  BOOST_TEST(both.routes[0].flags == (std::vector<std::uint8_t>{0, 0, kMoved | kLost}), per_element);
}

BOOST_AUTO_TEST_CASE(next_overflow_without_a_choice_is_dropped_and_flagged) {
  StepWorld world = world_of(1, {{0}, {0}}, {{0, 0, 0}});
  give_choices(world, 1, {{-1, -1, 1}});
  const std::vector<Settled> settled = world.settle({1, Overflow::kNext});
  BOOST_TEST(settled[0].moved == 1U);
  BOOST_TEST(settled[0].dropped == 1U);
  BOOST_TEST(world.routes[0].ids == (Ids{0, -1, 1}), per_element);
  BOOST_TEST(world.routes[0].weights == (std::vector<float>{1.0F, 0.0F, 1.0F}), per_element);
  BOOST_TEST(world.routes[0].flags == (std::vector<std::uint8_t>{0, kLost, kMoved}), per_element);
  BOOST_TEST(check_demands(world) == "");
}

BOOST_AUTO_TEST_CASE(next_overflow_of_clients_routes_has_no_choices_and_is_dropped) {
  StepWorld world = world_of(1, {{0}, {1}}, {Ids(3, 0), Ids(3, 0)});
  const std::vector<Settled> settled = world.settle({4, Overflow::kNext});
  BOOST_TEST(settled[0].dropped == 0U);
  BOOST_TEST(settled[1].dropped == 2U);
  BOOST_TEST(world.queues() == (Queues{4, 0}), per_element);
}

BOOST_AUTO_TEST_CASE(ranks_share_the_room_by_their_overflow) {
  // Expert 0 takes 2, both of rank 0's; rank 0 has 2 more, rank 1 has 4. Expert 1 has 6 places: 2 for rank 0 and 4 for
  // rank 1.
  StepWorld world = world_of(1, {{0}, {1}}, {Ids(4, 0), Ids(4, 0)});
  give_choices(world, 1, {Ids(4, 1), Ids(4, 1)});
  const std::vector<Settled> enough = StepWorld(world).settle({6, Overflow::kNext});
  BOOST_TEST(enough[0].moved + enough[1].moved == 2U);
  // With 3 places for 5 overflow rows every place is used.
  const std::vector<Settled> tight = world.settle({3, Overflow::kNext});
  BOOST_TEST(tight[0].moved + tight[1].moved == 3U);
  BOOST_TEST(tight[0].dropped + tight[1].dropped == 2U);
  BOOST_TEST(world.queues() == (Queues{3, 3}), per_element);
}

BOOST_AUTO_TEST_CASE(a_moved_row_takes_the_replica_with_the_most_room) {
  StepWorld world = world_of(1, {{0}, {0, 1}}, {{0, 0, 1}, {}});
  // Expert 1's one row sits on one of its two replicas; the moved row goes to the other.
  give_choices(world, 1, {{1, 1, 0}, {}});
  world.settle({1, Overflow::kNext});
  BOOST_TEST(world.queues() == (Queues{1, 1, 1}), per_element);
}

BOOST_AUTO_TEST_CASE(other_policies_and_counts_that_do_not_fit_settle_nothing) {
  const StepWorld world = world_of(1, {{0, 1}, {1}}, {Ids(5, 0), {1}});
  const auto untouched = [&](const Capacity& capacity, std::vector<std::uint32_t> counts) {
    Routes routes = world.routes[0];
    Demand demand = world.demands[0];
    const Settled settled = settle_overflow(world.sites, counts, Rank{0}, capacity, {}, 0, routes, demand);
    return settled.moved + settled.dropped == 0 && demand.rows == world.demands[0].rows &&
           routes.ids == world.routes[0].ids;
  };
  BOOST_TEST(untouched({1, Overflow::kWait}, world.counts()));
  BOOST_TEST(untouched({1, Overflow::kDrop}, world.counts()));
  BOOST_TEST(untouched({0, Overflow::kNext}, world.counts()));
  BOOST_TEST(!untouched({1, Overflow::kNext}, world.counts()));
  std::vector<std::uint32_t> counts = world.counts();
  counts.pop_back();
  BOOST_TEST(untouched({1, Overflow::kNext}, counts));
  counts = world.counts();
  ++counts[0];
  BOOST_TEST(untouched({1, Overflow::kNext}, counts));
}

}  // namespace troupe::scheduling
