#define BOOST_TEST_MODULE cluster_wire
#include <boost/test/unit_test.hpp>
#include <zmq.hpp>

#include "tests/cluster/wire_support.hpp"

namespace troupe::cluster {
namespace {

using namespace wire_test;
using std::chrono::milliseconds;

std::uint64_t cookie(const Heard& heard) {
  if (const auto* ping = std::get_if<messages::Ping>(&heard.frame.payload)) return ping->cookie;
  return std::get<messages::Pong>(heard.frame.payload).cookie;
}

std::string code(const Result<void>& result) {
  return std::string(to_string(result ? ErrorCode::kNone : result.error().code));
}

void goes_both_ways(Party& a, Party& b, const std::string& key_of_b) {
  b.echo();
  BOOST_REQUIRE(a->connect("n2", b->endpoint(), key_of_b).has_value());
  BOOST_REQUIRE(a->send("n2", ping("n1", 42, "n2")).has_value());
  const auto there = b.wait_for(1);
  BOOST_TEST(cookie(there) == 42U);
  BOOST_TEST(there.frame.envelope.sequence == 1U);
  BOOST_TEST(there.from.name == "n1");
  BOOST_TEST(!there.from.routing_id.empty());
  const auto back = a.wait_for(1);
  BOOST_TEST(cookie(back) == 42U);
  BOOST_TEST(back.from.name == "n2");
  BOOST_TEST(back.from.routing_id.empty());
  BOOST_TEST(code(a->reply(back.from, ping("n1", 1))) == "bad_input");
}

BOOST_AUTO_TEST_CASE(frames_go_there_and_answers_come_back_on_the_plain_wire) {
  Party a(plain("n1"));
  Party b(plain("n2"));
  goes_both_ways(a, b, "");
}

BOOST_AUTO_TEST_CASE(frames_go_there_and_answers_come_back_with_curve) {
  const auto keys_a = make_curve_keys();
  const auto keys_b = make_curve_keys();
  Party a(with_keys("n1", keys_a, {{"n2", keys_b.public_key}}));
  Party b(with_keys("n2", keys_b, {{"n1", keys_a.public_key}}));
  goes_both_ways(a, b, keys_b.public_key);
}

BOOST_AUTO_TEST_CASE(it_speaks_ipv6) {
  auto options = plain("n2");
  options.bind_host = "::1";
  const auto probe = Wire::start(options, [](messages::Frame, const PeerHandle&) {});
  if (!probe) {
    BOOST_TEST_MESSAGE("this machine has no ::1: " << probe.error().message);
    return;
  }
  Party a(plain("n1"));
  Party b(options);
  BOOST_TEST(b->endpoint().find("tcp://[::1]:") == 0U);
  goes_both_ways(a, b, "");
}

BOOST_AUTO_TEST_CASE(one_that_only_connects_hears_answers) {
  auto options = plain("client");
  options.listen = false;
  Party client(options);
  Party door(plain("n1"));
  door.echo();
  BOOST_TEST(client->endpoint().empty());
  BOOST_REQUIRE(client->connect("n1", door->endpoint(), "").has_value());
  BOOST_REQUIRE(client->send("n1", ping("client", 5, "n1")).has_value());
  BOOST_TEST(cookie(client.wait_for(1)) == 5U);
}

BOOST_AUTO_TEST_CASE(frames_of_several_threads_arrive_whole_and_in_the_order_of_their_numbers) {
  Party a(plain("n1"));
  Party b(plain("n2"));
  BOOST_REQUIRE(a->connect("n2", b->endpoint(), "").has_value());
  constexpr std::uint64_t kThreads = 4;
  constexpr std::uint64_t kEach = 2'000;
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < kEach; ++i) {
        while (!a->send("n2", ping("n1", t * kEach + i))) std::this_thread::yield();  // full: try again
      }
    });
  }
  for (auto& thread : threads) thread.join();
  (void)b.wait_for(kThreads * kEach);
  std::vector<std::uint64_t> next(kThreads, 0);
  std::uint64_t sequence = 0;
  for (const auto& heard : b.heard()) {
    BOOST_REQUIRE(heard.frame.envelope.sequence == ++sequence);
    const auto thread = cookie(heard) / kEach;
    BOOST_REQUIRE(cookie(heard) % kEach == next[thread]++);
  }
  BOOST_TEST(b->stats().received == kThreads * kEach);
  BOOST_TEST(a->stats().sent == kThreads * kEach);
  BOOST_TEST(b->stats().gaps == 0U);
}

BOOST_AUTO_TEST_CASE(large_frames_arrive_as_they_went) {
  Party a(plain("n1"));
  Party b(plain("n2"));
  BOOST_REQUIRE(a->connect("n2", b->endpoint(), "").has_value());
  messages::Submit submit;
  submit.hidden.resize(std::size_t{3} << 20);
  for (std::size_t i = 0; i < submit.hidden.size(); ++i) submit.hidden[i] = static_cast<std::byte>(i * 31 % 251);
  messages::Frame frame = ping("n1", 0);
  frame.payload = submit;
  BOOST_REQUIRE(a->send("n2", frame).has_value());
  const auto there = b.wait_for(1);
  BOOST_TEST((std::get<messages::Submit>(there.frame.payload) == submit));
}

