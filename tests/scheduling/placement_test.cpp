#define BOOST_TEST_MODULE scheduling_placement
#include "scheduling/placement.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include <boost/test/unit_test.hpp>

#include "tests/scheduling/support.hpp"

namespace troupe::scheduling {
namespace {

using testing::gpus_of;
using testing::shape_of;

GpuId gpu(std::uint16_t node, std::uint16_t number = 0) {
  return {NodeId{node}, number};
}

Replica replica(std::uint32_t expert, std::uint16_t node, std::uint32_t slot, double share = 1.0,
                std::uint32_t layer = 0) {
  return {ExpertId{layer, expert}, gpu(node), slot, share};
}

/// How many experts of a layer each GPU holds.
std::vector<std::size_t> held(const Placement& placement, const std::vector<GpuSlots>& gpus, std::uint32_t layer) {
  std::vector<std::size_t> counts(gpus.size(), 0);
  for (const Replica& r : placement.replicas) {
    if (r.expert.layer == layer) ++counts[r.gpu.node.value];
  }
  return counts;
}

void expect_refused(const ModelShape& shape, const std::vector<GpuSlots>& gpus, const Placement& placement,
                    ErrorCode code, const std::vector<std::string>& words) {
  const Placement before = placement;
  const auto result = check_placement(shape, gpus, placement);
  BOOST_REQUIRE(!result.has_value());
  BOOST_TEST(to_string(result.error().code) == to_string(code));
  for (const std::string& word : words) {
    BOOST_TEST((result.error().message.find(word) != std::string::npos),
               "\"" << result.error().message << "\" does not say " << word);
  }
  // By bits: a NaN share does not equal itself.
  const auto same = [](const Replica& a, const Replica& b) {
    return a.expert == b.expert && a.gpu == b.gpu && a.slot == b.slot &&
           std::bit_cast<std::uint64_t>(a.share) == std::bit_cast<std::uint64_t>(b.share);
  };
  BOOST_TEST((placement.epoch == before.epoch));
  BOOST_TEST(std::equal(placement.replicas.begin(), placement.replicas.end(), before.replicas.begin(),
                        before.replicas.end(), same));
}

}  // namespace

BOOST_AUTO_TEST_CASE(C01_two_replicas_of_one_expert_on_one_gpu_are_refused_and_change_nothing) {
  const ModelShape shape = shape_of(3, 1);
  const std::vector<std::uint32_t> slots = {2, 2};
  const auto gpus = gpus_of(slots);
  const Placement pair{Epoch{2}, {replica(0, 0, 0, 0.5), replica(0, 0, 1, 0.5), replica(1, 1, 0), replica(2, 1, 1)}};
  expect_refused(shape, gpus, pair, ErrorCode::kBadInput, {"layer 0, expert 0", "GPU 0/0", "another GPU"});
  const Placement good{Epoch{2}, {replica(0, 0, 0, 0.5), replica(0, 1, 1, 0.5), replica(1, 1, 0), replica(2, 0, 1)}};
  BOOST_TEST(check_placement(shape, gpus, good).has_value());
}

BOOST_AUTO_TEST_CASE(C01_a_planner_never_puts_an_expert_twice_on_a_gpu) {
  const std::vector<std::uint32_t> slots = {2, 2};
  for (const UniformOrder order : {UniformOrder::kContiguous, UniformOrder::kRoundRobin}) {
    const auto gpus = gpus_of(slots);
    const auto plan = plan_uniform(shape_of(3, 1, 5), gpus, order, Epoch{1});
    BOOST_REQUIRE(plan.has_value());
    std::set<std::pair<ExpertId, GpuId>> seen;
    for (const Replica& r : plan->replicas) BOOST_TEST(seen.emplace(r.expert, r.gpu).second);
    BOOST_TEST(check_placement(shape_of(3, 1, 5), gpus, *plan).has_value());
  }
}

BOOST_AUTO_TEST_CASE(a_placement_with_any_fault_is_refused_by_name) {
  const ModelShape shape = shape_of(2, 1, 2);
  const std::vector<std::uint32_t> slots = {2, 2};
  const auto gpus = gpus_of(slots);
  const std::vector<Replica> good = {replica(0, 0, 0), replica(1, 1, 0), replica(0, 0, 0, 1.0, 1),
                                     replica(1, 1, 0, 1.0, 1)};
  BOOST_REQUIRE(check_placement(shape, gpus, {Epoch{1}, good}).has_value());
  const auto with = [&](std::size_t at, Replica r) {
    Placement placement{Epoch{1}, good};
    placement.replicas[at] = r;
    return placement;
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  expect_refused(shape, gpus, with(1, replica(0, 1, 0)), ErrorCode::kBadInput,
                 {"layer 0, expert 0", "2.0", "not to 1"});
  expect_refused(shape, gpus, with(1, replica(1, 0, 0)), ErrorCode::kBadInput,
                 {"layer 0, slot 0", "GPU 0/0", "0 and 1"});
  expect_refused(shape, gpus, with(1, replica(1, 1, 2)), ErrorCode::kBadInput,
                 {"layer 0, expert 1", "GPU 1/0", "slot 2"});
  expect_refused(shape, gpus, with(1, replica(1, 7, 0)), ErrorCode::kBadInput, {"GPU 7/0", "no such GPU"});
  expect_refused(shape, gpus, with(1, replica(2, 1, 0)), ErrorCode::kBadInput, {"layer 0, expert 2", "2 experts"});
  expect_refused(shape, gpus, with(1, replica(1, 1, 0, 1.0, 2)), ErrorCode::kBadInput,
                 {"layer 2, expert 1", "2 layers"});
  expect_refused(shape, gpus, with(3, replica(1, 1, 0, 0.9, 1)), ErrorCode::kBadInput, {"layer 1, expert 1", "0.9"});
  expect_refused(shape, gpus, with(3, replica(1, 1, 0, 0.0, 1)), ErrorCode::kBadInput, {"layer 1, expert 1", "share"});
  expect_refused(shape, gpus, with(3, replica(1, 1, 0, -1.0, 1)), ErrorCode::kBadInput, {"layer 1, expert 1", "share"});
  expect_refused(shape, gpus, with(3, replica(1, 1, 0, nan, 1)), ErrorCode::kBadInput, {"layer 1, expert 1", "share"});
  expect_refused(shape, gpus, with(3, replica(1, 1, 0, inf, 1)), ErrorCode::kBadInput, {"layer 1, expert 1", "share"});
  Placement missing{Epoch{1}, good};
  missing.replicas.erase(missing.replicas.begin() + 2);
  expect_refused(shape, gpus, missing, ErrorCode::kBadInput, {"layer 1, expert 0", "no replica"});
  expect_refused(shape, gpus, {Epoch{1}, {}}, ErrorCode::kBadInput, {"layer 0, expert 0", "no replica"});
  const std::vector<std::uint32_t> few = {1, 0};
  expect_refused(shape, gpus_of(few), {Epoch{1}, good}, ErrorCode::kSlotsTooFew,
                 {"placement.slots_per_gpu", "at least 1"});
  expect_refused(shape, {}, {Epoch{1}, good}, ErrorCode::kBadInput, {"no GPU"});
  expect_refused(shape, {gpus[0], gpus[0]}, {Epoch{1}, good}, ErrorCode::kBadInput, {"GPU 0/0", "twice"});
}

BOOST_AUTO_TEST_CASE(the_order_of_a_placements_replicas_does_not_matter) {
  const ModelShape shape = shape_of(3, 1);
  const std::vector<std::uint32_t> slots = {2, 2};
  std::vector<Replica> replicas = {replica(2, 1, 1), replica(0, 1, 0, 0.25), replica(1, 0, 1), replica(0, 0, 0, 0.75)};
  BOOST_TEST(check_placement(shape, gpus_of(slots), {Epoch{1}, replicas}).has_value());
  const auto placement = from_message({Epoch{1}, View{1}, replicas});
  BOOST_REQUIRE(placement.has_value());
  BOOST_TEST((placement->replicas == std::vector<Replica>{replica(0, 0, 0, 0.75), replica(0, 1, 0, 0.25),
                                                          replica(1, 0, 1), replica(2, 1, 1)}));
}

BOOST_AUTO_TEST_CASE(C02_counts_that_do_not_divide_are_spread_to_within_one) {
  struct Row {
    std::uint32_t experts;
    std::vector<std::uint32_t> slots;
    std::vector<std::size_t> contiguous;   // of layer 0
    std::vector<std::size_t> round_robin;  // of layer 0
  };
  const std::vector<Row> table = {
      {256, {86, 86, 86}, {85, 85, 86}, {86, 85, 85}},
      {8, {3, 3, 3}, {2, 3, 3}, {3, 3, 2}},
      {8, {8, 8, 8}, {2, 3, 3}, {3, 3, 2}},  // spare slots stay spare
      {8, {2, 2, 2, 2}, {2, 2, 2, 2}, {2, 2, 2, 2}},
      {8, {2, 6}, {2, 6}, {2, 6}},   // full to the last slot
      {8, {4, 12}, {2, 6}, {4, 4}},  // in proportion / as equal as can be
      {6, {1, 1, 8}, {0, 1, 5}, {1, 1, 4}},
      {2, {1, 1, 1, 1}, {0, 1, 0, 1}, {1, 1, 0, 0}},  // more GPUs than experts
      {3, {0, 3}, {0, 3}, {0, 3}},
      {1, {1}, {1}, {1}},
  };
  for (const Row& row : table) {
    const auto gpus = gpus_of(row.slots);
    for (const UniformOrder order : {UniformOrder::kContiguous, UniformOrder::kRoundRobin}) {
      const ModelShape shape = shape_of(row.experts, 1, 7);
      const auto plan = plan_uniform(shape, gpus, order, Epoch{4});
      BOOST_REQUIRE(plan.has_value());
      BOOST_TEST(plan->epoch.value == 4U);
      const auto& expected = order == UniformOrder::kContiguous ? row.contiguous : row.round_robin;
      BOOST_TEST(held(*plan, gpus, 0) == expected, boost::test_tools::per_element());
      const auto valid = check_placement(shape, gpus, *plan);
      BOOST_TEST(valid.has_value(), (valid ? "" : valid.error().message));
    }
  }
}

BOOST_AUTO_TEST_CASE(contiguous_and_round_robin_deal_as_their_names_say) {
  const std::vector<std::uint32_t> slots = {4, 4};
  const auto gpus = gpus_of(slots);
  const auto contiguous = plan_uniform(shape_of(8, 1, 2), gpus, UniformOrder::kContiguous, Epoch{1});
  const auto round_robin = plan_uniform(shape_of(8, 1, 2), gpus, UniformOrder::kRoundRobin, Epoch{1});
  for (std::size_t i = 0; i < 16; ++i) {
    const auto expert = static_cast<std::uint32_t>(i % 8);
    BOOST_TEST(contiguous->replicas[i].gpu.node.value == expert / 4);
    BOOST_TEST(contiguous->replicas[i].slot == expert % 4);
    BOOST_TEST(round_robin->replicas[i].gpu.node.value == expert % 2);
    BOOST_TEST(round_robin->replicas[i].slot == expert / 2);
  }
}

BOOST_AUTO_TEST_CASE(C02_over_the_layers_gpus_hold_about_equal_numbers) {
  struct Row {
    std::uint32_t experts;
    std::uint32_t gpus;
    std::uint32_t layers;
  };
  for (const Row row : {Row{8, 3, 30}, Row{256, 3, 3}, Row{2, 4, 8}, Row{1, 5, 40}, Row{7, 6, 31}}) {
    const std::vector<std::uint32_t> slots(row.gpus, row.experts);
    const auto gpus = gpus_of(slots);
    for (const UniformOrder order : {UniformOrder::kContiguous, UniformOrder::kRoundRobin}) {
      const auto plan = plan_uniform(shape_of(row.experts, 1, row.layers), gpus, order, Epoch{1});
      std::vector<std::size_t> total(row.gpus, 0);
      for (const Replica& r : plan->replicas) ++total[r.gpu.node.value];
      const auto [least, most] = std::minmax_element(total.begin(), total.end());
      BOOST_TEST(*most - *least <= 2U,
                 row.experts << " experts on " << row.gpus << " GPUs: " << *least << " to " << *most);
    }
  }
}

BOOST_AUTO_TEST_CASE(C02_slots_below_the_experts_are_refused_with_the_nearest_number_that_does) {
  const std::vector<std::uint32_t> slots = {2, 2, 2};
  const auto plan = plan_uniform(shape_of(8, 1), gpus_of(slots), UniformOrder::kContiguous, Epoch{1});
  BOOST_REQUIRE(!plan.has_value());
  BOOST_TEST(to_string(plan.error().code) == "slots_too_few");
  BOOST_TEST(plan.error().message ==
             "placement.slots_per_gpu: the 6 slots per layer of 3 GPUs hold 6 of 8 experts; set at least 3 per GPU");
  const std::vector<std::uint32_t> nearest = {3, 3, 3};
  BOOST_TEST(plan_uniform(shape_of(8, 1), gpus_of(nearest), UniformOrder::kContiguous, Epoch{1}).has_value());
  BOOST_TEST(to_string(check_slots(shape_of(8, 1), gpus_of(slots)).error().code) == "slots_too_few");
}

BOOST_AUTO_TEST_CASE(C02_what_cannot_be_planned_is_refused) {
  const std::vector<std::uint32_t> slots = {8, 8};
  const auto gpus = gpus_of(slots);
  const auto code = [](const Result<Placement>& plan) {
    return plan ? std::string("planned") : std::string(to_string(plan.error().code));
  };
  BOOST_TEST(code(plan_uniform(shape_of(8, 1), {}, UniformOrder::kContiguous, Epoch{1})) == "bad_input");
  BOOST_TEST(code(plan_uniform(shape_of(0, 1), gpus, UniformOrder::kContiguous, Epoch{1})) == "bad_input");
  BOOST_TEST(code(plan_uniform(shape_of(8, 1, 0), gpus, UniformOrder::kRoundRobin, Epoch{1})) == "bad_input");
  BOOST_TEST(code(plan_uniform(shape_of(8, 1), std::vector<GpuSlots>{gpus[0], gpus[0]}, UniformOrder::kRoundRobin,
                               Epoch{1})) == "bad_input");
  const std::vector<std::uint32_t> boundless(3, std::numeric_limits<std::uint32_t>::max());
  BOOST_TEST(code(plan_uniform(shape_of(4'000'000'000U, 1, 4'000'000'000U), gpus_of(boundless),
                               UniformOrder::kContiguous, Epoch{1})) == "limit");
  BOOST_TEST(code(plan_uniform(shape_of(8, 1), gpus_of(boundless), UniformOrder::kContiguous, Epoch{1})) == "planned");
}

BOOST_AUTO_TEST_CASE(ranks_are_the_gpus_of_the_members_in_order) {
  messages::ViewPublished view;
  view.members.resize(2);
  view.members[0].node_id = NodeId{4};
  view.members[0].gpus.resize(2);
  view.members[1].node_id = NodeId{1};
  view.members[1].gpus.resize(3);
  const std::vector<RankPlace> ranks = ranks_of(view);
  const std::vector<GpuId> expected = {gpu(4, 0), gpu(4, 1), gpu(1, 0), gpu(1, 1), gpu(1, 2)};
  BOOST_REQUIRE(ranks.size() == expected.size());
  for (std::size_t r = 0; r < ranks.size(); ++r) BOOST_TEST((ranks[r].gpu == expected[r]));
}

BOOST_AUTO_TEST_CASE(a_resolved_layer_is_sorted_by_expert_then_rank) {
  // Node 1 is rank 0 in this view, node 0 is rank 1.
  const std::vector<RankPlace> ranks = {{gpu(1)}, {gpu(0)}};
  const Placement placement{Epoch{1},
                            {replica(0, 0, 0, 0.25), replica(0, 1, 1, 0.75), replica(1, 0, 1), replica(2, 1, 0)}};
  const auto layers = resolve(shape_of(3, 1), placement, ranks);
  BOOST_REQUIRE(layers.has_value());
  BOOST_REQUIRE(layers->size() == 1U);
  const LayerSites& layer = layers->front();
  BOOST_TEST(layer.ranks == 2U);
  BOOST_TEST(layer.first_site == (std::vector<std::uint32_t>{0, 2, 3, 4}), boost::test_tools::per_element());
  BOOST_REQUIRE(layer.sites.size() == 4U);
  BOOST_TEST((layer.sites[0].rank == Rank{0} && layer.sites[0].slot == 1 && layer.sites[0].share == 0.75));
  BOOST_TEST((layer.sites[1].rank == Rank{1} && layer.sites[1].slot == 0 && layer.sites[1].share == 0.25));
  BOOST_TEST((layer.sites[2].expert == 1 && layer.sites[2].rank == Rank{1}));
  BOOST_TEST((layer.sites[3].expert == 2 && layer.sites[3].rank == Rank{0}));
  BOOST_TEST(layer.on_rank[0] == (std::vector<std::uint32_t>{0, 3}), boost::test_tools::per_element());
  BOOST_TEST(layer.on_rank[1] == (std::vector<std::uint32_t>{1, 2}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(replicas_outside_the_view_leave_their_share_to_the_others) {
  const Placement placement{Epoch{1}, {replica(0, 0, 0, 0.2), replica(0, 1, 0, 0.2), replica(0, 2, 0, 0.6)}};
  const std::vector<RankPlace> ranks = {{gpu(0)}, {gpu(2)}};
  const auto layers = resolve(shape_of(1, 1), placement, ranks);
  BOOST_REQUIRE(layers.has_value());
  BOOST_REQUIRE(layers->front().sites.size() == 2U);
  BOOST_TEST(std::abs(layers->front().sites[0].share - 0.25) < 1e-12);
  BOOST_TEST(std::abs(layers->front().sites[1].share - 0.75) < 1e-12);
}

BOOST_AUTO_TEST_CASE(an_expert_without_a_gpu_in_the_view_is_unavailable_by_name) {
  const Placement placement{Epoch{6},
                            {replica(0, 0, 0), replica(1, 1, 0), replica(0, 0, 0, 1.0, 1), replica(1, 1, 0, 1.0, 1)}};
  const std::vector<RankPlace> ranks = {{gpu(0)}};
  const auto layers = resolve(shape_of(2, 1, 2), placement, ranks);
  BOOST_REQUIRE(!layers.has_value());
  BOOST_TEST(to_string(layers.error().code) == "unavailable");
  BOOST_TEST((layers.error().message.find("0:1, 1:1") != std::string::npos), layers.error().message);
}

BOOST_AUTO_TEST_CASE(resolve_refuses_what_is_not_of_the_model_or_the_view) {
  const std::vector<RankPlace> ranks = {{gpu(0)}, {gpu(1)}};
  const std::vector<RankPlace> twice = {{gpu(0)}, {gpu(0)}};
  const Placement good{Epoch{1}, {replica(0, 0, 0)}};
  const auto code = [](const Result<std::vector<LayerSites>>& r) {
    return r ? std::string("resolved") : std::string(to_string(r.error().code));
  };
  BOOST_TEST(code(resolve(shape_of(1, 1), good, ranks)) == "resolved");
  BOOST_TEST(code(resolve(shape_of(1, 1), good, twice)) == "bad_input");
  BOOST_TEST(code(resolve(shape_of(1, 1), {Epoch{1}, {replica(0, 0, 0), replica(1, 0, 1)}}, ranks)) == "bad_input");
  BOOST_TEST(code(resolve(shape_of(1, 1), {Epoch{1}, {replica(0, 0, 0), replica(0, 0, 0, 1.0, 1)}}, ranks)) ==
             "bad_input");
  BOOST_TEST(code(resolve(shape_of(1, 1), {Epoch{1}, {replica(0, 0, 0, -1.0)}}, ranks)) == "bad_input");
  BOOST_TEST(code(resolve(shape_of(1, 1), good, {})) == "unavailable");
}

BOOST_AUTO_TEST_CASE(a_placement_survives_its_message) {
  const std::vector<std::uint32_t> slots = {3, 3, 3};
  const auto plan = plan_uniform(shape_of(8, 1, 3), gpus_of(slots), UniformOrder::kRoundRobin, Epoch{5});
  const auto back = from_message(to_message(*plan, View{2}));
  BOOST_REQUIRE(back.has_value());
  BOOST_TEST((back->epoch == plan->epoch));
  BOOST_TEST((back->replicas == plan->replicas));
  BOOST_TEST(to_message(*plan, View{2}).view.value == 2U);
}

BOOST_AUTO_TEST_CASE(a_placement_message_with_faults_is_refused) {
  const auto code = [](std::uint64_t epoch, std::vector<Replica> replicas) {
    const auto result = from_message({Epoch{epoch}, View{1}, std::move(replicas)});
    return result ? std::string("taken") : std::string(to_string(result.error().code));
  };
  BOOST_TEST(code(1, {replica(0, 0, 0)}) == "taken");
  BOOST_TEST(code(0, {replica(0, 0, 0)}) == "bad_input");
  BOOST_TEST(code(1, {replica(0, 0, 0, 0.5), replica(0, 0, 1, 0.5)}) == "bad_input");
  BOOST_TEST(code(1, {replica(0, 0, 0), replica(1, 0, 0)}) == "bad_input");
  BOOST_TEST(code(1, {replica(0, 0, 0, std::numeric_limits<double>::quiet_NaN())}) == "bad_input");
  BOOST_TEST(code(1, std::vector<Replica>(kMaxReplicas + 1, replica(0, 0, 0))) == "limit");
}

}  // namespace troupe::scheduling
