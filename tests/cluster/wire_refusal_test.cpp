#define BOOST_TEST_MODULE cluster_wire_refusal
#include <random>

#include <boost/test/unit_test.hpp>
#include <zmq.hpp>

#include "tests/cluster/wire_support.hpp"

// What strangers, noise and confused peers can do to a wire: be counted, and named once in the log.

namespace troupe::cluster {
namespace {

using namespace wire_test;

/// A wire with keys, and one peer on its list.
struct Guarded {
  CurveKeys keys = make_curve_keys();
  CurveKeys friend_keys = make_curve_keys();
  Party wire{with_keys("n1", keys, {{"n2", friend_keys.public_key}})};

  /// It serves on: a friend is heard and answered.
  void still_serves() {
    wire.echo();
    Party peer(with_keys("n2", friend_keys, {}));
    BOOST_REQUIRE(peer->connect("n1", wire->endpoint(), keys.public_key).has_value());
    BOOST_REQUIRE(peer->send("n1", ping("n2", 7, "n1")).has_value());
    const auto answer = peer.wait_for(1);
    BOOST_TEST(std::get<messages::Pong>(answer.frame.payload).cookie == 7U);
  }
};

/// A bare ZeroMQ peer that says what it likes.
class Dealer {
 public:
  explicit Dealer(const std::string& endpoint) : Dealer(endpoint, {}, {}) {}
  Dealer(const std::string& endpoint, const CurveKeys& keys, const std::string& server_key)
      : socket_(context_, zmq::socket_type::dealer) {
    socket_.set(zmq::sockopt::linger, 0);
    socket_.set(zmq::sockopt::reconnect_ivl, 10);
    socket_.set(zmq::sockopt::rcvhwm, 4);
    if (!keys.public_key.empty()) {
      socket_.set(zmq::sockopt::curve_publickey, keys.public_key);
      socket_.set(zmq::sockopt::curve_secretkey, keys.secret_key);
      socket_.set(zmq::sockopt::curve_serverkey, server_key);
    }
    socket_.connect(endpoint);
  }
  void say(const std::string& bytes, bool more = false) {
    (void)socket_.send(zmq::buffer(bytes), more ? zmq::send_flags::sndmore : zmq::send_flags::none);
  }
  void say(const messages::Frame& frame) {
    const auto bytes = messages::encode_frame(frame);
    say(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
  messages::Frame hear() {
    socket_.set(zmq::sockopt::rcvtimeo, static_cast<int>(std::chrono::milliseconds(kPatience).count()));
    zmq::message_t message;
    BOOST_REQUIRE_MESSAGE(socket_.recv(message).has_value(), "no answer");
    auto frame = messages::decode_frame(std::span(static_cast<const std::byte*>(message.data()), message.size()));
    BOOST_REQUIRE(frame.has_value());
    return std::move(*frame);
  }
  std::string hear_rejection() {
    const auto frame = hear();
    const auto* reject = std::get_if<messages::Reject>(&frame.payload);
    BOOST_REQUIRE(reject != nullptr);
    return std::string(to_string(static_cast<ErrorCode>(reject->code))) + ": " + reject->message;
  }

 private:
  zmq::context_t context_{1};
  zmq::socket_t socket_;
};

std::string noise(std::uint64_t seed, std::size_t size) {
  std::mt19937_64 random(seed);
  std::string bytes(size, '\0');
  for (auto& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

/// The greeting of ZMTP 3.0 with its mechanism's name: what a decent connection begins with.
std::string greeting(const std::string& mechanism) {
  std::string bytes("\xff\0\0\0\0\0\0\0\x01\x7f\x03\0", 12);
  bytes += mechanism + std::string(20 - mechanism.size(), '\0');
  return bytes + std::string(32, '\0');
}

BOOST_AUTO_TEST_CASE(a_key_that_is_not_on_the_list_gets_nothing_and_is_named_once) {
  Guarded guarded;
  const auto stranger_keys = make_curve_keys();
  Dealer stranger(guarded.wire->endpoint(), stranger_keys, guarded.keys.public_key);
  Dealer again(guarded.wire->endpoint(), stranger_keys, guarded.keys.public_key);
  stranger.say(ping("n2", 1));
  again.say(ping("n2", 1));
  BOOST_TEST(eventually([&] { return guarded.wire->stats().refused_handshakes >= 2; }));
  BOOST_TEST(guarded.wire.logged("key '" + stranger_keys.public_key + "' is not on the list") == 1U);
  BOOST_TEST(guarded.wire.heard_count() == 0U);
  guarded.still_serves();
  BOOST_TEST(guarded.wire.heard_count() == 1U);
}

BOOST_AUTO_TEST_CASE(a_peer_without_keys_gets_nothing) {
  Guarded guarded;
  Dealer bare(guarded.wire->endpoint());
  bare.say(ping("n2", 1));
  BOOST_TEST(eventually([&] { return guarded.wire->stats().refused_handshakes >= 1; }));
  BOOST_TEST(guarded.wire.heard_count() == 0U);
  guarded.still_serves();
}

BOOST_AUTO_TEST_CASE(a_peer_that_has_our_key_wrong_gets_nothing) {
  Guarded guarded;
  Dealer confused(guarded.wire->endpoint(), guarded.friend_keys, make_curve_keys().public_key);
  confused.say(ping("n2", 1));
  BOOST_TEST(eventually([&] { return guarded.wire->stats().refused_handshakes >= 1; }));
  BOOST_TEST(guarded.wire.logged("it has no key, or not ours") == 1U);
  BOOST_TEST(guarded.wire.heard_count() == 0U);
  guarded.still_serves();
}

BOOST_AUTO_TEST_CASE(a_key_may_be_allowed_later) {
  Guarded guarded;
  const auto late_keys = make_curve_keys();
  Dealer late(guarded.wire->endpoint(), late_keys, guarded.keys.public_key);
  late.say(ping("n3", 1));
  BOOST_TEST(eventually([&] { return guarded.wire->stats().refused_handshakes >= 1; }));
  BOOST_REQUIRE(guarded.wire->allow({{"n3", late_keys.public_key}}).has_value());
  BOOST_TEST(guarded.wire.wait_for(1).from.name == "n3");
}

BOOST_AUTO_TEST_CASE(C37_a_kilobyte_of_noise_is_closed_and_counted) {
  Guarded guarded;
  Party bare(plain("n1"));
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    BOOST_TEST_CONTEXT("noise(" << seed << ", 1024)") {
      for (auto* port : {&guarded.wire, &bare}) {
        const auto refused = (*port)->stats().refused_handshakes;
        RawTcp tcp(port_of((*port)->endpoint()));
        tcp.send(noise(seed, 1024));
        BOOST_TEST(tcp.closed_by_peer());
        BOOST_TEST(eventually([&] { return (*port)->stats().refused_handshakes > refused; }));
      }
    }
  }
  BOOST_TEST(guarded.wire.heard_count() == 0U);
  BOOST_TEST(bare.heard_count() == 0U);
  BOOST_TEST(bare->stats().refused_frames == 0U);  // not even as far as the decoder
  BOOST_TEST(bare.logged("refused a connection") >= 1U);
  BOOST_TEST(bare.logged("refused a connection") <= 4U);  // once a kind, not once a connection
  guarded.still_serves();
}

BOOST_AUTO_TEST_CASE(C37_a_valid_greeting_and_then_garbage_is_closed_and_counted) {
  Guarded guarded;
  Party bare(plain("n1"));
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    BOOST_TEST_CONTEXT("noise(" << seed << ", 1024)") {
      for (auto* port : {&guarded.wire, &bare}) {
        RawTcp tcp(port_of((*port)->endpoint()));
        // A command frame of 200 bytes, so that the garbage is all there and not the beginning of something long.
        tcp.send(greeting(port == &bare ? "NULL" : "CURVE") + std::string("\x04\xc8", 2) + noise(seed, 1024));
        BOOST_TEST(tcp.closed_by_peer());
      }
    }
  }
  BOOST_TEST(eventually([&] { return guarded.wire->stats().refused_handshakes >= 20; }));
  BOOST_TEST(eventually([&] { return bare->stats().refused_handshakes >= 20; }));
  BOOST_TEST(guarded.wire.heard_count() + bare.heard_count() == 0U);
  guarded.still_serves();
}

BOOST_AUTO_TEST_CASE(C37_half_a_handshake_holds_nobody_up) {
  Guarded guarded;
  std::vector<std::unique_ptr<RawTcp>> half_open;
  for (int i = 0; i < 50; ++i) {
    half_open.push_back(std::make_unique<RawTcp>(port_of(guarded.wire->endpoint())));
    half_open.back()->send(greeting("CURVE").substr(0, static_cast<std::size_t>(i)));
  }
  guarded.still_serves();
  half_open.clear();
  guarded.still_serves();
}

BOOST_AUTO_TEST_CASE(C37_frames_that_do_not_decode_are_answered_with_a_rejection) {
  Guarded guarded;
  Dealer peer(guarded.wire->endpoint(), guarded.friend_keys, guarded.keys.public_key);
  peer.say("");
  BOOST_TEST(peer.hear_rejection().find("bad_message: ") == 0U);
  peer.say(std::string("\xdd\xff\0\0\0", 5));
  BOOST_TEST(peer.hear_rejection().find("limit: ") == 0U);
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    peer.say(noise(seed, 1024));
    (void)peer.hear_rejection();
  }
  auto frame = ping("n2", 1);
  auto bytes = messages::encode_frame(frame);
  bytes.resize(bytes.size() - 1);
  peer.say(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  BOOST_TEST(peer.hear_rejection().find("bad_message: ") == 0U);
  frame.envelope.version = 9;
  peer.say(frame);
  BOOST_TEST(peer.hear_rejection().find("mismatch: frame: wire version 9, ours is 1") == 0U);
  peer.say("one", true);
  peer.say("two");
  BOOST_TEST(peer.hear_rejection().find("a message of 2 parts") != std::string::npos);
  BOOST_TEST(guarded.wire->stats().refused_frames == 25U);
  BOOST_TEST(guarded.wire.logged("refused a frame") >= 3U);
  BOOST_TEST(guarded.wire.logged("refused a frame") <= 4U);  // once a kind, not once a frame
  BOOST_TEST(guarded.wire.heard_count() == 0U);
  peer.say(ping("n2", 3));  // the connection is as good as before
  BOOST_TEST(std::get<messages::Ping>(guarded.wire.wait_for(1).frame.payload).cookie == 3U);
}

BOOST_AUTO_TEST_CASE(nobody_speaks_under_the_name_of_another) {
  Guarded guarded;
  const auto other_keys = make_curve_keys();
  BOOST_REQUIRE(guarded.wire->allow({{"n3", other_keys.public_key}}).has_value());
  Dealer peer(guarded.wire->endpoint(), guarded.friend_keys, guarded.keys.public_key);
  peer.say(ping("n3", 1));
  BOOST_TEST(peer.hear_rejection().find("refused: a frame that says it is from \"n3\"") == 0U);
  peer.say(ping("coordinator", 1));
  BOOST_TEST(peer.hear_rejection().find("refused: ") == 0U);
  BOOST_TEST(guarded.wire->stats().refused_frames == 2U);
  BOOST_TEST(guarded.wire.heard_count() == 0U);
  // Two processes of a node may share a key; it then has two names.
  BOOST_REQUIRE(guarded.wire->allow({{"n2b", guarded.friend_keys.public_key}}).has_value());
  peer.say(ping("n2", 1));
  BOOST_TEST(guarded.wire.wait_for(1).from.name == "n2");
  BOOST_TEST(eventually([&] {
    peer.say(ping("n2b", 1));
    return guarded.wire.heard_count() >= 2 && guarded.wire.heard().back().from.name == "n2b";
  }));
}

BOOST_AUTO_TEST_CASE(who_we_connected_to_cannot_answer_as_another) {
  Party asked(plain("n2"));
  Party asks(plain("n1"));
  asked.echo();
  BOOST_REQUIRE(asks->connect("n2", asked->endpoint(), "").has_value());
  BOOST_REQUIRE(asks->send("n2", ping("n1", 1, "n3")).has_value());  // echo answers from whom it was addressed to
  BOOST_TEST(eventually([&] { return asks->stats().refused_frames == 1; }));
  BOOST_REQUIRE(asks->send("n2", ping("n1", 2, "n2")).has_value());
  BOOST_TEST(std::get<messages::Pong>(asks.wait_for(1).frame.payload).cookie == 2U);
  BOOST_TEST(asked->stats().received == 2U);  // no rejection went back: two confused peers stay quiet
}

BOOST_AUTO_TEST_CASE(C37_an_answer_lost_half_way_is_counted_and_the_wire_serves_on) {
  Party door(plain("n1"));
  PeerHandle gone;
  {
    Dealer client(door->endpoint());
    client.say(ping("client", 1));
    gone = door.wait_for(1).from;
    messages::Frame large = ping("n1", 0);
    messages::Answer answer;
    answer.hidden.resize(std::size_t{16} << 20);
    large.payload = answer;
    BOOST_REQUIRE(
        door->reply(gone, large).has_value());  // more than the connection holds: it dies with part of it sent
  }
  BOOST_TEST(eventually([&] {
    (void)door->reply(gone, ping("n1", 0));
    return door->stats().dropped_sends > 0;
  }));
  Dealer next(door->endpoint());
  door.echo();
  next.say(ping("client", 2, "n1"));
  BOOST_TEST(std::get<messages::Pong>(next.hear().payload).cookie == 2U);
}

BOOST_AUTO_TEST_CASE(a_client_that_does_not_read_fills_its_own_queue_only) {
  auto options = plain("n1");
  options.high_water_mark = 20;
  Party door(options);
  Dealer deaf(door->endpoint());
  deaf.say(ping("client", 1));
  const auto to = door.wait_for(1).from;
  messages::Frame large = ping("n1", 0);
  messages::Answer answer;
  answer.hidden.resize(std::size_t{4} << 20);
  large.payload = answer;
  // Its kernel, ZeroMQ on both sides and our queue take some; then we are told.
  bool full = false;
  for (int i = 0; i < 2'000 && !full; ++i) full = !door->reply(to, large).has_value();
  BOOST_TEST(full);
  Dealer quick(door->endpoint());
  door.echo();
  quick.say(ping("client", 2, "n1"));
  BOOST_TEST(std::get<messages::Pong>(quick.hear().payload).cookie == 2U);
}

BOOST_AUTO_TEST_CASE(a_frame_beyond_the_limit_costs_its_sender_the_connection) {
  auto options = plain("n1");
  options.max_frame_bytes = 10'000;
  Party wire(options);
  {
    Dealer peer(wire->endpoint());
    peer.say(ping("n2", 1));
    (void)wire.wait_for(1);
    peer.say(std::string(10'001, 'x'));
    peer.say(ping("n2", 2));  // lost with the connection, or sent over a new one: not our concern here
  }
  wire.echo();
  Dealer next(wire->endpoint());
  next.say(ping("n3", 3, "n1"));
  BOOST_TEST(std::get<messages::Pong>(next.hear().payload).cookie == 3U);
  BOOST_TEST(wire->stats().refused_frames == 0U);
}

}  // namespace
}  // namespace troupe::cluster
