#define BOOST_TEST_MODULE scheduling_heat
#include "scheduling/heat.hpp"

#include <algorithm>
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
using testing::shape_of;

std::vector<NodeId> nodes(std::uint16_t count) {
  std::vector<NodeId> ids;
  for (std::uint16_t n = 0; n < count; ++n) ids.emplace_back(n);
  return ids;
}

/// A report of one layer: counts per expert, zeros left out.
messages::HeatReport report(std::uint16_t node, std::uint64_t window, std::uint64_t valid_tokens,
                            const std::vector<std::uint64_t>& counts, std::uint64_t incarnation = 1) {
  messages::HeatReport r{NodeId{node}, Incarnation{incarnation}, window, valid_tokens, {}};
  for (std::uint32_t e = 0; e < counts.size(); ++e) {
    if (counts[e] > 0) r.cells.push_back({ExpertId{0, e}, counts[e]});
  }
  return r;
}

double sum(std::span<const double> heat) {
  return std::accumulate(heat.begin(), heat.end(), 0.0);
}

std::string code(const Result<void>& result) {
  return result ? "taken" : std::string(to_string(result.error().code));
}

}  // namespace

BOOST_AUTO_TEST_CASE(C06_heat_is_tokens_times_k_exactly) {
  HeatBook book(shape_of(4, 2), nodes(3), 4.0);
  BOOST_TEST(sum(book.heat()) == 0.0);
  BOOST_TEST(code(book.on_report(report(0, 0, 10, {10, 5, 5, 0}))) == "taken");
  BOOST_TEST(code(book.on_report(report(1, 0, 3, {0, 3, 0, 3}))) == "taken");
  BOOST_TEST(book.complete_windows() == 0U);
  BOOST_TEST(sum(book.heat()) == 0.0);  // an incomplete window is not used
  BOOST_TEST(code(book.on_report(report(2, 0, 0, {}))) == "taken");
  BOOST_TEST(book.complete_windows() == 1U);
  BOOST_TEST(sum(book.heat()) == 26.0);  // 13 tokens x 2
  BOOST_TEST(book.stats().visits == 26U);
  BOOST_TEST(book.stats().unrouted == 0U);
  const std::vector<double> expected = {10, 8, 5, 3};
  BOOST_TEST(std::equal(expected.begin(), expected.end(), book.heat().begin()));
}

BOOST_AUTO_TEST_CASE(C06_a_doubled_report_counts_once) {
  HeatBook book(shape_of(2, 1), nodes(2), 4.0);
  for (int time = 0; time < 3; ++time) BOOST_TEST(code(book.on_report(report(0, 0, 5, {5, 0}))) == "taken");
  BOOST_TEST(code(book.on_report(report(1, 0, 2, {0, 2}))) == "taken");
  BOOST_TEST(sum(book.heat()) == 7.0);
  BOOST_TEST(book.stats().duplicates == 2U);
  BOOST_TEST(code(book.on_report(report(0, 0, 5, {5, 0}))) == "taken");  // after the window is closed
  BOOST_TEST(book.stats().stale == 1U);
  BOOST_TEST(sum(book.heat()) == 7.0);
  BOOST_TEST(book.stats().accepted == 2U);
}

BOOST_AUTO_TEST_CASE(C06_window_6_before_5_is_folded_in_order) {
  HeatBook late(shape_of(2, 1), nodes(1), 1.0);
  HeatBook in_order(shape_of(2, 1), nodes(1), 1.0);
  for (const std::uint64_t w : {0U, 1U, 2U, 3U, 4U, 6U, 5U, 7U})
    BOOST_TEST(code(late.on_report(report(0, w, 1 + w, {1 + w, 0}))) == "taken");
  for (std::uint64_t w = 0; w <= 7; ++w)
    BOOST_TEST(code(in_order.on_report(report(0, w, 1 + w, {1 + w, 0}))) == "taken");
  BOOST_TEST(late.complete_windows() == 8U);
  BOOST_TEST(late.heat()[0] == in_order.heat()[0]);
  BOOST_TEST(late.stats().incomplete == 0U);
}

BOOST_AUTO_TEST_CASE(C06_a_window_without_one_nodes_report_is_given_up_not_used) {
  HeatBook book(shape_of(2, 1), nodes(3), 4.0);
  const auto all_but_2 = [&](std::uint64_t w) {
    BOOST_TEST(code(book.on_report(report(0, w, 100, {100, 0}))) == "taken");
    BOOST_TEST(code(book.on_report(report(1, w, 100, {100, 0}))) == "taken");
  };
  all_but_2(0);  // node 2's report is lost
  for (std::uint64_t w = 1; w < kMaxOpenWindows; ++w) {
    for (std::uint16_t n = 0; n < 3; ++n) BOOST_TEST(code(book.on_report(report(n, w, 1, {0, 1}))) == "taken");
    BOOST_TEST(book.complete_windows() == 0U);  // they wait for window 0
  }
  BOOST_TEST(code(book.on_report(report(0, kMaxOpenWindows, 1, {0, 1}))) == "taken");
  BOOST_TEST(book.stats().incomplete == 1U);
  BOOST_TEST(book.complete_windows() == kMaxOpenWindows - 1);
  BOOST_TEST(book.heat()[0] == 0.0);  // nothing of window 0
  BOOST_TEST(book.heat()[1] == 3.0);
  // The lost report turns up after all: too late.
  BOOST_TEST(code(book.on_report(report(2, 0, 1, {1, 0}))) == "taken");
  BOOST_TEST(book.stats().stale == 1U);
  BOOST_TEST(book.heat()[0] == 0.0);
}

