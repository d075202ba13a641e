#define BOOST_TEST_MODULE cluster_wire_handshakes
#include "cluster/wire_handshakes.hpp"

#include <random>
#include <set>
#include <vector>

#include <boost/test/unit_test.hpp>
#include <zmq.h>

namespace troupe::cluster {
namespace {

using Refusal = HandshakeWatch::Refusal;

bool is(std::optional<Refusal> got, Refusal wanted) {
  return got.has_value() && *got == wanted;
}

BOOST_AUTO_TEST_CASE(a_connection_that_ends_before_success_was_refused_and_says_why) {
  HandshakeWatch watch;
  BOOST_TEST(!watch.on_event(ZMQ_EVENT_ACCEPTED, 5).has_value());
  BOOST_TEST(is(watch.on_event(ZMQ_EVENT_DISCONNECTED, 5), Refusal::kNoise));
  watch.on_event(ZMQ_EVENT_ACCEPTED, 5);
  BOOST_TEST(!watch.on_event(ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL, 99).has_value());
  BOOST_TEST(is(watch.on_event(ZMQ_EVENT_DISCONNECTED, 5), Refusal::kProtocol));
  watch.on_event(ZMQ_EVENT_ACCEPTED, 5);
  watch.on_event(ZMQ_EVENT_HANDSHAKE_FAILED_AUTH, 300);
  BOOST_TEST(is(watch.on_event(ZMQ_EVENT_DISCONNECTED, 5), Refusal::kKey));
  watch.on_event(ZMQ_EVENT_ACCEPTED, 5);
  watch.on_event(ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL, 32);
  BOOST_TEST(is(watch.on_event(ZMQ_EVENT_DISCONNECTED, 5), Refusal::kBrokenOff));
}

BOOST_AUTO_TEST_CASE(a_connection_that_ends_after_success_was_not_refused) {
  HandshakeWatch watch;
  watch.on_event(ZMQ_EVENT_ACCEPTED, 5);
  BOOST_TEST(!watch.on_event(ZMQ_EVENT_HANDSHAKE_SUCCEEDED, 0).has_value());
  BOOST_TEST(!watch.on_event(ZMQ_EVENT_DISCONNECTED, 5).has_value());
}

BOOST_AUTO_TEST_CASE(of_several_at_once_the_right_number_is_refused) {
  HandshakeWatch watch;
  for (const std::uint32_t fd : {5U, 6U, 7U}) watch.on_event(ZMQ_EVENT_ACCEPTED, fd);
  watch.on_event(ZMQ_EVENT_HANDSHAKE_SUCCEEDED, 0);
  watch.on_event(ZMQ_EVENT_HANDSHAKE_SUCCEEDED, 0);  // two of the three
  BOOST_TEST(watch.on_event(ZMQ_EVENT_DISCONNECTED, 6).has_value());
  BOOST_TEST(!watch.on_event(ZMQ_EVENT_DISCONNECTED, 5).has_value());
  BOOST_TEST(!watch.on_event(ZMQ_EVENT_DISCONNECTED, 7).has_value());
}

BOOST_AUTO_TEST_CASE(in_any_order_the_count_comes_out_right) {
  int settled = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    BOOST_TEST_CONTEXT("seed " << seed) {
      std::mt19937_64 random(seed);
      HandshakeWatch watch;
      std::vector<std::pair<std::uint32_t, bool>> open;  // descriptor, has succeeded
      std::uint64_t refused = 0;
      std::uint64_t truly_refused = 0;
      std::uint32_t next = 1;
      for (int step = 0; step < 200 || !open.empty(); ++step) {
        const auto pick = open.empty() ? 0 : random() % open.size();
        if (step < 200 && (open.empty() || random() % 3 == 0)) {
          open.emplace_back(next, false);
          watch.on_event(ZMQ_EVENT_ACCEPTED, next++);
        } else if (random() % 2 == 0 && !open[pick].second) {
          open[pick].second = true;
          watch.on_event(ZMQ_EVENT_HANDSHAKE_SUCCEEDED, 0);
        } else {
          truly_refused += open[pick].second ? 0 : 1;
          if (!open[pick].second && random() % 2 == 0) watch.on_event(ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL, 0);
          refused += watch.on_event(ZMQ_EVENT_DISCONNECTED, open[pick].first).has_value() ? 1 : 0;
          open.erase(open.begin() + static_cast<std::ptrdiff_t>(pick));
        }
      }
      BOOST_TEST(refused == truly_refused + watch.surplus());
      settled += watch.surplus() == 0 ? 1 : 0;
    }
  }
  BOOST_TEST(settled > 0);
}

}  // namespace
}  // namespace troupe::cluster
