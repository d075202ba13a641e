#define BOOST_TEST_MODULE messages_envelope
#include <boost/test/unit_test.hpp>

#include "tests/messages/samples.hpp"

namespace troupe::messages {
namespace {

using samples::unhex;

void refuses(std::string_view hex, ErrorCode code, std::string_view says) {
  const auto result = decode_frame(unhex(hex));
  BOOST_REQUIRE_MESSAGE(!result.has_value(), hex << " was taken");
  BOOST_TEST(to_string(result.error().code) == to_string(code), result.error().message);
  BOOST_TEST(result.error().message.find(says) != std::string::npos,
             "'" << result.error().message << "' lacks '" << says << "'");
}

BOOST_AUTO_TEST_CASE(every_frame_comes_back_as_it_went) {
  for (const auto& [name, frame] : samples::frames()) {
    const auto back = decode_frame(encode_frame(frame));
    BOOST_REQUIRE_MESSAGE(back.has_value(), name << ": " << (back ? "" : back.error().message));
    BOOST_TEST((*back == frame), name);
    BOOST_TEST(payload_name(back->payload) == name.substr(0, name.find('/')));
  }
}

BOOST_AUTO_TEST_CASE(another_version_is_refused_before_anything_else) {
  // All but the version is garbage, or of a shape that this release cannot know.
  refuses("91 91 02", ErrorCode::kMismatch, "wire version 2, ours is 1");
  refuses("94 92 00 c1 c1", ErrorCode::kMismatch, "wire version 0, ours is 1");
  refuses("93 97 cf ffffffffffffffff", ErrorCode::kMismatch, "wire version 18446744073709551615, ours is 1");
  auto frame = Frame{samples::envelope(), Ping{1}};
  frame.envelope.version = 2;
  const auto result = decode_frame(encode_frame(frame));
  BOOST_REQUIRE(!result.has_value());
  BOOST_TEST(to_string(result.error().code) == to_string(ErrorCode::kMismatch));
}

BOOST_AUTO_TEST_CASE(what_is_no_frame_is_refused_with_its_place) {
  refuses("", ErrorCode::kBadMessage, "the input ends where a value belongs");
  refuses("01", ErrorCode::kBadMessage, "an integer where an array belongs");
  refuses("93 a161 00", ErrorCode::kBadMessage, "a string where an array belongs");
  refuses("93 90 a0 90", ErrorCode::kBadMessage, "");
  refuses("92 97 01 a0 a0 00 00 00 00 a450696e67", ErrorCode::kBadMessage, "a frame has 3 parts");
  refuses("93 97 01 a0 a0 00 00 00 00 a450696e68 91 00", ErrorCode::kBadMessage, "no message is called 'Pinh'");
  refuses("93 97 01 a0 a0 00 00 00 00 a450696e67 91 a0", ErrorCode::kBadMessage, "frame Ping.cookie");
  refuses("93 97 01 a0 05 00 00 00 00 a450696e67 91 00", ErrorCode::kBadMessage, "frame Envelope.to");
  BOOST_TEST(decode_frame(unhex("93 97 01 a0 a0 00 00 00 00 a450696e67 91 00")).has_value());
}

BOOST_AUTO_TEST_CASE(names_from_the_network_are_shown_harmless_and_short) {
  const auto evil = decode_frame(unhex("93 97 01 a0 a0 00 00 00 00 a3 1b5b41 91 00"));
  BOOST_REQUIRE(!evil.has_value());
  BOOST_TEST(evil.error().message.find("'?[A'") != std::string::npos, evil.error().message);
  std::string hex = "93 97 01 a0 a0 00 00 00 00 da 2710";
  for (int i = 0; i < 10'000; ++i) hex += "61";
  const auto lengthy = decode_frame(unhex(hex + "90"));
  BOOST_REQUIRE(!lengthy.has_value());
  BOOST_TEST(lengthy.error().message.size() < 200U);
}

BOOST_AUTO_TEST_CASE(a_frame_over_the_limit_is_refused_unread) {
  const auto result = decode_frame(std::vector<std::byte>(100), CodecLimits{.max_bytes = 99});
  BOOST_REQUIRE(!result.has_value());
  BOOST_TEST(to_string(result.error().code) == to_string(ErrorCode::kLimit));
  BOOST_TEST(result.error().message == "frame: 100 bytes, the limit is 99");
}

}  // namespace
}  // namespace troupe::messages
