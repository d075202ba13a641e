#define BOOST_TEST_MODULE scheduling_join_machine
#include "scheduling/join_machine.hpp"

#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

namespace troupe::scheduling {
namespace {

using Decisions = std::vector<JoinDecision>;

messages::Join join(const std::string& node, std::uint64_t nonce = 1) {
  messages::Join m;
  m.node = node;
  m.start_nonce = nonce;
  m.plan_digest = 77;
  m.control_endpoint = "tcp://" + node + ":1";
  m.control_key = "key of " + node;
  m.door_endpoint = "tcp://" + node + ":2";
  m.gpus.resize(2);
  m.gpus[1].shm_name = node;
  m.max_tokens_per_pass = 128;
  return m;
}

JoinMachine machine_of(const std::vector<std::string>& names, std::uint64_t last_view = 0,
                       std::uint64_t last_incarnation = 0) {
  return {names, 77, 128, View{last_view}, Incarnation{last_incarnation}};
}

/// "n1: accepted 0/3; view 1: n1 n2; serve 1/4; give up: ..."
std::string text(const Decisions& decisions) {
  std::string out;
  for (const JoinDecision& decision : decisions) {
    if (!out.empty()) out += "; ";
    if (const auto* send = std::get_if<SendTo>(&decision)) {
      out += send->node + ": ";
      if (const auto* accepted = std::get_if<messages::JoinAccepted>(&send->message)) {
        out +=
            "accepted " + std::to_string(accepted->node_id.value) + "/" + std::to_string(accepted->incarnation.value);
      } else if (const auto* reject = std::get_if<messages::Reject>(&send->message)) {
        out += "reject " + reject->about + " " + std::string(to_string(static_cast<ErrorCode>(reject->code)));
      } else {
        out += "shutdown";
      }
    } else if (const auto* issue = std::get_if<IssueView>(&decision)) {
      out += "view " + std::to_string(issue->view.view.value) + ":";
      for (const messages::Member& member : issue->view.members) out += " " + member.node;
    } else if (const auto* serve = std::get_if<StartServing>(&decision)) {
      out += "serve " + std::to_string(serve->message.view.value) + "/" + std::to_string(serve->message.epoch.value);
    } else {
      out += "give up: " + std::get<GiveUp>(decision).error.message;
    }
  }
  return out;
}

/// The text of the one Reject among the decisions.
std::string reason(const Decisions& decisions) {
  for (const JoinDecision& decision : decisions) {
    if (const auto* send = std::get_if<SendTo>(&decision)) {
      if (const auto* reject = std::get_if<messages::Reject>(&send->message)) return reject->message;
    }
  }
  return "no reject";
}

bool contains(const std::string& whole, const std::string& part) {
  return whole.find(part) != std::string::npos;
}

messages::NodeReady ready(const std::string& node, std::uint64_t view = 1, std::uint64_t epoch = 1) {
  return {node, View{view}, Epoch{epoch}};
}

JoinMachine serving() {
  JoinMachine machine = machine_of({"n1", "n2"});
  machine.on_join(join("n1"));
  machine.on_join(join("n2"));
  machine.on_ready(ready("n1"));
  machine.on_ready(ready("n2"));
  return machine;
}

}  // namespace

BOOST_AUTO_TEST_CASE(nodes_join_in_any_order_and_the_view_has_them_in_the_configs) {
  JoinMachine machine = machine_of({"n1", "n2", "n3"}, 4, 10);
  BOOST_TEST(machine.missing() == (std::vector<std::string>{"n1", "n2", "n3"}), boost::test_tools::per_element());
  BOOST_TEST(text(machine.on_join(join("n3"))) == "n3: accepted 2/11");
  BOOST_TEST(text(machine.on_join(join("n1"))) == "n1: accepted 0/12");
  BOOST_TEST(machine.missing() == (std::vector<std::string>{"n2"}), boost::test_tools::per_element());
  BOOST_TEST(machine.view().view.value == 0U);
  BOOST_TEST(text(machine.on_join(join("n2"))) == "n2: accepted 1/13; view 5: n1 n2 n3");
  BOOST_TEST(machine.last_incarnation().value == 13U);
  const messages::ViewPublished& view = machine.view();
  BOOST_TEST(view.view.value == 5U);
  BOOST_REQUIRE(view.members.size() == 3U);
  BOOST_TEST(view.members[2].node_id.value == 2U);
  BOOST_TEST(view.members[2].incarnation.value == 11U);
  BOOST_TEST(view.members[1].control_endpoint == "tcp://n2:1");
  BOOST_TEST(view.members[1].control_key == "key of n2");
  BOOST_TEST(view.members[1].door_endpoint == "tcp://n2:2");
  BOOST_TEST((view.members[1].gpus == join("n2").gpus));
}

BOOST_AUTO_TEST_CASE(serving_starts_when_all_are_ready_for_the_view_and_one_epoch) {
  JoinMachine machine = machine_of({"n1", "n2"});
  machine.on_join(join("n1"));
  machine.on_join(join("n2"));
  BOOST_TEST(text(machine.on_ready(ready("n2", 1, 3))) == "");
  BOOST_TEST(machine.missing() == (std::vector<std::string>{"n1"}), boost::test_tools::per_element());
  BOOST_TEST(!machine.serving());
  BOOST_TEST(text(machine.on_ready(ready("n1", 1, 2))) == "");  // an older placement than n2's
  BOOST_TEST(machine.missing() == (std::vector<std::string>{"n1"}), boost::test_tools::per_element());
  BOOST_TEST(text(machine.on_ready(ready("n1", 1, 3))) == "serve 1/3");
  BOOST_TEST(machine.serving());
  BOOST_TEST(machine.missing().empty());
}

BOOST_AUTO_TEST_CASE(repeated_messages_change_nothing) {
  JoinMachine machine = machine_of({"n1", "n2"});
  BOOST_TEST(text(machine.on_join(join("n1"))) == "n1: accepted 0/1");
  BOOST_TEST(text(machine.on_join(join("n1"))) == "n1: accepted 0/1");
  BOOST_TEST(text(machine.on_join(join("n2"))) == "n2: accepted 1/2; view 1: n1 n2");
  BOOST_TEST(text(machine.on_join(join("n1"))) == "n1: accepted 0/1");
  BOOST_TEST(text(machine.on_ready(ready("n1"))) == "");
  BOOST_TEST(text(machine.on_ready(ready("n1"))) == "");
  BOOST_TEST(text(machine.on_ready(ready("n2"))) == "serve 1/1");
  BOOST_TEST(text(machine.on_ready(ready("n2"))) == "");
  BOOST_TEST(text(machine.on_join(join("n2"))) == "n2: accepted 1/2");
  BOOST_TEST(machine.last_incarnation().value == 2U);
}

BOOST_AUTO_TEST_CASE(C18_token_limits_that_differ_are_found_when_joining_and_both_named) {
  JoinMachine machine = machine_of({"n1"});
  messages::Join other = join("n1");
  other.max_tokens_per_pass = 256;
  const Decisions decisions = machine.on_join(other);
  BOOST_TEST(text(decisions) == "n1: reject Join mismatch");
  BOOST_TEST(contains(reason(decisions), "limits.max_tokens_per_pass = 256"), reason(decisions));
  BOOST_TEST(contains(reason(decisions), "the coordinator 128"), reason(decisions));
  BOOST_TEST(machine.missing().size() == 1U);
  BOOST_TEST(text(machine.on_join(join("n1"))) == "n1: accepted 0/1; view 1: n1");
}

BOOST_AUTO_TEST_CASE(strangers_and_other_plans_are_refused) {
  JoinMachine machine = machine_of({"n1", "n2"});
  const Decisions stranger = machine.on_join(join("n9\n\x1b[2J" + std::string(500, 'x')));
  BOOST_TEST(contains(reason(stranger), "is not in the config, which names n1, n2"), reason(stranger));
  BOOST_TEST(contains(reason(stranger), "\"n9??[2Jxxx"), reason(stranger));
  BOOST_TEST(reason(stranger).size() < 200U);
  messages::Join other = join("n1");
  other.plan_digest = 78;
  BOOST_TEST(text(machine.on_join(other)) == "n1: reject Join mismatch");
  BOOST_TEST(contains(reason(machine.on_join(other)), "digest 78, the coordinator's is 77"));
  BOOST_TEST(machine.missing().size() == 2U);
}

BOOST_AUTO_TEST_CASE(a_second_start_is_refused_while_the_first_is_in) {
  JoinMachine machine = machine_of({"n1", "n2"});
  machine.on_join(join("n1", 1));
  const Decisions second = machine.on_join(join("n1", 2));
  BOOST_TEST(text(second) == "n1: reject Join refused");
  BOOST_TEST(contains(reason(second), "in already, as incarnation 1"), reason(second));
  messages::Join moved = join("n1", 1);
  moved.control_endpoint = "tcp://elsewhere:1";
  BOOST_TEST(text(machine.on_join(moved)) == "n1: reject Join mismatch");
}

BOOST_AUTO_TEST_CASE(a_node_that_leaves_before_the_view_may_start_again_but_its_old_start_may_not) {
  JoinMachine machine = machine_of({"n1", "n2"});
  machine.on_join(join("n1", 1));
  BOOST_TEST(text(machine.on_leave({"n1", "restart"})) == "");
  BOOST_TEST(text(machine.on_leave({"n1", "restart"})) == "");
  BOOST_TEST(text(machine.on_leave({"n7", "who?"})) == "");
  BOOST_TEST(machine.missing().size() == 2U);
  BOOST_TEST(text(machine.on_join(join("n1", 1))) == "n1: reject Join stale");
  BOOST_TEST(text(machine.on_join(join("n2"))) == "n2: accepted 1/2");  // no view without n1
  BOOST_TEST(text(machine.on_join(join("n1", 2))) == "n1: accepted 0/3; view 1: n1 n2");
}

BOOST_AUTO_TEST_CASE(a_node_silent_before_the_view_is_told_to_stop_and_may_start_again) {
  JoinMachine machine = machine_of({"n1", "n2"});
  BOOST_TEST(text(machine.on_silent("n1", 900)) == "");
  machine.on_join(join("n1", 1));
  BOOST_TEST(text(machine.on_silent("n1", 900)) == "n1: shutdown");
  BOOST_TEST(text(machine.on_silent("n1", 900)) == "");
  BOOST_TEST(text(machine.on_join(join("n1", 2))) == "n1: accepted 0/2");
}

BOOST_AUTO_TEST_CASE(a_leave_or_a_silence_after_the_view_gives_up_by_name_and_reason) {
  JoinMachine left = serving();
  BOOST_TEST(text(left.on_leave({"n2", "out of memory"})) ==
             "give up: node n2 left: \"out of memory\" (serving view 1); the cluster cannot go on without it");
  BOOST_TEST(!left.serving());
  JoinMachine silent = serving();
  BOOST_TEST(
      text(silent.on_silent("n1", 5'200)) ==
      "give up: node n1 has not been heard of for 5200 ms (serving view 1); the cluster cannot go on without it");
  JoinMachine waiting = machine_of({"n1"});
  waiting.on_join(join("n1"));
  BOOST_TEST(text(waiting.on_leave({"n1", ""})) ==
             "give up: node n1 left without a reason (waiting in view 1 until ready: n1); the cluster cannot go on "
             "without it");
  // Once given up nothing more is decided.
  BOOST_TEST(text(left.on_leave({"n1", "too"})) == "");
  BOOST_TEST(text(left.on_silent("n1", 1)) == "");
  BOOST_TEST(text(left.on_ready(ready("n1"))) == "");
  BOOST_TEST(text(left.on_join(join("n2", 5))) == "n2: reject Join refused");
}

BOOST_AUTO_TEST_CASE(messages_out_of_turn_are_answered_with_both_states) {
  JoinMachine machine = machine_of({"n1", "n2"});
  machine.on_join(join("n1"));
  const Decisions early = machine.on_ready(ready("n1"));
  BOOST_TEST(text(early) == "n1: reject NodeReady illegal_transition");
  BOOST_TEST(contains(reason(early), "needs state view issued, the cluster is joining, without n2"), reason(early));
  machine.on_join(join("n2"));
  BOOST_TEST(text(machine.on_ready(ready("n1", 0, 1))) == "n1: reject NodeReady stale");
  BOOST_TEST(text(machine.on_ready(ready("n1", 2, 1))) == "n1: reject NodeReady mismatch");
  BOOST_TEST(text(machine.on_ready(ready("n1", 1, 0))) == "n1: reject NodeReady mismatch");
  BOOST_TEST(text(machine.on_ready(ready("n7"))) == "n7: reject NodeReady refused");
  BOOST_TEST(machine.missing().size() == 2U);
}

}  // namespace troupe::scheduling
