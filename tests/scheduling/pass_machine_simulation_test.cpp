#define BOOST_TEST_MODULE scheduling_pass_machine_simulation
#include <algorithm>
#include <map>
#include <queue>
#include <set>
#include <variant>
#include <vector>

#include <boost/test/unit_test.hpp>

#include "scheduling/pass_machine.hpp"
#include "tests/scheduling/support.hpp"

namespace troupe::scheduling {
namespace {

using testing::Random;

struct Weather {
  std::uint32_t ranks = 4;
  std::uint64_t passes = 10'000;
  std::uint64_t longest_delay = 50;  ///< of a message; delays differ, so messages overtake each other, of one pair too
  std::uint64_t longest_pass = 30;   ///< time that a device takes
  double repeats = 0.2;              ///< share of messages that come twice
  double work = 0.01;                ///< chance per rank and tick that tokens come
  double epochs = 0.001;             ///< chance per tick that the coordinator issues an epoch
};

/// Pass machines of all ranks, a network that delays, reorders and repeats, devices that take their time, a coordinator
/// that publishes epochs whenever it likes. Every rank notes what it ran.
class Simulation {
 public:
  Simulation(std::uint64_t seed, const Weather& weather) : random_(seed), weather_(weather) {
    for (std::uint32_t r = 0; r < weather.ranks; ++r) {
      ranks_.push_back({PassMachine(View{1}, Rank{r}, weather.ranks, Epoch{1}), 0, 0, 0, {}});
    }
  }

  void run() {
    while (ranks_[0].machine.last_done().value < weather_.passes) {
      make_weather();
      while (!events_.empty() && events_.top().at <= now_) step();
    }
    while (!events_.empty()) step();
  }

  /// Same passes, same epochs, on all ranks; the epoch of each is the lowest that was named; nothing is left.
  void check() const {
    std::uint64_t tokens_of_pass = 0;
    for (const RankState& rank : ranks_) {
      BOOST_REQUIRE(rank.ran.size() == ranks_[0].ran.size());
      BOOST_TEST(rank.arrived == rank.taken);
      BOOST_TEST(rank.waiting == 0U);
      BOOST_TEST(rank.machine.last_done().value == ranks_[0].ran.size());
      BOOST_TEST(rank.machine.stats().refused == 0U);
      BOOST_TEST(rank.machine.stats().passes_opened == ranks_[0].ran.size());
    }
    Epoch last{1};
    for (std::size_t p = 0; p < ranks_[0].ran.size(); ++p) {
      const auto& named = openings_.at(p + 1);
      BOOST_REQUIRE(named.size() == ranks_.size());
      Epoch lowest = named[0].newest_epoch;
      tokens_of_pass = 0;
      for (const messages::PassOpened& opening : named) {
        lowest = std::min(lowest, opening.newest_epoch);
        tokens_of_pass += opening.tokens;
      }
      BOOST_REQUIRE(tokens_of_pass > 0U);  // nobody opens a pass for nothing
      for (const RankState& rank : ranks_) {
        BOOST_REQUIRE(rank.ran[p].pass.value == p + 1);
        BOOST_REQUIRE(rank.ran[p].epoch == lowest);
        BOOST_REQUIRE(rank.ran[p].all_tokens == tokens_of_pass);
      }
      BOOST_REQUIRE(lowest >= last);  // no pass goes back to an older placement
      last = lowest;
    }
  }

  /// Passes in which exactly `count` ranks had no token.
  std::size_t passes_with_idle_ranks(std::size_t count) const {
    return static_cast<std::size_t>(std::count_if(openings_.begin(), openings_.end(), [&](const auto& each) {
      const auto idle =
          std::count_if(each.second.begin(), each.second.end(), [](const auto& m) { return m.tokens == 0; });
      return static_cast<std::size_t>(idle) == count;
    }));
  }
  std::size_t epochs_run() const {
    std::set<std::uint64_t> epochs;
    for (const RunPass& run : ranks_[0].ran) epochs.insert(run.epoch.value);
    return epochs.size();
  }
  std::uint64_t repeats() const {
    std::uint64_t sum = 0;
    for (const RankState& rank : ranks_) sum += rank.machine.stats().repeated + rank.machine.stats().stale;
    return sum;
  }
  std::size_t passes() const { return ranks_[0].ran.size(); }

 private:
  struct RankState {
    PassMachine machine;
    std::uint32_t waiting;
    std::uint64_t arrived;
    std::uint64_t taken;
    std::vector<RunPass> ran;
  };
  struct PassFinished {
    PassNumber pass;
  };
  struct EpochArrives {
    Epoch epoch;
  };
  struct Event {
    std::uint64_t at;
    std::uint64_t number;  ///< of events of one time the first made comes first
    std::uint32_t rank;
    std::variant<messages::PassOpened, PassFinished, EpochArrives> what;
    friend bool operator>(const Event& a, const Event& b) {
      return std::tie(a.at, a.number) > std::tie(b.at, b.number);
    }
  };