BOOST_AUTO_TEST_CASE(a_full_queue_is_an_error_and_never_a_wait) {
  auto options = plain("n1");
  options.high_water_mark = 100;
  Party a(options);
  std::string nowhere;
  {
    Party gone(plain("n2"));
    nowhere = gone->endpoint();
  }
  BOOST_REQUIRE(a->connect("n2", nowhere, "").has_value());
  // Half of the mark waits in ZeroMQ, half with us, however fast the frames come.
  std::uint64_t taken = 0;
  BOOST_TEST(eventually([&] {
    while (a->send("n2", ping("n1", taken))) ++taken;
    return taken >= 100;
  }));
  BOOST_TEST(taken == 100U);
  const auto full = a->send("n2", ping("n1", 0));
  BOOST_TEST(code(full) == "limit");
  BOOST_TEST(full.error().message.find("n2: the queue is full: 50 frames wait") != std::string::npos,
             full.error().message);
  BOOST_TEST(a->stats().dropped_sends >= 1U);
}

BOOST_AUTO_TEST_CASE(what_was_sent_before_the_peer_came_up_arrives) {
  Party a(plain("n1"));
  std::string endpoint;
  {
    Party first(plain("n2"));
    endpoint = first->endpoint();
  }
  BOOST_REQUIRE(a->connect("n2", endpoint, "").has_value());
  for (std::uint64_t i = 1; i <= 10; ++i) BOOST_REQUIRE(a->send("n2", ping("n1", i)).has_value());
  auto options = plain("n2");
  options.port = port_of(endpoint);
  Party b(options);
  BOOST_TEST(cookie(b.wait_for(10)) == 10U);
  BOOST_TEST(b->stats().gaps == 0U);
}

BOOST_AUTO_TEST_CASE(a_peer_that_is_not_connected_is_an_error) {
  Party a(plain("n1"));
  BOOST_TEST(code(a->send("n2", ping("n1", 1))) == "unavailable");
  Party b(plain("n2"));
  BOOST_REQUIRE(a->connect("n2", b->endpoint(), "").has_value());
  BOOST_REQUIRE(a->send("n2", ping("n1", 1)).has_value());
  (void)b.wait_for(1);
  a->disconnect("n2");
  BOOST_TEST(code(a->send("n2", ping("n1", 1))) == "unavailable");
  BOOST_TEST(a->stats().dropped_sends == 2U);
}

BOOST_AUTO_TEST_CASE(a_name_can_move_to_another_endpoint_and_counts_from_one_there) {
  Party a(plain("n1"));
  Party first(plain("n2"));
  Party second(plain("n2"));
  BOOST_REQUIRE(a->connect("n2", first->endpoint(), "").has_value());
  BOOST_REQUIRE(a->send("n2", ping("n1", 1)).has_value());
  (void)first.wait_for(1);
  BOOST_REQUIRE(a->connect("n2", second->endpoint(), "").has_value());
  BOOST_REQUIRE(a->send("n2", ping("n1", 2)).has_value());
  BOOST_TEST(second.wait_for(1).frame.envelope.sequence == 1U);
  BOOST_TEST(first.heard_count() == 1U);
}

