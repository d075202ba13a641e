#define BOOST_TEST_MODULE scheduling_replica_machine
#include "scheduling/replica_machine.hpp"

#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

namespace troupe::scheduling {

BOOST_AUTO_TEST_CASE(a_replica_loads_serves_drains_and_is_released) {
  ReplicaMachine machine(ExpertId{1, 7});
  BOOST_TEST(to_string(machine.state()) == "loading");
  BOOST_TEST(machine.on_loaded().has_value());
  BOOST_TEST(to_string(machine.state()) == "serving");
  BOOST_TEST(machine.on_drain().has_value());
  BOOST_TEST(to_string(machine.state()) == "draining");
  BOOST_TEST(machine.on_fence().has_value());
  BOOST_TEST(to_string(machine.state()) == "released");
}

BOOST_AUTO_TEST_CASE(a_replica_whose_weights_do_not_load_is_released) {
  ReplicaMachine machine(ExpertId{0, 0});
  BOOST_TEST(machine.on_load_failed().has_value());
  BOOST_TEST(to_string(machine.state()) == "released");
}

BOOST_AUTO_TEST_CASE(an_event_out_of_turn_is_an_error_that_names_both_states) {
  ReplicaMachine machine(ExpertId{1, 7});
  const auto fence = machine.on_fence();
  BOOST_REQUIRE(!fence.has_value());
  BOOST_TEST(to_string(fence.error().code) == "illegal_transition");
  BOOST_TEST(fence.error().message == "replica of expert 1:7: fence needs state draining, it is loading");
  BOOST_TEST(to_string(machine.state()) == "loading");
  BOOST_TEST(!machine.on_drain().has_value());
  BOOST_REQUIRE(machine.on_loaded().has_value());
  BOOST_TEST(!machine.on_loaded().has_value());
  BOOST_TEST(!machine.on_load_failed().has_value());
  BOOST_TEST(!machine.on_fence().has_value());
  BOOST_REQUIRE(machine.on_drain().has_value());
  BOOST_REQUIRE(machine.on_fence().has_value());
  BOOST_TEST(!machine.on_fence().has_value());
  BOOST_TEST(!machine.on_drain().has_value());
}

}  // namespace troupe::scheduling
