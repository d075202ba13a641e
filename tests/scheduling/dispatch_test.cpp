#define BOOST_TEST_MODULE scheduling_dispatch
#include "scheduling/dispatch.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include <boost/test/unit_test.hpp>

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
using Rows = std::vector<std::uint32_t>;

const auto per_element = boost::test_tools::per_element();

/// `ranks` ranks that bring the same ids, experts as in `holders`.
StepWorld world_of(std::uint32_t top_k, const std::vector<std::vector<std::uint32_t>>& holders,
                   const std::vector<Ids>& ids) {
  StepWorld world;
  world.shape = shape_of(static_cast<std::uint32_t>(holders.size()), top_k);
  world.sites = sites_of(static_cast<std::uint32_t>(ids.size()), holders);
  for (const Ids& rank : ids) add_rank(world, rank);
  world.choose();
  return world;
}

std::size_t rounds_of(const StepWorld& world, const Capacity& capacity, std::uint32_t max_rows) {
  return plan_step(world.sites, world.counts(), Rank{0}, world.demands[0], capacity, max_rows)->rounds.size();
}

std::uint64_t total(const std::vector<std::uint64_t>& values) {
  std::uint64_t sum = 0;
  for (const std::uint64_t value : values) sum += value;
  return sum;
}

}  // namespace

BOOST_AUTO_TEST_CASE(rows_go_to_the_one_replica_in_order_of_site_token_and_k) {
  const StepWorld world = world_of(2, {{0}, {1}, {0}}, {{2, 1, 0, 2}, {}});
  const Demand& demand = world.demands[0];
  BOOST_TEST(demand.counts == (Counts{1, 1, 2}), per_element);
  const std::vector<Demand::Row> expected = {{0, 1, 0}, {1, 0, 1}, {2, 0, 0}, {2, 1, 1}};
  BOOST_TEST((demand.rows == expected));
  BOOST_TEST(world.demands[1].rows.empty());
}

BOOST_AUTO_TEST_CASE(C07_padding_is_not_sent_takes_no_capacity_and_makes_no_heat) {
  // 4 ranks x 64 rows of which 48 are real, k = 2.
  StepWorld world;
  world.shape = shape_of(8, 2);
  world.sites = sites_of(4, {{0}, {0}, {1}, {1}, {2}, {2}, {3}, {3}});
  for (int rank = 0; rank < 4; ++rank) {
    Ids ids(64 * 2, -1);
    for (std::size_t t = 0; t < 48; ++t) {
      ids[t * 2] = static_cast<std::int32_t>(t % 8);
      ids[t * 2 + 1] = static_cast<std::int32_t>((t + 3) % 8);
    }
    add_rank(world, ids);
  }
  world.choose();
  BOOST_TEST(check_demands(world) == "");
  BOOST_TEST(total(world.queues()) == 384U);
  // Each expert has 4 x 12 real visits: a capacity of just that holds them in one round.
  BOOST_TEST(rounds_of(world, {48, Overflow::kWait}, 4096) == 1U);
  BOOST_TEST(check_plans(world, {48, Overflow::kDrop}, 4096) == "");
  const auto plan = plan_step(world.sites, world.counts(), Rank{0}, world.demands[0], {48, Overflow::kDrop}, 4096);
  BOOST_TEST(plan->total_rows == 384U);
  BOOST_TEST(plan->dropped.empty());
}

BOOST_AUTO_TEST_CASE(C10_a_visit_to_an_expert_with_replicas_is_computed_once) {
  const StepWorld one = world_of(1, {{0, 1}}, {{0}, {}});
  BOOST_TEST(check_demands(one) == "");
  BOOST_TEST(total(one.queues()) == 1U);
  BOOST_TEST(check_plans(one, {}, 16) == "");
  for (std::uint64_t number = 0; number < 100; ++number) {
    StepWorld world = world_of(2, {{0, 1, 2}, {1, 2}, {0}}, {{0, 1, 1, 0, 2, 0}, {0, -1}, {}});
    world.choose(number);
    BOOST_TEST(check_demands(world) == "");
    BOOST_TEST(total(world.queues()) == 7U);
    BOOST_TEST(check_plans(world, {}, 16) == "");
  }
}