  void later(std::uint64_t longest, std::uint32_t rank, decltype(Event::what) what) {
    events_.push({now_ + 1 + random_.below(longest), number_++, rank, std::move(what)});
  }

  void make_weather() {
    for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
      // Rank 2 goes without for long stretches.
      if (r == 2 && (now_ / 1'000) % 2 == 0) continue;
      if (!random_.chance(weather_.work)) continue;
      const auto tokens = static_cast<std::uint32_t>(1 + random_.below(9));
      ranks_[r].arrived += tokens;
      ranks_[r].waiting += tokens;
      carry_out(r, ranks_[r].machine.on_work(ranks_[r].waiting));
    }
    if (random_.chance(weather_.epochs)) {
      newest_ = newest_.next();
      for (std::uint32_t r = 0; r < ranks_.size(); ++r) later(weather_.longest_delay * 10, r, EpochArrives{newest_});
    }
    ++now_;
  }

  void step() {
    const Event event = events_.top();
    events_.pop();
    now_ = std::max(now_, event.at);
    std::visit([&](const auto& what) { happen(event.rank, what); }, event.what);
  }

  void happen(std::uint32_t r, const messages::PassOpened& message) {
    const auto decisions = ranks_[r].machine.on_opened(message);
    BOOST_REQUIRE_MESSAGE(decisions.has_value(), decisions.error().message);
    carry_out(r, *decisions);
  }
  void happen(std::uint32_t r, const PassFinished& finished) {
    const auto decisions = ranks_[r].machine.on_finished(finished.pass, ranks_[r].waiting);
    BOOST_REQUIRE_MESSAGE(decisions.has_value(), decisions.error().message);
    carry_out(r, *decisions);
  }
  void happen(std::uint32_t r, const EpochArrives& arrives) { ranks_[r].machine.on_epoch(arrives.epoch); }

  void carry_out(std::uint32_t r, const std::vector<PassDecision>& decisions) {
    for (const PassDecision& decision : decisions) {
      if (const auto* announce = std::get_if<AnnouncePass>(&decision)) {
        openings_[announce->message.pass.value].push_back(announce->message);
        for (std::uint32_t peer = 0; peer < ranks_.size(); ++peer) {
          if (peer == r) continue;
          later(weather_.longest_delay, peer, announce->message);
          if (random_.chance(weather_.repeats)) later(weather_.longest_delay * 3, peer, announce->message);
        }
        continue;
      }
      const auto& run = std::get<RunPass>(decision);
      ranks_[r].ran.push_back(run);
      BOOST_REQUIRE(run.own_tokens <= ranks_[r].waiting);
      ranks_[r].waiting -= run.own_tokens;
      ranks_[r].taken += run.own_tokens;
      later(weather_.longest_pass, r, PassFinished{run.pass});
    }
  }

  Random random_;
  Weather weather_;
  std::vector<RankState> ranks_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::map<std::uint64_t, std::vector<messages::PassOpened>> openings_;
  Epoch newest_{1};
  std::uint64_t now_ = 0;
  std::uint64_t number_ = 0;
};

}  // namespace

BOOST_AUTO_TEST_CASE(C15_four_ranks_keep_equal_passes_and_epochs_over_10000_random_steps) {
  const std::uint64_t first = testing::seed_or(15);
  BOOST_TEST_MESSAGE("repeat with TROUPE_SEED=" << first << " scheduling_pass_machine_simulation_test");
  for (std::uint64_t seed = first; seed < first + 3; ++seed) {
    BOOST_TEST_CONTEXT("seed " << seed) {
      Simulation simulation(seed, {});
      simulation.run();
      simulation.check();
      // The weather was bad enough for the result to mean something.
      BOOST_TEST(simulation.passes() >= 10'000U);
      BOOST_TEST(simulation.passes_with_idle_ranks(1) > 100U);
      BOOST_TEST(simulation.passes_with_idle_ranks(3) > 100U);
      BOOST_TEST(simulation.epochs_run() > 100U);
      BOOST_TEST(simulation.repeats() > 1'000U);
    }
  }
}

BOOST_AUTO_TEST_CASE(C15_any_number_of_ranks_keeps_step_in_any_weather) {
  const std::uint64_t first = testing::seed_or(1'500);
  BOOST_TEST_MESSAGE("repeat with TROUPE_SEED=" << first << " scheduling_pass_machine_simulation_test");
  for (std::uint64_t seed = first; seed < first + 60; ++seed) {
    BOOST_TEST_CONTEXT("seed " << seed) {
      Random random(seed);
      Weather weather;
      weather.ranks = static_cast<std::uint32_t>(1 + random.below(9));
      weather.passes = 150;
      weather.longest_delay = 1 + random.below(200);
      weather.longest_pass = 1 + random.below(200);
      weather.repeats = random.chance(0.5) ? 0.0 : 0.8;
      weather.work = random.chance(0.5) ? 0.002 : 0.2;
      weather.epochs = random.chance(0.5) ? 0.001 : 0.3;
      Simulation simulation(seed, weather);
      simulation.run();
      simulation.check();
    }
  }
}

}  // namespace troupe::scheduling