BOOST_AUTO_TEST_CASE(stop_sends_what_is_queued) {
  Party a(plain("n1"));
  Party b(plain("n2"));
  BOOST_REQUIRE(a->connect("n2", b->endpoint(), "").has_value());
  for (std::uint64_t i = 1; i <= 1'000; ++i) BOOST_REQUIRE(a->send("n2", ping("n1", i)).has_value());
  a->stop(std::chrono::duration_cast<milliseconds>(kPatience));
  BOOST_TEST(cookie(b.wait_for(1'000)) == 1'000U);
  BOOST_TEST(code(a->send("n2", ping("n1", 1))) == "aborted");
  a->stop(milliseconds{0});  // again: nothing happens
}

BOOST_AUTO_TEST_CASE(frames_beyond_the_limit_are_refused_by_their_sender) {
  auto options = plain("n1");
  options.max_frame_bytes = 1'000;
  Party a(options);
  Party b(plain("n2"));
  BOOST_REQUIRE(a->connect("n2", b->endpoint(), "").has_value());
  messages::Frame large = ping("n1", 0);
  large.payload = messages::Shutdown{std::string(2'000, 'x')};
  const auto refused = a->send("n2", large);
  BOOST_TEST(code(refused) == "limit");
  BOOST_TEST(refused.error().message.find("the limit is 1000") != std::string::npos, refused.error().message);
  BOOST_REQUIRE(a->send("n2", ping("n1", 1)).has_value());
  BOOST_TEST(b.wait_for(1).frame.envelope.sequence == 1U);  // no number was used up
}

BOOST_AUTO_TEST_CASE(missing_sequence_numbers_are_counted_and_told) {
  Party b(plain("n2"));
  zmq::context_t context(1);
  zmq::socket_t dealer(context, zmq::socket_type::dealer);
  dealer.set(zmq::sockopt::linger, 0);
  dealer.connect(b->endpoint());
  const auto say = [&](const std::string& from, std::uint64_t sequence) {
    auto frame = ping(from, sequence);
    frame.envelope.sequence = sequence;
    const auto bytes = messages::encode_frame(frame);
    dealer.send(zmq::const_buffer(bytes.data(), bytes.size()), zmq::send_flags::none);
  };
  for (const std::uint64_t sequence : {1U, 2U, 0U, 5U, 6U})
    say("n1", sequence);                                                  // 3 and 4 are missing; 0 has no number
  for (const std::uint64_t sequence : {3U, 4U}) say("late", sequence);    // has sent two that we never heard
  for (const std::uint64_t sequence : {1U, 2U}) say("n1", sequence);      // a new start
  say("n1", 2);                                                           // another one, whose first is missing
  for (const std::uint64_t sequence : {9U, 4U}) say("client", sequence);  // many share this name
  (void)b.wait_for(12);
  BOOST_TEST(b.gaps() == (std::vector<std::string>{"n1:3-5", "late:1-3", "n1:1-2"}), boost::test_tools::per_element());
  BOOST_TEST(b->stats().gaps == 5U);
  BOOST_TEST(b->stats().received == 12U);
}

BOOST_AUTO_TEST_CASE(C38_two_on_one_port_is_an_error_that_names_the_port) {
  Party a(plain("n1"));
  auto options = plain("n2");
  options.port = port_of(a->endpoint());
  const auto second = Wire::start(options, [](messages::Frame, const PeerHandle&) {});
  BOOST_REQUIRE(!second.has_value());
  BOOST_TEST(to_string(second.error().code) == "io");
  BOOST_TEST(second.error().message.find("tcp://127.0.0.1:" + std::to_string(options.port)) != std::string::npos);
  BOOST_TEST(second.error().message.find("another process has the port") != std::string::npos, second.error().message);
}

BOOST_AUTO_TEST_CASE(options_that_cannot_be_right_are_refused_with_a_way_out) {
  const auto good = make_curve_keys();
  const auto other = make_curve_keys();
  const auto refuses = [](WireOptions options, std::string_view says) {
    const auto wire = Wire::start(std::move(options), [](messages::Frame, const PeerHandle&) {});
    BOOST_REQUIRE_MESSAGE(!wire.has_value(), says);
    BOOST_TEST(to_string(wire.error().code) == "bad_input", wire.error().message);
    BOOST_TEST(wire.error().message.find(says) != std::string::npos, wire.error().message);
  };
  auto options = plain("n1");
  for (const char* host : {"0.0.0.0", "10.1.2.3", "::"}) {
    options.bind_host = host;
    refuses(options, "without CURVE keys the wire listens on loopback only");
  }
  refuses(plain(""), "needs a name");
  refuses(with_keys("n1", {good.public_key, ""}, {}), "one of the two is empty");
  refuses(with_keys("n1", {good.public_key, other.secret_key}, {}), "are no pair");
  refuses(with_keys("n1", {"short", "short"}, {}), "are no pair");
  refuses(with_keys("n1", good, {{"n2", "nonsense"}}), "the allowed key of n2 is no CURVE key");
  options = plain("n1");
  options.max_frame_bytes = 0;
  refuses(options, "max_frame_bytes = 0");
  options = plain("n1");
  options.high_water_mark = 0;
  refuses(options, "high_water_mark = 0");
}

BOOST_AUTO_TEST_CASE(connections_that_cannot_be_right_are_refused) {
  const auto keys = make_curve_keys();
  Party bare(plain("n1"));
  Party curve(with_keys("n1", keys, {}));
  BOOST_TEST(code(bare->connect("n2", "tcp://127.0.0.1:99999", "")) == "bad_input");
  BOOST_TEST(code(bare->connect("n2", "tcp://10.0.0.1:7001", "")) == "bad_input");
  BOOST_TEST(code(bare->connect("n2", "tcp://127.0.0.1:7001", keys.public_key)) == "bad_input");
  BOOST_TEST(code(curve->connect("n2", "tcp://127.0.0.1:7001", "")) == "bad_input");
  BOOST_TEST(code(curve->connect("n2", "tcp://127.0.0.1:7001", "nonsense")) == "bad_input");
  BOOST_TEST(code(curve->allow({{"n3", keys.public_key}, {"n2", "nonsense"}})) == "bad_input");
}

}  // namespace
}  // namespace troupe::cluster
