#define BOOST_TEST_MODULE cluster_wire_heartbeat
#include <atomic>
#include <thread>

#include <boost/test/unit_test.hpp>
#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/event_based_actor.hpp>

#include "scheduling/join_machine.hpp"
#include "tests/cluster/wire_support.hpp"

namespace troupe::cluster {
namespace {

using namespace wire_test;
using std::chrono::milliseconds;

HeartbeatSender::Options beats_of(const std::string& node, const std::string& endpoint) {
  HeartbeatSender::Options options;
  options.node = node;
  options.incarnation = Incarnation{3};
  options.endpoint = endpoint;
  options.interval = milliseconds{2};
  return options;
}

// The interval and limit that a coordinator would use. The watch's clock is counted in beats here, not taken from the
// machine: beat b stands for b intervals after the start, so a slow machine cannot fail the test, and missing beats
// cannot pass it.
constexpr std::uint64_t kIntervalNs = 200'000'000;
constexpr std::uint64_t kLimitNs = 10 * kIntervalNs;

/// What holds up every worker of an actor system.
struct Plug {
  std::mutex mutex;
  std::atomic<int> waiting{0};
};
// With an argument, because CAF 0.17 binds a reference to a null pointer for functors without one.
void get_stuck(caf::event_based_actor*, Plug* plug) {
  ++plug->waiting;
  const std::lock_guard wait(plug->mutex);
}

BOOST_AUTO_TEST_CASE(C33_a_node_that_is_busy_in_every_thread_is_not_silent) {
  Party coordinator(plain("coordinator"));
  std::atomic<bool> busy{true};
  // Twice as many spinning threads as processors, every worker of the actor pool blocked, and this thread.
  std::vector<std::thread> spinning;
  for (unsigned i = 0; i < 2 * std::max(1U, std::thread::hardware_concurrency()); ++i) {
    spinning.emplace_back([&busy] {
      while (busy) continue;
    });
  }
  Plug plug;  // outlives the system, which waits for its actors
  caf::actor_system_config config;
  caf::actor_system system(config);
  std::unique_lock plugged(plug.mutex);
  const int actors = 64 + 4 * static_cast<int>(std::thread::hardware_concurrency());  // more than the pool has workers
  for (int i = 0; i < actors; ++i) system.spawn(get_stuck, &plug);
  BOOST_TEST(eventually([&] { return plug.waiting > 0; }));

  auto sender = HeartbeatSender::start(beats_of("n1", coordinator->endpoint()));
  BOOST_REQUIRE(sender.has_value());
  // 230 beats of 200 ms: the 46 s of the case. This thread spins meanwhile, like a main thread that loads weights.
  constexpr std::size_t kBeats = 230;
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  while (coordinator.heard_count() < kBeats && std::chrono::steady_clock::now() < give_up) continue;
  const auto heard = coordinator.heard();
  const bool still_stuck = plug.waiting < actors;
  plugged.unlock();
  busy = false;
  for (auto& thread : spinning) thread.join();

  BOOST_TEST(still_stuck);
  BOOST_REQUIRE(heard.size() >= kBeats);
  scheduling::BeatWatch watch(kLimitNs);
  std::uint64_t last = 0;
  for (const auto& [frame, from] : heard) {
    const auto& beat = std::get<messages::Heartbeat>(frame.payload);
    BOOST_REQUIRE(beat.node == "n1");
    BOOST_REQUIRE(beat.incarnation == Incarnation{3});
    BOOST_REQUIRE(beat.beat > last);
    const auto now = beat.beat * kIntervalNs;
    if (last > 0) BOOST_REQUIRE(watch.silent(now).empty());
    watch.on_beat(beat.node, beat.incarnation, now);
    last = beat.beat;
  }
  sender->reset();  // and when the beats end, it is silent
  const auto silent = watch.silent(last * kIntervalNs + kLimitNs + 1);
  BOOST_REQUIRE(silent.size() == 1U);
  BOOST_TEST(silent[0].node == "n1");
}

BOOST_AUTO_TEST_CASE(beats_carry_the_nodes_key_and_name) {
  const auto coordinator_keys = make_curve_keys();
  const auto keys = make_curve_keys();
  Party coordinator(with_keys("coordinator", coordinator_keys, {{"n1", keys.public_key}}));
  auto options = beats_of("n1", coordinator->endpoint());
  options.keys = keys;
  options.server_key = coordinator_keys.public_key;
  const auto sender = HeartbeatSender::start(options);
  BOOST_REQUIRE(sender.has_value());
  const auto heard = coordinator.wait_for(3);
  BOOST_TEST(heard.from.name == "n1");
  BOOST_TEST(heard.frame.envelope.to == "membership");
  BOOST_TEST(heard.frame.envelope.sequence == 0U);  // droppable
}

BOOST_AUTO_TEST_CASE(beats_find_a_coordinator_that_comes_back) {
  std::string endpoint;
  std::unique_ptr<HeartbeatSender> sender;
  std::uint64_t last_before = 0;
  {
    Party first(plain("coordinator"));
    endpoint = first->endpoint();
    auto started = HeartbeatSender::start(beats_of("n1", endpoint));
    BOOST_REQUIRE(started.has_value());
    sender = std::move(*started);
    last_before = std::get<messages::Heartbeat>(first.wait_for(5).frame.payload).beat;
  }
  auto options = plain("coordinator");
  options.port = port_of(endpoint);
  Party second(options);
  (void)second.wait_for(5);
  std::uint64_t last = last_before;
  for (const auto& [frame, from] : second.heard()) {
    const auto beat = std::get<messages::Heartbeat>(frame.payload).beat;
    BOOST_TEST(beat > last);
    last = beat;
  }
}

BOOST_AUTO_TEST_CASE(a_sender_goes_at_once_though_nobody_listens) {
  std::string nowhere;
  {
    Party gone(plain("coordinator"));
    nowhere = gone->endpoint();
  }
  auto options = beats_of("n1", nowhere);
  options.interval = std::chrono::hours{1};
  auto sender = HeartbeatSender::start(options);
  BOOST_REQUIRE(sender.has_value());
  sender->reset();  // returns: neither the interval nor the connection is waited for
}

BOOST_AUTO_TEST_CASE(options_that_cannot_be_right_are_refused) {
  const auto keys = make_curve_keys();
  const auto refuses = [](const HeartbeatSender::Options& options, std::string_view says) {
    const auto sender = HeartbeatSender::start(options);
    BOOST_REQUIRE_MESSAGE(!sender.has_value(), says);
    BOOST_TEST(to_string(sender.error().code) == "bad_input");
    BOOST_TEST(sender.error().message.find("heartbeats of n1: ") == 0U);
    BOOST_TEST(sender.error().message.find(says) != std::string::npos, sender.error().message);
  };
  refuses(beats_of("n1", "nonsense"), "is no endpoint");
  refuses(beats_of("n1", "tcp://10.0.0.1:7001"), "loopback only");
  auto options = beats_of("n1", "tcp://127.0.0.1:7001");
  options.interval = milliseconds{0};
  refuses(options, "interval = 0 ms");
  options = beats_of("n1", "tcp://10.0.0.1:7001");
  options.keys = keys;
  refuses(options, "the coordinator's CURVE key is none");
  options.keys.secret_key = make_curve_keys().secret_key;
  refuses(options, "no pair");
}

}  // namespace
}  // namespace troupe::cluster
