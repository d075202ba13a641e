#define BOOST_TEST_MODULE scheduling_gate
#include "scheduling/gate.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

#include <boost/test/unit_test.hpp>

#include "tests/scheduling/support.hpp"

namespace troupe::scheduling {
namespace {

using testing::Random;
using Ids = std::vector<std::int32_t>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr GateKind kKinds[] = {GateKind::kSoftmaxTopK, GateKind::kSoftmaxTopKRenorm, GateKind::kTopKSoftmax,
                               GateKind::kSigmoidGroup};

ModelShape gate_shape(GateKind kind, std::uint32_t experts, std::uint32_t top_k) {
  ModelShape shape = testing::shape_of(experts, top_k);
  shape.gate = kind;
  if (kind == GateKind::kSigmoidGroup) {
    shape.groups = 4;
    shape.top_groups = 2;
    shape.routed_scale = 2.5F;
  }
  return shape;
}

std::vector<float> random_floats(Random& random, std::size_t size, float low, float high) {
  std::vector<float> values(size);
  for (float& value : values) value = random.uniform(low, high);
  return values;
}

std::vector<float> slice(const std::vector<float>& values, std::size_t first, std::size_t count) {
  return {values.begin() + static_cast<std::ptrdiff_t>(first),
          values.begin() + static_cast<std::ptrdiff_t>(first + count)};
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](float x, float y) {
           return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
         });
}