BOOST_AUTO_TEST_CASE(a_steps_rows_are_split_by_the_shares_to_within_one) {
  LayerSites sites = sites_of(3, {{0, 1, 2}});
  sites.sites[0].share = 0.5;
  sites.sites[1].share = 0.3;
  sites.sites[2].share = 0.2;
  for (std::uint32_t tokens = 0; tokens <= 40; ++tokens) {
    StepWorld world;
    world.shape = shape_of(1, 1);
    world.sites = sites;
    add_rank(world, Ids(tokens, 0));
    for (std::uint64_t number : {0U, 1U, 17U, 1000U}) {
      world.choose(number);
      BOOST_TEST(check_demands(world) == "");
      for (std::size_t s = 0; s < 3; ++s) {
        const double exact = tokens * sites.sites[s].share;
        BOOST_TEST(std::abs(world.demands[0].counts[s] - exact) < 1.0 + 1e-9);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(single_rows_meet_the_shares_over_many_steps) {
  LayerSites sites = sites_of(2, {{0, 1}});
  sites.sites[0].share = 0.7;
  sites.sites[1].share = 0.3;
  StepWorld world;
  world.shape = shape_of(1, 1);
  world.sites = sites;
  add_rank(world, {0});
  std::uint32_t first = 0;
  for (std::uint64_t number = 0; number < 10'000; ++number) {
    world.choose(number);
    first += world.demands[0].counts[0];
  }
  BOOST_TEST(first > 6'990U);
  BOOST_TEST(first < 7'010U);
}

BOOST_AUTO_TEST_CASE(the_choice_of_replicas_depends_on_its_arguments_only) {
  for (std::uint64_t number : {0U, 5U, 123456789U}) {
    StepWorld a = world_of(1, {{0, 1, 2}}, {Ids(9, 0), {}, {}});
    StepWorld b = a;
    a.choose(number);
    b.choose(number);
    BOOST_TEST((a.demands[0].rows == b.demands[0].rows));
  }
}

BOOST_AUTO_TEST_CASE(C12_a_batch_of_padding_alone_plans_an_empty_round) {
  const StepWorld world = world_of(2, {{0}, {1}}, {Ids(8, -1), Ids(8, -1)});
  BOOST_TEST(world.demands[0].rows.empty());
  BOOST_TEST(check_plans(world, {1, Overflow::kWait}, 4) == "");
  const auto plan = plan_step(world.sites, world.counts(), Rank{1}, world.demands[1], {}, 4);
  BOOST_TEST(plan->rounds.size() == 1U);
  BOOST_TEST(plan->total_rows == 0U);
}

BOOST_AUTO_TEST_CASE(C15_a_rank_without_tokens_takes_part_in_as_many_rounds) {
  for (const std::vector<Ids>& ids : {std::vector<Ids>{{0, 1}, {1, 1, 0}, {}, {0}}, std::vector<Ids>{{}, {}, {}, {}},
                                      std::vector<Ids>{{}, {}, {}, {1}}}) {
    const StepWorld world = world_of(1, {{0, 2}, {3}}, ids);
    for (std::uint32_t max_rows : {1U, 2U, 16U}) BOOST_TEST(check_plans(world, {1, Overflow::kWait}, max_rows) == "");
  }
}

BOOST_AUTO_TEST_CASE(C18_one_row_more_than_the_limit_makes_a_second_round_on_all_ranks) {
  const StepWorld fits = world_of(1, {{0}, {1}}, {Ids(128, 0), {}});
  BOOST_TEST(rounds_of(fits, {}, 128) == 1U);
  BOOST_TEST(check_plans(fits, {}, 128) == "");
  const StepWorld more = world_of(1, {{0}, {1}}, {Ids(129, 0), {}});
  BOOST_TEST(check_plans(more, {}, 128) == "");
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    const auto plan = plan_step(more.sites, more.counts(), Rank{rank}, more.demands[rank], {}, 128);
    BOOST_REQUIRE(plan->rounds.size() == 2U);
    BOOST_TEST(plan->rounds[0].send[0].size() == (rank == 0 ? 128U : 0U));
    BOOST_TEST(plan->rounds[1].send[0].size() == (rank == 0 ? 1U : 0U));
    BOOST_TEST(plan->total_rows == 129U);
  }
}

BOOST_AUTO_TEST_CASE(overflow_waits_for_later_rounds_and_loses_nothing) {
  const StepWorld world = world_of(1, {{0}, {0}, {1}}, {Ids(5, 0), {0, 0, 1, 2}});
  const Capacity capacity{3, Overflow::kWait};
  BOOST_TEST(check_plans(world, capacity, 100) == "");
  const auto plan = plan_step(world.sites, world.counts(), Rank{0}, world.demands[0], capacity, 100);
  BOOST_REQUIRE(plan->rounds.size() == 3U);  // 7 rows of expert 0
  // Dealt like cards: places 0..4 are rank 0's.
  BOOST_TEST(plan->rounds[0].send[0] == (Rows{0, 3}), per_element);
  BOOST_TEST(plan->rounds[1].send[0] == (Rows{1, 4}), per_element);
  BOOST_TEST(plan->rounds[2].send[0] == (Rows{2}), per_element);
  // The expert within its capacity stays whole, in the first round.
  BOOST_TEST(plan->rounds[0].recv_counts == (Counts{2, 0, 1, 1}), per_element);
  BOOST_TEST(plan->rounds[1].recv_counts == (Counts{2, 0, 0, 0}), per_element);
  BOOST_TEST(plan->rounds[2].recv_counts == (Counts{1, 0, 1, 0}), per_element);
}

BOOST_AUTO_TEST_CASE(overflow_is_dropped_by_rank_then_by_row) {
  const StepWorld world = world_of(1, {{0}, {1}}, {{0, 1, 0}, {0, 0, 1, 1}});
  const Capacity capacity{3, Overflow::kDrop};
  BOOST_TEST(check_plans(world, capacity, 100) == "");
  const auto first = plan_step(world.sites, world.counts(), Rank{0}, world.demands[0], capacity, 100);
  const auto second = plan_step(world.sites, world.counts(), Rank{1}, world.demands[1], capacity, 100);
  BOOST_TEST(first->dropped.empty());
  BOOST_TEST(second->dropped == (Rows{1}), per_element);  // its second row to expert 0
  BOOST_TEST(first->rounds.size() == 1U);
  BOOST_TEST(first->total_rows == 6U);
  BOOST_TEST(first->rows_per_rank == (std::vector<std::uint64_t>{3, 3}), per_element);
}

BOOST_AUTO_TEST_CASE(both_limits_together_cost_no_more_rounds_than_the_stricter) {
  // 12 rows on rank 0 at most 4 a round, of which 6 to one expert at most 2 a round: 3 rounds.
  const StepWorld world = world_of(1, {{0}, {0}, {0}, {0}}, {{0, 0, 0, 0, 0, 0, 1, 1, 2, 2, 3, 3}});
  BOOST_TEST(rounds_of(world, {2, Overflow::kWait}, 4) == 3U);
  BOOST_TEST(check_plans(world, {2, Overflow::kWait}, 4) == "");
}

BOOST_AUTO_TEST_CASE(arguments_that_do_not_fit_are_refused) {
  const StepWorld world = world_of(1, {{0}, {1}}, {{0, 1, 1}, {1}});
  const Counts counts = world.counts();
  const auto code = [&](std::span<const std::uint32_t> c, std::uint32_t self, const Demand& demand,
                        std::uint32_t max_rows) {
    const auto plan = plan_step(world.sites, c, Rank{self}, demand, {}, max_rows);
    return plan ? std::string("planned") : std::string(to_string(plan.error().code));
  };
  BOOST_TEST(code(counts, 0, world.demands[0], 8) == "planned");
  BOOST_TEST(code(counts, 1, world.demands[0], 8) == "bad_input");  // another rank's demand
  BOOST_TEST(code(counts, 2, world.demands[0], 8) == "bad_input");
  BOOST_TEST(code(counts, 0, world.demands[0], 0) == "bad_input");
  BOOST_TEST(code(std::span(counts).first(3), 0, world.demands[0], 8) == "bad_input");
  Demand broken = world.demands[0];
  broken.rows.pop_back();
  BOOST_TEST(code(counts, 0, broken, 8) == "bad_input");
  broken = world.demands[0];
  broken.counts.pop_back();
  BOOST_TEST(code(counts, 0, broken, 8) == "bad_input");
}

BOOST_AUTO_TEST_CASE(counts_that_no_honest_rank_sends_are_refused_by_every_rank) {
  const StepWorld world = world_of(1, {{0}, {1}}, {{0}, {1}});
  Counts counts = world.counts();
  counts[2] = std::numeric_limits<std::uint32_t>::max();  // rank 1, site 0
  const auto plan = plan_step(world.sites, counts, Rank{0}, world.demands[0], {}, 1);
  BOOST_REQUIRE(!plan.has_value());
  BOOST_TEST(to_string(plan.error().code) == "limit");
  BOOST_TEST((plan.error().message.find("rank 0 would take 4294967296 rounds") != std::string::npos),
             plan.error().message);
  BOOST_TEST((plan.error().message.find("max_rows_per_round = 1") != std::string::npos), plan.error().message);
}

BOOST_AUTO_TEST_CASE(policies_have_the_names_of_the_config) {
  BOOST_TEST(to_string(Overflow::kWait) == "wait");
  BOOST_TEST(to_string(Overflow::kDrop) == "drop");
  BOOST_TEST(to_string(Overflow::kNext) == "next");
  BOOST_TEST(to_string(Overflow::kReplica) == "replica");
}

BOOST_AUTO_TEST_CASE(load_is_checked_against_the_mean) {
  struct Row {
    std::vector<std::uint64_t> loads;
    double imbalance;
    std::uint32_t busiest;
    bool over;
  };
  const std::vector<Row> table = {
      {{}, 1.0, 0, false},
      {{0, 0, 0}, 1.0, 0, false},
      {{5, 5}, 1.0, 0, false},
      {{6, 2}, 1.5, 0, false},  // at the threshold is not over it
      {{2, 8}, 1.6, 1, true},
      {{0, 0, 9}, 3.0, 2, true},
      {{std::numeric_limits<std::uint64_t>::max(), std::numeric_limits<std::uint64_t>::max()}, 1.0, 0, false},
  };
  for (const Row& row : table) {
    const LoadCheck check = check_load(row.loads);
    BOOST_TEST(check.imbalance == row.imbalance);
    BOOST_TEST(check.busiest == row.busiest);
    BOOST_TEST(check.over == row.over);
  }
  BOOST_TEST(check_load(std::vector<std::uint64_t>{6, 2}, 1.4).over);
}

}  // namespace troupe::scheduling