BOOST_AUTO_TEST_CASE(C06_loss_repeats_and_disorder_leave_the_sum_exact) {
  const std::uint64_t seed = testing::seed_or(6);
  BOOST_TEST_MESSAGE("repeat with TROUPE_SEED=" << seed << " scheduling_heat_test");
  Random random(seed);
  const ModelShape shape = shape_of(16, 4, 2);
  HeatBook book(shape, nodes(4), 8.0);
  struct InFlight {
    std::uint64_t at;
    messages::HeatReport report;
  };
  std::vector<InFlight> network;
  std::vector<std::uint64_t> tokens(400, 0);
  std::vector<bool> lost(400, false);
  for (std::uint64_t w = 0; w < tokens.size(); ++w) {
    for (std::uint16_t n = 0; n < 4; ++n) {
      const std::uint64_t valid = random.below(50);
      tokens[w] += valid;
      messages::HeatReport r{NodeId{n}, Incarnation{3}, w, valid, {}};
      for (std::uint32_t layer = 0; layer < 2; ++layer) {
        std::vector<std::uint64_t> cells(16, 0);
        for (std::uint64_t visit = 0; visit < valid * 4; ++visit) ++cells[random.below(16)];
        for (std::uint32_t e = 0; e < 16; ++e) r.cells.push_back({ExpertId{layer, e}, cells[e]});
      }
      // Delays below the give-up limit, so that only loss makes a window incomplete.
      if (random.chance(0.02)) {
        lost[w] = true;
        continue;
      }
      network.push_back({w * 10 + random.below(50), r});
      if (random.chance(0.3)) network.push_back({w * 10 + random.below(50), r});
    }
  }
  std::stable_sort(network.begin(), network.end(), [](const auto& a, const auto& b) { return a.at < b.at; });
  for (const InFlight& each : network) BOOST_REQUIRE(code(book.on_report(each.report)) == "taken");
  std::uint64_t expected = 0;
  std::uint64_t complete = 0;
  // Windows at the very end may still wait for one that was lost; leave them out on both sides.
  const std::uint64_t closed = book.complete_windows() + book.stats().incomplete;
  BOOST_TEST(closed > tokens.size() - kMaxOpenWindows);
  for (std::uint64_t w = 0; w < closed; ++w) {
    if (lost[w]) continue;
    expected += tokens[w] * 4 * 2;
    ++complete;
  }
  BOOST_TEST(book.complete_windows() == complete);
  BOOST_TEST(book.stats().visits == expected);
  BOOST_TEST(book.stats().unrouted == 0U);
  BOOST_TEST(book.stats().duplicates + book.stats().stale > 100U);
  BOOST_TEST(book.stats().incomplete > 0U);
  for (const double heat : book.heat()) BOOST_TEST(std::isfinite(heat));
}

BOOST_AUTO_TEST_CASE(C07_padding_is_no_heat) {
  // 4 ranks x 64 rows of which 48 are real, k = 2: 384 visits. The reporters name the real tokens.
  HeatBook book(shape_of(8, 2), nodes(4), 4.0);
  for (std::uint16_t n = 0; n < 4; ++n)
    BOOST_TEST(code(book.on_report(report(n, 0, 48, std::vector<std::uint64_t>(8, 12)))) == "taken");
  BOOST_TEST(sum(book.heat()) == 384.0);
  BOOST_TEST(book.stats().unrouted == 0U);
  // Where they name the padding too, it is counted apart and still makes no heat.
  for (std::uint16_t n = 0; n < 4; ++n)
    BOOST_TEST(code(book.on_report(report(n, 1, 64, std::vector<std::uint64_t>(8, 12)))) == "taken");
  BOOST_TEST(sum(book.heat()) == 384.0);
  BOOST_TEST(book.stats().unrouted == 4U * 16 * 2);
}

