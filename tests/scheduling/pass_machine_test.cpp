#define BOOST_TEST_MODULE scheduling_pass_machine
#include "scheduling/pass_machine.hpp"

#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

namespace troupe::scheduling {
namespace {

using Decisions = std::vector<PassDecision>;

messages::PassOpened opened(std::uint64_t pass, std::uint32_t from, std::uint64_t epoch, std::uint32_t tokens = 0,
                            std::uint64_t view = 1) {
  return {View{view}, PassNumber{pass}, Rank{from}, Epoch{epoch}, tokens};
}

/// Decisions in a line: "announce 3 (epoch 2, 5 tokens); run 3 (epoch 1, 5 of 9 tokens)".
std::string text(const Decisions& decisions) {
  std::string out;
  for (const PassDecision& decision : decisions) {
    if (!out.empty()) out += "; ";
    if (const auto* announce = std::get_if<AnnouncePass>(&decision)) {
      const messages::PassOpened& m = announce->message;
      out += "announce " + std::to_string(m.pass.value) + " (epoch " + std::to_string(m.newest_epoch.value) + ", " +
             std::to_string(m.tokens) + " tokens)";
    } else {
      const auto& run = std::get<RunPass>(decision);
      out += "run " + std::to_string(run.pass.value) + " (epoch " + std::to_string(run.epoch.value) + ", " +
             std::to_string(run.own_tokens) + " of " + std::to_string(run.all_tokens) + " tokens)";
    }
  }
  return out;
}
std::string text(const Result<Decisions>& decisions) {
  return decisions ? text(*decisions) : std::string(to_string(decisions.error().code));
}

bool says(const Result<Decisions>& result, const std::string& words) {
  return !result && result.error().message.find(words) != std::string::npos;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_rank_with_work_opens_and_runs_when_all_have_opened) {
  PassMachine machine(View{1}, Rank{1}, 3, Epoch{2});
  BOOST_TEST(text(machine.on_work(0)) == "");
  BOOST_TEST(text(machine.on_work(5)) == "announce 1 (epoch 2, 5 tokens)");
  BOOST_TEST(text(machine.on_opened(opened(1, 0, 2, 4))) == "");
  BOOST_TEST(machine.describe() == "opening pass 1, waiting for ranks 2");
  BOOST_TEST(text(machine.on_opened(opened(1, 2, 2))) == "run 1 (epoch 2, 5 of 9 tokens)");
  BOOST_TEST(machine.describe() == "running pass 1 with epoch 2");
  BOOST_TEST(text(machine.on_finished(PassNumber{1}, 0)) == "");
  BOOST_TEST(machine.describe() == "idle, pass 1 done");
  BOOST_TEST(machine.last_done().value == 1U);
  BOOST_TEST(machine.stats().passes_opened == 1U);
}

BOOST_AUTO_TEST_CASE(C15_a_rank_without_work_joins_as_soon_as_it_hears_of_a_pass) {
  PassMachine machine(View{1}, Rank{0}, 2, Epoch{1});
  BOOST_TEST(text(machine.on_opened(opened(1, 1, 1, 7))) ==
             "announce 1 (epoch 1, 0 tokens); run 1 (epoch 1, 0 of 7 tokens)");
  BOOST_TEST(text(machine.on_finished(PassNumber{1}, 0)) == "");
}

BOOST_AUTO_TEST_CASE(a_rank_alone_runs_at_once) {
  PassMachine machine(View{1}, Rank{0}, 1, Epoch{3});
  BOOST_TEST(text(machine.on_work(2)) == "announce 1 (epoch 3, 2 tokens); run 1 (epoch 3, 2 of 2 tokens)");
  BOOST_TEST(text(machine.on_finished(PassNumber{1}, 4)) ==
             "announce 2 (epoch 3, 4 tokens); run 2 (epoch 3, 4 of 4 tokens)");
}

BOOST_AUTO_TEST_CASE(the_epoch_of_a_pass_is_the_lowest_that_any_rank_named) {
  PassMachine machine(View{1}, Rank{0}, 3, Epoch{5});
  BOOST_TEST(machine.running_epoch().value == 0U);
  machine.on_work(1);
  BOOST_TEST(text(machine.on_opened(opened(1, 1, 4))) == "");
  BOOST_TEST(text(machine.on_opened(opened(1, 2, 6))) == "run 1 (epoch 4, 1 of 1 tokens)");
  BOOST_TEST(machine.running_epoch().value == 4U);
  BOOST_TEST(machine.newest_epoch().value == 5U);
}

BOOST_AUTO_TEST_CASE(an_epoch_that_comes_after_the_opening_waits_for_the_next_one) {
  PassMachine machine(View{1}, Rank{0}, 2, Epoch{1});
  machine.on_work(1);
  BOOST_TEST(machine.on_epoch(Epoch{2}));
  BOOST_TEST(!machine.on_epoch(Epoch{2}));
  BOOST_TEST(!machine.on_epoch(Epoch{1}));
  BOOST_TEST(text(machine.on_opened(opened(1, 1, 2))) == "run 1 (epoch 1, 1 of 1 tokens)");
  BOOST_TEST(text(machine.on_finished(PassNumber{1}, 1)) == "announce 2 (epoch 2, 1 tokens)");
  BOOST_TEST(text(machine.on_opened(opened(2, 1, 2))) == "run 2 (epoch 2, 1 of 1 tokens)");
}

BOOST_AUTO_TEST_CASE(what_arrives_meanwhile_waits_for_the_next_pass) {
  PassMachine machine(View{1}, Rank{0}, 2, Epoch{1});
  machine.on_work(3);
  // The three of the opening are still in the queue: two are new.
  BOOST_TEST(text(machine.on_work(5)) == "");
  BOOST_TEST(text(machine.on_opened(opened(1, 1, 1))) == "run 1 (epoch 1, 3 of 3 tokens)");
  BOOST_TEST(text(machine.on_work(4)) == "");
  BOOST_TEST(text(machine.on_finished(PassNumber{1}, 0)) == "announce 2 (epoch 1, 4 tokens)");
  BOOST_TEST(text(machine.on_opened(opened(2, 1, 1))) == "run 2 (epoch 1, 4 of 4 tokens)");
  BOOST_TEST(text(machine.on_finished(PassNumber{2}, 0)) == "");
}

BOOST_AUTO_TEST_CASE(a_rank_that_is_one_pass_ahead_is_remembered) {
  PassMachine machine(View{1}, Rank{0}, 3, Epoch{1});
  machine.on_work(1);
  BOOST_TEST(text(machine.on_opened(opened(1, 1, 1))) == "");
  // Rank 1 has heard from all and is done with pass 1 before rank 2's opening has come here.
  BOOST_TEST(text(machine.on_opened(opened(2, 1, 1, 8))) == "");
  BOOST_TEST(text(machine.on_opened(opened(1, 2, 1))) == "run 1 (epoch 1, 1 of 1 tokens)");
  BOOST_TEST(text(machine.on_opened(opened(2, 2, 1))) == "");
  BOOST_TEST(text(machine.on_finished(PassNumber{1}, 0)) ==
             "announce 2 (epoch 1, 0 tokens); run 2 (epoch 1, 0 of 8 tokens)");
}

BOOST_AUTO_TEST_CASE(repeats_and_old_passes_are_dropped_and_counted) {
  PassMachine machine(View{1}, Rank{0}, 2, Epoch{1});
  machine.on_work(1);
  BOOST_TEST(text(machine.on_opened(opened(1, 0, 1, 1))) == "");  // its own, come back
  BOOST_TEST(text(machine.on_opened(opened(1, 1, 1, 2))) == "run 1 (epoch 1, 1 of 3 tokens)");
  BOOST_TEST(text(machine.on_opened(opened(1, 1, 1, 2))) == "");
  BOOST_TEST(text(machine.on_opened(opened(2, 1, 1, 2))) == "");
  BOOST_TEST(text(machine.on_opened(opened(2, 1, 1, 2))) == "");
  BOOST_TEST(machine.stats().repeated == 3U);
  BOOST_TEST(text(machine.on_finished(PassNumber{1}, 0)) ==
             "announce 2 (epoch 1, 0 tokens); run 2 (epoch 1, 0 of 2 tokens)");
  BOOST_TEST(text(machine.on_opened(opened(1, 1, 1, 2))) == "");
  BOOST_TEST(machine.stats().stale == 1U);
  BOOST_TEST(machine.stats().refused == 0U);
}

BOOST_AUTO_TEST_CASE(openings_that_cannot_be_are_refused_and_change_nothing) {
  PassMachine machine(View{3}, Rank{0}, 3, Epoch{2}, PassNumber{7});
  const std::string before = machine.describe();
  BOOST_TEST(text(machine.on_opened(opened(8, 1, 2, 0, 2))) == "stale");
  BOOST_TEST(text(machine.on_opened(opened(8, 1, 2, 0, 4))) == "mismatch");
  BOOST_TEST(text(machine.on_opened(opened(8, 3, 2, 0, 3))) == "mismatch");
  BOOST_TEST(text(machine.on_opened(opened(8, 0, 2, 0, 3))) == "mismatch");  // in this rank's own name
  BOOST_TEST(text(machine.on_opened(opened(9, 1, 2, 0, 3))) ==
             "mismatch");  // nobody can be there: pass 8 is not opened here
  BOOST_TEST(machine.describe() == before);
  BOOST_TEST(text(machine.on_opened(opened(8, 1, 2, 5, 3))) == "announce 8 (epoch 2, 0 tokens)");
  BOOST_TEST(text(machine.on_opened(opened(8, 1, 2, 6, 3))) == "mismatch");
  BOOST_TEST(text(machine.on_opened(opened(10, 1, 2, 5, 3))) == "mismatch");
  BOOST_TEST(text(machine.on_opened(opened(8, 2, 2, 1, 3))) == "run 8 (epoch 2, 0 of 6 tokens)");
  BOOST_TEST(text(machine.on_opened(opened(9, 1, 1, 5, 3))) == "stale");  // an epoch from before the last pass
  BOOST_TEST(machine.stats().stale == 2U);
  BOOST_TEST(machine.stats().refused == 6U);
  const auto refused = machine.on_opened(opened(9, 5, 2, 0, 3));
  BOOST_TEST(says(refused, "rank 5 opens pass 9 of view 3 with epoch 2"));
  BOOST_TEST(says(refused, "the view has 3 ranks"));
  BOOST_TEST(says(refused, "rank 0, running pass 8 with epoch 2"));
}

BOOST_AUTO_TEST_CASE(finishing_what_does_not_run_is_an_error_that_names_both_states) {
  PassMachine machine(View{1}, Rank{0}, 2, Epoch{1});
  BOOST_TEST(text(machine.on_finished(PassNumber{1}, 0)) == "illegal_transition");
  BOOST_TEST(says(machine.on_finished(PassNumber{1}, 0), "must be running pass 1, but is idle, pass 0 done"));
  machine.on_work(1);
  BOOST_TEST(says(machine.on_finished(PassNumber{1}, 0),
                  "must be running pass 1, but is opening pass 1, waiting for ranks 1"));
  BOOST_TEST(text(machine.on_opened(opened(1, 1, 1))) == "run 1 (epoch 1, 1 of 1 tokens)");
  BOOST_TEST(says(machine.on_finished(PassNumber{2}, 0), "must be running pass 2, but is running pass 1"));
  BOOST_TEST(text(machine.on_finished(PassNumber{1}, 0)) == "");
  BOOST_TEST(text(machine.on_finished(PassNumber{1}, 0)) == "illegal_transition");
}

BOOST_AUTO_TEST_CASE(a_view_goes_on_from_the_passes_that_are_done) {
  PassMachine machine(View{2}, Rank{0}, 2, Epoch{9}, PassNumber{41});
  BOOST_TEST(machine.view().value == 2U);
  BOOST_TEST(text(machine.on_work(1)) == "announce 42 (epoch 9, 1 tokens)");
}

}  // namespace troupe::scheduling
