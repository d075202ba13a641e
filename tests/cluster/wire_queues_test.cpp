#define BOOST_TEST_MODULE cluster_wire_queues
#include "cluster/wire_queues.hpp"

#include <boost/test/unit_test.hpp>
#include <poll.h>

#include "cluster/wire_address.hpp"

namespace troupe::cluster {
namespace {

using Bytes = WireQueues::Bytes;

messages::Frame ping(std::uint64_t cookie) {
  messages::Frame frame;
  frame.payload = messages::Ping{cookie};
  return frame;
}

bool is_awake(const WireQueues& queues) {
  pollfd item{queues.wake_fd(), POLLIN, 0};
  return ::poll(&item, 1, 0) == 1;
}

std::string code(const Result<void>& result) {
  return std::string(to_string(result ? ErrorCode::kNone : result.error().code));
}

std::uint64_t generation_of(const WireQueues& queues, const std::string& name) {
  for (const auto& target : queues.targets()) {
    if (target.name == name) return target.generation;
  }
  return 0;
}

std::vector<std::uint64_t> sequences(const WireQueues::Batch& batch) {
  std::vector<std::uint64_t> numbers;
  for (const auto& bytes : batch.frames) numbers.push_back(messages::decode_frame(bytes).value().envelope.sequence);
  return numbers;
}

BOOST_AUTO_TEST_CASE(frames_are_numbered_from_one_and_droppable_ones_are_not) {
  WireQueues queues({10, 1000});
  BOOST_REQUIRE(queues.connect("n2", "tcp://127.0.0.1:1", "").has_value());
  for (int i = 0; i < 3; ++i) {
    auto state = ping(1);
    auto heat = ping(2);
    BOOST_TEST(queues.push("n2", state, false).has_value());
    BOOST_TEST(queues.push("n2", heat, true).has_value());
  }
  const auto batch = queues.take("n2", generation_of(queues, "n2"), 100);
  BOOST_TEST(sequences(batch) == (std::vector<std::uint64_t>{1, 0, 2, 0, 3, 0}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_full_queue_is_an_error_that_uses_up_no_number) {
  WireQueues queues({2, 1000});
  BOOST_REQUIRE(queues.connect("n2", "tcp://127.0.0.1:1", "").has_value());
  auto frame = ping(1);
  BOOST_TEST(queues.push("n2", frame, false).has_value());
  BOOST_TEST(queues.push("n2", frame, false).has_value());
  BOOST_TEST(code(queues.push("n2", frame, false)) == "limit");
  BOOST_TEST(queues.dropped() == 1U);
  // Frames in the I/O thread's hands still count.
  const auto generation = generation_of(queues, "n2");
  auto batch = queues.take("n2", generation, 2);
  BOOST_TEST(code(queues.push("n2", frame, false)) == "limit");
  batch.sent = 1;
  batch.sent_bytes = batch.frames[0].size();
  queues.settle("n2", generation, std::move(batch));
  BOOST_TEST(queues.push("n2", frame, false).has_value());
  BOOST_TEST(sequences(queues.take("n2", generation, 10)) == (std::vector<std::uint64_t>{2, 3}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(bytes_are_bounded_as_well_as_frames) {
  WireQueues queues({1000, 100});
  BOOST_TEST(code(queues.push_reply("id", Bytes(101))) == "limit");
  for (int i = 0; i < 4; ++i) BOOST_TEST(queues.push_reply("id", Bytes(100)).has_value());
  BOOST_TEST(code(queues.push_reply("id", Bytes(1))) == "limit");
  BOOST_TEST(queues.push_reply("other", Bytes(100)).has_value());
  auto batch = queues.take_replies("id", 1);
  batch.sent = 1;
  batch.sent_bytes = 100;
  queues.settle_replies("id", std::move(batch));
  BOOST_TEST(queues.push_reply("id", Bytes(100)).has_value());
}

BOOST_AUTO_TEST_CASE(an_unknown_peer_is_an_error_and_so_is_one_given_up) {
  WireQueues queues({10, 1000});
  auto frame = ping(1);
  BOOST_TEST(code(queues.push("n2", frame, false)) == "unavailable");
  BOOST_REQUIRE(queues.connect("n2", "tcp://127.0.0.1:1", "").has_value());
  BOOST_TEST(queues.push("n2", frame, false).has_value());
  queues.give_up("n2", generation_of(queues, "n2"), "no descriptors");
  const auto refused = queues.push("n2", frame, false);
  BOOST_TEST(code(refused) == "unavailable");
  BOOST_TEST(refused.error().message == "n2: no descriptors");
  BOOST_TEST(queues.dropped() == 3U);
  BOOST_TEST(queues.targets().empty());
  BOOST_TEST(queues.connect("n2", "tcp://127.0.0.1:1", "").has_value());  // another try
  BOOST_TEST(queues.push("n2", frame, false).has_value());
}

BOOST_AUTO_TEST_CASE(another_endpoint_or_key_is_another_connection_and_the_same_ones_are_not) {
  WireQueues queues({10, 1000});
  BOOST_REQUIRE(queues.connect("n2", "tcp://127.0.0.1:1", "k").has_value());
  const auto first = generation_of(queues, "n2");
  auto frame = ping(1);
  BOOST_TEST(queues.push("n2", frame, false).has_value());
  BOOST_REQUIRE(queues.connect("n2", "tcp://127.0.0.1:1", "k").has_value());
  BOOST_TEST(generation_of(queues, "n2") == first);
  BOOST_REQUIRE(queues.connect("n2", "tcp://127.0.0.1:2", "k").has_value());
  const auto second = generation_of(queues, "n2");
  BOOST_TEST(second != first);
  BOOST_TEST(queues.dropped() == 1U);
  BOOST_TEST(queues.push("n2", frame, false).has_value());
  BOOST_TEST(queues.take("n2", first, 10).frames.empty());
  BOOST_TEST(sequences(queues.take("n2", second, 10)) == std::vector<std::uint64_t>{1},
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(the_io_thread_is_woken_once_for_many_sends) {
  WireQueues queues({10, 1000});
  BOOST_REQUIRE(queues.ready().has_value());
  BOOST_TEST(!is_awake(queues));
  BOOST_REQUIRE(queues.connect("n2", "tcp://127.0.0.1:1", "").has_value());
  BOOST_TEST(is_awake(queues));
  BOOST_TEST(queues.news().targets_changed);
  BOOST_TEST(!is_awake(queues));
  BOOST_TEST(!queues.news().targets_changed);
  auto frame = ping(1);
  for (int i = 0; i < 3; ++i) BOOST_TEST(queues.push("n2", frame, false).has_value());
  BOOST_TEST(is_awake(queues));
  (void)queues.news();
  BOOST_TEST(!is_awake(queues));
  queues.allow("n3", "key");
  BOOST_TEST(is_awake(queues));
  BOOST_TEST(queues.news().allowed.size() == 1U);
  BOOST_TEST(queues.news().allowed.empty());
}

BOOST_AUTO_TEST_CASE(answers_wait_per_connection_and_go_with_it) {
  WireQueues queues({2, 1000});
  BOOST_TEST(queues.empty());
  BOOST_TEST(queues.push_reply("slow", Bytes(1)).has_value());
  BOOST_TEST(queues.push_reply("slow", Bytes(1)).has_value());
  BOOST_TEST(code(queues.push_reply("slow", Bytes(1))) == "limit");
  BOOST_TEST(queues.push_reply("quick", Bytes(1)).has_value());  // not held up by the slow one
  BOOST_TEST(queues.reply_ids().size() == 2U);
  auto batch = queues.take_replies("quick", 10);
  batch.sent = 1;
  batch.sent_bytes = 1;
  queues.settle_replies("quick", std::move(batch));
  BOOST_TEST(queues.reply_ids() == std::vector<std::string>{"slow"}, boost::test_tools::per_element());
  const auto taken = queues.take_replies("slow", 1);
  BOOST_TEST(!queues.empty());
  queues.drop_replies("slow", taken);
  BOOST_TEST(queues.empty());
  BOOST_TEST(queues.dropped() == 3U);
}

BOOST_AUTO_TEST_CASE(after_stop_nothing_more_gets_in) {
  WireQueues queues({10, 1000});
  BOOST_REQUIRE(queues.connect("n2", "tcp://127.0.0.1:1", "").has_value());
  auto frame = ping(1);
  BOOST_TEST(queues.push("n2", frame, false).has_value());
  const auto when = std::chrono::steady_clock::now();
  queues.stop(when);
  queues.stop(when + std::chrono::hours{1});  // the first call counts
  BOOST_TEST((queues.news().stop_at == when));
  BOOST_TEST(code(queues.push("n2", frame, false)) == "aborted");
  BOOST_TEST(code(queues.push_reply("id", Bytes(1))) == "aborted");
  BOOST_TEST(code(queues.connect("n3", "tcp://127.0.0.1:1", "")) == "aborted");
  BOOST_TEST(!queues.empty());  // what was in may still be sent
}

BOOST_AUTO_TEST_CASE(peers_are_bounded) {
  WireQueues queues({1, 1000});
  int taken = 0;
  while (queues.connect(std::to_string(taken), "tcp://127.0.0.1:1", "").has_value()) ++taken;
  BOOST_TEST(taken == 1024);
  BOOST_TEST(code(queues.connect("more", "tcp://127.0.0.1:1", "")) == "limit");
  queues.disconnect("0");
  BOOST_TEST(queues.connect("more", "tcp://127.0.0.1:1", "").has_value());
}

BOOST_AUTO_TEST_CASE(endpoints_are_read_strictly) {
  for (const char* good :
       {"tcp://127.0.0.1:1", "tcp://[::1]:65535", "tcp://node-1.example_x:7001", "tcp://[fe80::1%eth0]:1"}) {
    BOOST_TEST(endpoint_host(good).has_value(), good);
  }
  BOOST_TEST(endpoint_host("tcp://[::1]:7").value() == "::1");
  for (const char* bad :
       {"", "tcp://", "tcp://:1", "tcp://h", "tcp://h:", "tcp://h:0", "tcp://h:65536", "tcp://h:1x", "udp://h:1",
        "ipc:///tmp/x:1", "tcp://a;b:1", "tcp://a b:1", "tcp://a/b:1", "tcp://::1:7", "tcp://[]:7", "tcp://h:*"}) {
    const auto host = endpoint_host(bad);
    BOOST_REQUIRE_MESSAGE(!host.has_value(), bad);
    BOOST_TEST(host.error().message.find("tcp://host:port") != std::string::npos);
  }
  BOOST_TEST(!endpoint_host("tcp://" + std::string(1000, 'a') + ":1").has_value());
}

BOOST_AUTO_TEST_CASE(only_loopback_is_loopback) {
  for (const char* yes : {"127.0.0.1", "127.255.0.9", "::1", "localhost"}) BOOST_TEST(is_loopback(yes), yes);
  for (const char* no :
       {"0.0.0.0", "::", "10.0.0.1", "127.0.0.1.evil.example", "127.evil", "*", "", "eth0", "localhost.evil"}) {
    BOOST_TEST(!is_loopback(no), no);
  }
  BOOST_TEST(bind_endpoint("::1", 0) == "tcp://[::1]:*");
  BOOST_TEST(bind_endpoint("localhost", 7) == "tcp://127.0.0.1:7");
}

}  // namespace
}  // namespace troupe::cluster