BOOST_AUTO_TEST_CASE(reports_that_cannot_be_are_refused_and_change_nothing_but_a_counter) {
  HeatBook book(shape_of(2, 2), nodes(2), 4.0);
  messages::HeatReport outside = report(0, 0, 4, {4, 4});
  outside.cells[1].expert = ExpertId{1, 0};
  messages::HeatReport beyond = report(0, 0, 4, {4, 4});
  beyond.cells[1].expert = ExpertId{0, 2};
  messages::HeatReport twice = report(0, 0, 4, {4, 4});
  twice.cells[1].expert = ExpertId{0, 0};
  BOOST_TEST(code(book.on_report(outside)) == "bad_input");
  BOOST_TEST(code(book.on_report(beyond)) == "bad_input");
  BOOST_TEST(code(book.on_report(twice)) == "bad_input");
  BOOST_TEST(code(book.on_report(report(2, 0, 4, {4, 4}))) == "bad_input");
  BOOST_TEST(code(book.on_report(report(0, 0, 4, {5, 4}))) == "bad_load");
  BOOST_TEST(code(book.on_report(report(0, 0, 1, {std::numeric_limits<std::uint64_t>::max(), 3}))) == "bad_load");
  BOOST_TEST(code(book.on_report(report(0, 0, std::numeric_limits<std::uint64_t>::max(), {1, 1}))) == "bad_load");
  BOOST_TEST(book.stats().refused == 7U);
  const auto refused = book.on_report(report(1, 3, 4, {4, 5}));
  BOOST_REQUIRE(!refused.has_value());
  BOOST_TEST(refused.error().message ==
             "heat report of node 1, window 3: cell 0:1 = 5 brings the layer above its 4 valid tokens x top_k 2");
  // None of them stands in the way of the honest one.
  BOOST_TEST(code(book.on_report(report(0, 0, 4, {4, 4}))) == "taken");
  BOOST_TEST(code(book.on_report(report(1, 0, 0, {}))) == "taken");
  BOOST_TEST(sum(book.heat()) == 8.0);
}

BOOST_AUTO_TEST_CASE(a_load_counts_half_after_the_half_life) {
  HeatBook book(shape_of(1, 1), nodes(1), 5.0);
  BOOST_TEST(code(book.on_report(report(0, 0, 1024, {1024}))) == "taken");
  BOOST_TEST(book.heat()[0] == 1024.0);
  for (std::uint64_t w = 1; w <= 5; ++w) BOOST_TEST(code(book.on_report(report(0, w, 0, {}))) == "taken");
  BOOST_TEST(std::abs(book.heat()[0] - 512.0) < 1e-9);
  BOOST_TEST(book.last_window()[0] == 0U);
}

BOOST_AUTO_TEST_CASE(a_half_life_that_is_no_number_leaves_the_last_window) {
  for (const double half_life :
       {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    HeatBook book(shape_of(1, 1), nodes(1), half_life);
    BOOST_TEST(code(book.on_report(report(0, 0, 10, {10}))) == "taken");
    BOOST_TEST(code(book.on_report(report(0, 1, 4, {4}))) == "taken");
    BOOST_TEST(book.heat()[0] == 4.0);
  }
}

BOOST_AUTO_TEST_CASE(a_new_incarnation_adds_to_the_window_and_ends_the_old_one) {
  HeatBook book(shape_of(1, 1), nodes(2), 4.0);
  BOOST_TEST(code(book.on_report(report(0, 0, 3, {3}, 1))) == "taken");
  BOOST_TEST(code(book.on_report(report(0, 0, 4, {4}, 2))) == "taken");
  BOOST_TEST(code(book.on_report(report(0, 0, 3, {3}, 1))) == "taken");
  BOOST_TEST(book.stats().stale == 1U);
  BOOST_TEST(code(book.on_report(report(0, 1, 9, {9}, 1))) == "taken");
  BOOST_TEST(book.stats().stale == 2U);
  BOOST_TEST(code(book.on_report(report(1, 0, 0, {}))) == "taken");
  BOOST_TEST(book.heat()[0] == 7.0);
}

BOOST_AUTO_TEST_CASE(a_leap_of_windows_costs_no_time_and_no_memory) {
  HeatBook book(shape_of(1, 1), nodes(1), 4.0);
  BOOST_TEST(code(book.on_report(report(0, 0, 1, {1}))) == "taken");
  const std::uint64_t far = std::numeric_limits<std::uint64_t>::max() - 3;
  BOOST_TEST(code(book.on_report(report(0, far, 2, {2}))) == "taken");
  BOOST_TEST(book.stats().incomplete == far - kMaxOpenWindows);
  BOOST_TEST(book.complete_windows() == 1U);  // `far` waits for the windows just before it
}

BOOST_AUTO_TEST_CASE(a_book_that_begins_later_takes_its_first_window_as_given) {
  HeatBook book(shape_of(1, 1), nodes(1), 4.0, 40);
  BOOST_TEST(code(book.on_report(report(0, 39, 1, {1}))) == "taken");
  BOOST_TEST(book.stats().stale == 1U);
  BOOST_TEST(code(book.on_report(report(0, 40, 2, {2}))) == "taken");
  BOOST_TEST(book.heat()[0] == 2.0);
  BOOST_TEST(book.stats().incomplete == 0U);
}

}  // namespace troupe::scheduling
