#define BOOST_TEST_MODULE scheduling_beat_watch
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

#include "scheduling/join_machine.hpp"

namespace troupe::scheduling {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr Incarnation kFirst{1};

std::string names(const std::vector<BeatWatch::Silent>& silent) {
  std::string out;
  for (const auto& each : silent)
    out += (out.empty() ? "" : " ") + each.node + ":" + std::to_string(each.silent_ns / kSecond);
  return out;
}

}  // namespace

BOOST_AUTO_TEST_CASE(C33_a_joiner_that_is_busy_for_46_seconds_but_beats_is_never_silent) {
  BeatWatch watch(5 * kSecond);
  // Its main thread says nothing between its Join and its NodeReady 46 s later; beats come each second.
  for (std::uint64_t second = 0; second <= 46; ++second) {
    watch.on_beat("n1", kFirst, second * kSecond);
    BOOST_TEST(names(watch.silent(second * kSecond + kSecond / 2)) == "");
  }
}

BOOST_AUTO_TEST_CASE(silence_beyond_the_limit_is_reported_once_until_the_next_beat) {
  BeatWatch watch(5 * kSecond);
  watch.on_beat("n1", kFirst, 10 * kSecond);
  watch.on_beat("n2", kFirst, 12 * kSecond);
  BOOST_TEST(names(watch.silent(15 * kSecond)) == "");  // just at the limit
  BOOST_TEST(names(watch.silent(15 * kSecond + 1)) == "n1:5");
  BOOST_TEST(names(watch.silent(16 * kSecond)) == "");
  BOOST_TEST(names(watch.silent(18 * kSecond)) == "n2:6");
  watch.on_beat("n1", kFirst, 20 * kSecond);
  BOOST_TEST(names(watch.silent(21 * kSecond)) == "");
  BOOST_TEST(names(watch.silent(27 * kSecond)) == "n1:7");
}

BOOST_AUTO_TEST_CASE(beats_of_an_earlier_start_do_not_keep_a_node_alive) {
  BeatWatch watch(5 * kSecond);
  watch.on_beat("n1", Incarnation{2}, 0);
  watch.on_beat("n1", Incarnation{1}, 4 * kSecond);
  BOOST_TEST(names(watch.silent(6 * kSecond)) == "n1:6");
  watch.on_beat("n1", Incarnation{3}, 7 * kSecond);
  BOOST_TEST(names(watch.silent(8 * kSecond)) == "");
}

BOOST_AUTO_TEST_CASE(a_clock_that_seems_to_go_back_makes_nobody_silent) {
  BeatWatch watch(5 * kSecond);
  watch.on_beat("n1", kFirst, 100 * kSecond);
  watch.on_beat("n1", kFirst, 1 * kSecond);
  BOOST_TEST(names(watch.silent(50 * kSecond)) == "");
  BOOST_TEST(names(watch.silent(104 * kSecond)) == "");
  BOOST_TEST(names(watch.silent(106 * kSecond)) == "n1:6");
}

BOOST_AUTO_TEST_CASE(forgotten_nodes_and_a_limit_of_zero_report_nothing) {
  BeatWatch watch(5 * kSecond);
  watch.on_beat("n1", kFirst, 0);
  watch.forget("n1");
  BOOST_TEST(names(watch.silent(60 * kSecond)) == "");
  BeatWatch off(0);
  off.on_beat("n1", kFirst, 0);
  BOOST_TEST(names(off.silent(60 * kSecond)) == "");
}

BOOST_AUTO_TEST_CASE(strangers_cannot_make_the_watch_grow_without_end) {
  BeatWatch watch(5 * kSecond);
  for (std::size_t i = 0; i < BeatWatch::kMaxWatched + 100; ++i) watch.on_beat(std::to_string(i), kFirst, 0);
  BOOST_TEST(watch.silent(6 * kSecond).size() == BeatWatch::kMaxWatched);
}

}  // namespace troupe::scheduling