/// The gate written the plain way, in double.
struct Plain {
  Ids ids;
  std::vector<double> weights;
};
Plain plain_gate(const ModelShape& shape, const std::vector<float>& logits, const std::vector<float>& bias) {
  std::vector<double> score(logits.begin(), logits.end());
  std::vector<double> value(shape.experts);
  std::vector<std::int32_t> order(shape.experts);
  std::iota(order.begin(), order.end(), 0);
  const auto at = [](std::int32_t e) { return static_cast<std::size_t>(e); };
  if (shape.gate == GateKind::kSigmoidGroup) {
    const std::size_t per_group = shape.experts / shape.groups;
    std::vector<double> group_score(shape.groups);
    for (std::size_t e = 0; e < value.size(); ++e) {
      value[e] = 1.0 / (1.0 + std::exp(-static_cast<double>(logits[e])));
      score[e] = value[e] + bias[e];
    }
    for (std::size_t g = 0; g < shape.groups; ++g) {
      std::vector<double> group(score.begin() + static_cast<std::ptrdiff_t>(g * per_group),
                                score.begin() + static_cast<std::ptrdiff_t>((g + 1) * per_group));
      std::sort(group.rbegin(), group.rend());
      group_score[g] = group[0] + (per_group > 1 ? group[1] : 0.0);
    }
    std::vector<std::size_t> groups(shape.groups);
    std::iota(groups.begin(), groups.end(), std::size_t{0});
    std::stable_sort(groups.begin(), groups.end(),
                     [&](std::size_t a, std::size_t b) { return group_score[a] > group_score[b]; });
    groups.resize(shape.top_groups);
    std::erase_if(order, [&](std::int32_t e) {
      return std::find(groups.begin(), groups.end(), at(e) / per_group) == groups.end();
    });
  } else {
    double sum = 0;
    for (std::size_t e = 0; e < value.size(); ++e) sum += value[e] = std::exp(static_cast<double>(logits[e]));
    for (double& v : value) v /= sum;
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int32_t a, std::int32_t b) { return score[at(a)] > score[at(b)]; });
  order.resize(shape.top_k);
  Plain plain{order, {}};
  double sum = 0;
  for (const std::int32_t e : order) sum += value[at(e)];
  for (const std::int32_t e : order)
    plain.weights.push_back(value[at(e)] / (shape.gate == GateKind::kSoftmaxTopK ? 1.0 : sum) * shape.routed_scale);
  return plain;
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_kind_of_gate_is_what_its_name_says) {
  Random random(testing::seed_or(1));
  for (const GateKind kind : kKinds) {
    for (int round = 0; round < 200; ++round) {
      const ModelShape shape = gate_shape(kind, 32, 6);
      const std::vector<float> logits = random_floats(random, 32, -8.0F, 8.0F);
      const std::vector<float> bias = random_floats(random, 32, -0.1F, 0.1F);
      const Routes routes = route_by_gate(shape, 1, logits, bias);
      const Plain plain = plain_gate(shape, logits, bias);
      BOOST_REQUIRE(routes.ids == plain.ids);
      for (std::size_t j = 0; j < plain.weights.size(); ++j) {
        BOOST_REQUIRE_SMALL(static_cast<double>(routes.weights[j]) - plain.weights[j], 1e-5);
      }
      BOOST_REQUIRE(routes.flags[0] == messages::kTokenExact);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_token_has_the_same_bits_alone_and_in_any_batch) {
  Random random(testing::seed_or(2));
  for (const GateKind kind : kKinds) {
    const ModelShape shape = gate_shape(kind, 64, 4);
    const std::vector<float> bias = random_floats(random, 64, -0.1F, 0.1F);
    std::vector<float> logits = random_floats(random, 40 * 64, -20.0F, 20.0F);
    logits[5 * 64 + 3] = kNan;  // a sick neighbour changes nothing
    Ids extra;
    const Routes together = route_by_gate(shape, 40, logits, bias, 5, &extra);
    for (std::size_t t = 0; t < 40; ++t) {
      Ids one_extra;
      const Routes alone = route_by_gate(shape, 1, slice(logits, t * 64, 64), bias, 5, &one_extra);
      BOOST_REQUIRE(
          std::equal(alone.ids.begin(), alone.ids.end(), together.ids.begin() + static_cast<std::ptrdiff_t>(t * 4)));
      BOOST_REQUIRE(same_bits(alone.weights, slice(together.weights, t * 4, 4)));
      BOOST_REQUIRE(std::equal(one_extra.begin(), one_extra.end(), extra.begin() + static_cast<std::ptrdiff_t>(t * 5)));
    }
  }
}

BOOST_AUTO_TEST_CASE(the_bits_are_those_of_every_machine) {
  Random random(7);
  const auto exact = [&](float unit) { return (static_cast<float>(random.below(4096)) - 2048.0F) * unit; };
  std::vector<float> logits(std::size_t{16} * 64);
  std::vector<float> bias(64);
  for (float& x : logits) x = exact(0x1.0p-8F);
  for (float& x : bias) x = exact(0x1.0p-14F);
  const std::uint64_t golden[] = {0x2a707244b150a53dU, 0x83485fa8e59114eU, 0x31819dff75c3182eU, 0x743d2f172ddd718fU};
  for (std::size_t kind = 0; kind < 4; ++kind) {
    const Routes routes = route_by_gate(gate_shape(kKinds[kind], 64, 8), 16, logits, bias);
    const std::uint64_t got = testing::digest(routes.weights, testing::digest(routes.ids));
    BOOST_TEST(got == golden[kind], "kind " << kind << ": " << std::hex << got);
  }
}

BOOST_AUTO_TEST_CASE(ties_go_to_the_lower_id) {
  const std::vector<float> logits = {1.0F, 3.0F, 2.0F, 3.0F, 2.0F, -0.0F, 0.0F, 1.0F};
  Ids extra;
  const Routes routes = route_by_gate(gate_shape(GateKind::kSoftmaxTopKRenorm, 8, 3), 1, logits, {}, 5, &extra);
  BOOST_TEST(routes.ids == (Ids{1, 3, 2}), boost::test_tools::per_element());
  BOOST_TEST(extra == (Ids{4, 0, 7, 5, 6}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(further_choices_follow_the_gates_preference_and_end_with_padding) {
  const std::vector<float> logits = {4.0F, 1.0F, kNan, 3.0F, 2.0F};
  Ids extra;
  const Routes routes = route_by_gate(gate_shape(GateKind::kTopKSoftmax, 5, 2), 1, logits, {}, 4, &extra);
  BOOST_TEST(routes.ids == (Ids{0, 3}), boost::test_tools::per_element());
  BOOST_TEST(extra == (Ids{4, 1, -1, -1}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(further_choices_of_a_grouped_gate_stay_in_its_groups) {
  // Groups of two; groups 0 and 3 win.
  const std::vector<float> logits = {5.0F, 4.0F, 1.0F, 1.0F, 0.0F, 0.0F, 3.0F, 2.0F};
  Ids extra;
  const Routes routes = route_by_gate(gate_shape(GateKind::kSigmoidGroup, 8, 2), 1, logits, {}, 3, &extra);
  BOOST_TEST(routes.ids == (Ids{0, 1}), boost::test_tools::per_element());
  BOOST_TEST(extra == (Ids{6, 7, -1}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(the_bias_selects_but_does_not_weigh) {
  ModelShape shape = gate_shape(GateKind::kSigmoidGroup, 4, 2);
  shape.groups = 1;
  shape.top_groups = 1;
  shape.routed_scale = 1.0F;
  const std::vector<float> logits = {2.0F, 1.0F, 0.0F, 0.0F};
  const Routes routes = route_by_gate(shape, 1, logits, std::vector<float>{0.0F, 0.0F, 0.0F, 5.0F});
  BOOST_TEST(routes.ids == (Ids{3, 0}), boost::test_tools::per_element());
  BOOST_TEST(routes.weights[0] < routes.weights[1]);
  BOOST_TEST(std::abs(routes.weights[0] + routes.weights[1] - 1.0F) < 1e-6F);
}

BOOST_AUTO_TEST_CASE(C14_a_row_without_k_finite_scores_fails_explicitly) {
  for (const GateKind kind : kKinds) {
    const ModelShape shape = gate_shape(kind, 8, 2);
    std::vector<float> logits(8 * 5, 1.0F);
    std::fill_n(logits.begin(), 8, kNan);            // row 0: all NaN
    std::fill_n(logits.begin() + 8, 8, -kInfinity);  // row 1: all -Inf
    std::fill_n(logits.begin() + 16, 8, kInfinity);  // row 2: all +Inf
    std::fill_n(logits.begin() + 24, 7, kNan);       // row 3: one finite score of eight
    Ids extra;
    const Routes routes = route_by_gate(shape, 5, logits, {}, 2, &extra);
    for (std::size_t t = 0; t < 4; ++t) {
      BOOST_TEST(routes.flags[t] == messages::kTokenFailed);
      for (std::size_t j = 0; j < 2; ++j) {
        BOOST_TEST(routes.ids[t * 2 + j] == -1);
        BOOST_TEST(routes.weights[t * 2 + j] == 0.0F);
        BOOST_TEST(extra[t * 2 + j] == -1);
      }
    }
    BOOST_TEST(routes.failed_tokens == 4U);
    BOOST_TEST(routes.flags[4] == messages::kTokenExact);  // its neighbours' trouble is not its own
    BOOST_TEST(routes.ids[8] == 0);
    BOOST_TEST(routes.ids[9] == 1);
  }
}

BOOST_AUTO_TEST_CASE(C14_scores_that_are_not_finite_are_never_chosen_and_weigh_nothing) {
  Random random(testing::seed_or(3));
  const float sick[] = {kNan, -kNan, kInfinity, -kInfinity};
  for (const GateKind kind : kKinds) {
    const ModelShape shape = gate_shape(kind, 16, 4);
    for (int round = 0; round < 300; ++round) {
      std::vector<float> logits = random_floats(random, 16, -90.0F, 90.0F);
      const std::size_t bad = random.below(12);
      std::set<std::size_t> hurt;
      while (hurt.size() < bad) hurt.insert(random.below(16));
      for (const std::size_t e : hurt) logits[e] = sick[random.below(4)];
      const Routes routes = route_by_gate(shape, 1, logits, {});
      BOOST_REQUIRE(routes.failed_tokens == 0U);
      BOOST_REQUIRE(std::set<std::int32_t>(routes.ids.begin(), routes.ids.end()).size() == 4U);
      for (std::size_t j = 0; j < 4; ++j) {
        BOOST_REQUIRE(routes.ids[j] >= 0);
        BOOST_REQUIRE(routes.ids[j] < 16);
        BOOST_REQUIRE(hurt.count(static_cast<std::size_t>(routes.ids[j])) == 0U);
        BOOST_REQUIRE(std::isfinite(routes.weights[j]));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(C14_equal_scores_give_the_first_k_experts_equal_weights) {
  for (const GateKind kind : kKinds) {
    for (const float level : {-3e38F, -200.0F, 0.0F, 200.0F, 3e38F}) {
      const ModelShape shape = gate_shape(kind, 8, 4);
      const Routes routes = route_by_gate(shape, 1, std::vector<float>(8, level), {});
      BOOST_TEST(routes.ids == (Ids{0, 1, 2, 3}), boost::test_tools::per_element());
      const float expected = kind == GateKind::kSoftmaxTopK ? 0.125F : 0.25F * shape.routed_scale;
      for (const float weight : routes.weights) BOOST_TEST(weight == expected);
    }
  }
}

BOOST_AUTO_TEST_CASE(C14_a_grouped_gate_opens_further_groups_when_its_own_are_too_sick) {
  // Groups of two. Groups 0 and 1 win, with one finite score each; three are needed.
  const std::vector<float> logits = {9.0F, kNan, 8.0F, kNan, 1.0F, 0.5F, 0.0F, 0.0F};
  ModelShape shape = gate_shape(GateKind::kSigmoidGroup, 8, 3);
  const std::vector<float> bias = {3.0F, 0.0F, 2.0F, 0.0F, 0.0F, 0.0F, 0.0F, 0.0F};
  const Routes routes = route_by_gate(shape, 1, logits, bias);
  BOOST_TEST(routes.ids == (Ids{0, 2, 4}), boost::test_tools::per_element());
  BOOST_TEST(routes.failed_tokens == 0U);
}

BOOST_AUTO_TEST_CASE(a_bias_that_is_not_finite_takes_its_expert_out) {
  const std::vector<float> logits(8, 1.0F);
  const std::vector<float> bias = {kNan, kInfinity, 0.0F, 0.0F, 0.0F, 0.0F, 0.0F, 0.0F};
  const Routes routes = route_by_gate(gate_shape(GateKind::kSigmoidGroup, 8, 2), 1, logits, bias);
  BOOST_TEST(routes.ids == (Ids{2, 3}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(sizes_that_do_not_fit_fail_every_token) {
  const ModelShape shape = gate_shape(GateKind::kSigmoidGroup, 8, 2);
  const std::vector<float> logits(16, 1.0F);
  BOOST_TEST(route_by_gate(shape, 3, logits, {}).failed_tokens == 3U);
  BOOST_TEST(route_by_gate(shape, 2, logits, std::vector<float>(7, 0.0F)).failed_tokens == 2U);
  ModelShape broken = shape;
  broken.top_k = 9;
  BOOST_TEST(route_by_gate(broken, 2, logits, {}).failed_tokens == 2U);
  BOOST_TEST(route_by_gate(shape, 0, {}, {}).ids.empty());
}

BOOST_AUTO_TEST_CASE(C12_padding_in_a_clients_routes_adds_nothing) {
  const ModelShape shape = testing::shape_of(8, 2);
  const Routes rows = route_by_client(shape, 2, Ids{3, -1, -1, -1}, std::vector<float>{0.5F, 0.5F, kNan, kInfinity});
  BOOST_TEST(rows.ids == (Ids{3, -1, -1, -1}), boost::test_tools::per_element());
  BOOST_TEST(rows.weights == (std::vector<float>{0.5F, 0.0F, 0.0F, 0.0F}), boost::test_tools::per_element());
  BOOST_TEST(rows.flags == (std::vector<std::uint8_t>{0, 0}), boost::test_tools::per_element());
  BOOST_TEST(rows.refused_slots == 0U);

  const Routes amid = route_by_client(testing::shape_of(8, 4), 1, Ids{1, -1, 2, 5}, std::vector<float>(4, 0.25F));
  BOOST_TEST(amid.ids == (Ids{1, -1, 2, 5}), boost::test_tools::per_element());

  const Routes nothing = route_by_client(shape, 3, Ids(6, -1), std::vector<float>(6, 1.0F));
  BOOST_TEST(nothing.ids == Ids(6, -1), boost::test_tools::per_element());
  BOOST_TEST(nothing.failed_tokens == 0U);
}

BOOST_AUTO_TEST_CASE(C13_ids_beyond_the_table_are_refused_slot_by_slot) {
  const ModelShape shape = testing::shape_of(8, 2);
  const Ids ids = {
      8, 1, 9, 2, std::numeric_limits<std::int32_t>::max(), 3, -2, 4, std::numeric_limits<std::int32_t>::min(),
      5, 6, 7};
  const Routes routes = route_by_client(shape, 6, ids, std::vector<float>(12, 0.5F));
  BOOST_TEST(routes.ids == (Ids{-1, 1, -1, 2, -1, 3, -1, 4, -1, 5, 6, 7}), boost::test_tools::per_element());
  BOOST_TEST(routes.refused_slots == 5U);
  for (std::size_t t = 0; t < 5; ++t) BOOST_TEST(routes.flags[t] == messages::kTokenBadRoute);
  BOOST_TEST(routes.flags[5] == messages::kTokenExact);
  BOOST_TEST(routes.weights[0] == 0.0F);
  BOOST_TEST(routes.weights[1] == 0.5F);
}

BOOST_AUTO_TEST_CASE(weights_that_are_not_finite_are_refused_slot_by_slot) {
  const Routes routes =
      route_by_client(testing::shape_of(8, 2), 2, Ids{1, 2, 3, 4}, std::vector<float>{kNan, 1.0F, 2.0F, -kInfinity});
  BOOST_TEST(routes.ids == (Ids{-1, 2, 3, -1}), boost::test_tools::per_element());
  BOOST_TEST(routes.weights == (std::vector<float>{0.0F, 1.0F, 2.0F, 0.0F}), boost::test_tools::per_element());
  BOOST_TEST(routes.refused_slots == 2U);
}

BOOST_AUTO_TEST_CASE(C14_an_expert_named_twice_keeps_its_first_slot_with_the_sum) {
  const Routes pair = route_by_client(testing::shape_of(8, 2), 1, Ids{4, 4}, std::vector<float>{0.25F, 0.5F});
  BOOST_TEST(pair.ids == (Ids{4, -1}), boost::test_tools::per_element());
  BOOST_TEST(pair.weights == (std::vector<float>{0.75F, 0.0F}), boost::test_tools::per_element());
  BOOST_TEST(pair.flags[0] == messages::kTokenExact);
  BOOST_TEST(pair.refused_slots == 0U);

  const Routes more =
      route_by_client(testing::shape_of(8, 4), 2, Ids{2, 5, 2, 2, 5, -1, 5, 1}, std::vector<float>(8, 1.0F));
  BOOST_TEST(more.ids == (Ids{2, 5, -1, -1, 5, -1, -1, 1}), boost::test_tools::per_element());
  BOOST_TEST(more.weights == (std::vector<float>{3, 1, 0, 0, 2, 0, 0, 1}), boost::test_tools::per_element());

  const Routes huge = route_by_client(testing::shape_of(8, 2), 1, Ids{4, 4}, std::vector<float>{3e38F, 3e38F});
  BOOST_TEST(huge.weights[0] == 3e38F);
  BOOST_TEST(huge.refused_slots == 1U);
  BOOST_TEST(huge.flags[0] == messages::kTokenBadRoute);
}

BOOST_AUTO_TEST_CASE(routes_that_are_too_short_are_refused_not_read) {
  const Routes routes = route_by_client(testing::shape_of(8, 2), 2, Ids{1, 2, 3}, std::vector<float>{1.0F, 1.0F});
  BOOST_TEST(routes.ids == (Ids{1, 2, -1, -1}), boost::test_tools::per_element());
  BOOST_TEST(routes.refused_slots == 2U);
}

}  // namespace troupe::scheduling
