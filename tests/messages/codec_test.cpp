#define BOOST_TEST_MODULE messages_codec
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include <boost/test/unit_test.hpp>

#include "messages/codec_templates.hpp"
#include "tests/messages/samples.hpp"

namespace troupe::messages {

// A struct of every kind of field that the codec knows.
enum class Colour : std::uint8_t { kRed = 0, kBlue = 1 };
constexpr bool is_known(Colour colour) {
  return colour <= Colour::kBlue;
}
enum class Loose : std::int8_t { kMinus = -1 };

struct Inner {
  std::string text;
  static constexpr std::string_view kName = "Inner";
  static constexpr auto kFields = std::tuple{field("text", &Inner::text)};
  friend bool operator==(const Inner&, const Inner&) = default;
};

struct Everything {
  bool flag = false;
  std::int8_t tiny = 0;
  std::int64_t wide = 0;
  Colour colour = Colour::kRed;
  Loose loose{};
  float single = 0;
  double real = 0;
  StepId step;
  std::vector<Inner> inners;
  std::vector<double> reals;
  std::map<std::string, std::uint32_t> counts;
  std::optional<Inner> maybe;
  std::uint32_t later = 5;
  static constexpr std::string_view kName = "Everything";
  static constexpr auto kFields =
      std::tuple{field("flag", &Everything::flag),           field("tiny", &Everything::tiny),
                 field("wide", &Everything::wide),           field("colour", &Everything::colour),
                 field("loose", &Everything::loose),         field("single", &Everything::single),
                 field("real", &Everything::real),           field("step", &Everything::step),
                 field("inners", &Everything::inners),       field("reals", &Everything::reals),
                 field("counts", &Everything::counts),       field("maybe", &Everything::maybe),
                 optional_field("later", &Everything::later)};
  friend bool operator==(const Everything&, const Everything&) = default;
};

// What Ping looks like to a newer release, and to one from before the cookie.
struct PingLater {
  std::uint64_t cookie = 0;
  std::vector<Inner> more;
  std::map<std::string, std::string> notes;
  static constexpr std::string_view kName = "PingLater";
  static constexpr auto kFields = std::tuple{field("cookie", &PingLater::cookie), field("more", &PingLater::more),
                                             field("notes", &PingLater::notes)};
};

namespace {

using samples::unhex;

Everything everything() {
  return {true,
          -128,
          std::numeric_limits<std::int64_t>::min(),
          Colour::kBlue,
          Loose::kMinus,
          0.1F,
          -1e300,
          {PassNumber{9}, 3},
          {{"a"}, {""}},
          {0.5, -0.0},
          {{"x", 1}, {"y", 4'000'000'000U}},
          Inner{"in"},
          6};
}

template <class T>
void refuses(std::string_view hex, ErrorCode code, std::string_view says, const CodecLimits& limits = {}) {
  const auto result = decode<T>(unhex(hex), limits);
  BOOST_REQUIRE_MESSAGE(!result.has_value(), hex << " was taken");
  BOOST_TEST(to_string(result.error().code) == to_string(code), result.error().message);
  BOOST_TEST(result.error().message.find(says) != std::string::npos,
             "'" << result.error().message << "' lacks '" << says << "'");
}

BOOST_AUTO_TEST_CASE(every_kind_of_field_comes_back_as_it_went) {
  const auto value = everything();
  const auto back = decode<Everything>(encode(value));
  BOOST_REQUIRE_MESSAGE(back.has_value(), (back ? "" : back.error().message));
  BOOST_TEST((*back == value));
  BOOST_TEST(std::signbit(back->reals[1]));
  BOOST_TEST((decode<Everything>(encode(Everything{})).value() == Everything{}));
}

BOOST_AUTO_TEST_CASE(C35_five_bytes_cannot_ask_for_gigabytes) {
  const CodecLimits wide{.max_elements = 0xffffffffU};  // so that the bytes received are what refuses
  refuses<std::vector<std::uint64_t>>("dd ff000000", ErrorCode::kBadMessage, "only 0 bytes follow", wide);
  refuses<std::vector<std::uint64_t>>("dd ff000000", ErrorCode::kLimit, "the limit is 1048576");
  refuses<std::map<std::string, std::uint32_t>>("df ff000000", ErrorCode::kBadMessage, "only 0 bytes follow", wide);
  refuses<std::vector<std::byte>>("c6 ffffffff", ErrorCode::kBadMessage,
                                  "a bin of 4294967295 bytes, but only 0 follow");
  refuses<std::string>("db ffffffff", ErrorCode::kBadMessage, "a string of 4294967295 bytes");
  refuses<ViewPublished>("92 00 dd 000fffff", ErrorCode::kBadMessage, "ViewPublished.members: byte 2");
  const auto frame = decode_frame(unhex("dd ff000000"));
  BOOST_REQUIRE(!frame.has_value());
  BOOST_TEST(to_string(frame.error().code) == to_string(ErrorCode::kLimit));
}

BOOST_AUTO_TEST_CASE(C35_counts_are_tied_to_what_their_elements_need) {
  // Two members need at least 16 bytes; eight follow.
  refuses<ViewPublished>("92 00 92 0000000000000000", ErrorCode::kBadMessage,
                         "an array of 2 elements, but only 8 bytes");
}

BOOST_AUTO_TEST_CASE(C35_ten_thousand_levels_are_refused_at_the_limit) {
  std::string deep = "92 01";  // Ping with an unknown field that is all nesting
  for (int i = 0; i < 10'000; ++i) deep += "91";
  deep += "01";
  refuses<Ping>(deep, ErrorCode::kLimit, "nested deeper than 16");
  const std::vector<std::byte> levels(10'000, std::byte{0x91});
  BOOST_TEST(!decode_frame(levels).has_value());
  BOOST_TEST(!decode<Join>(levels).has_value());
}

BOOST_AUTO_TEST_CASE(C35_wrong_types_are_named_with_place) {
  refuses<Ping>("91 a130", ErrorCode::kBadMessage, "Ping.cookie: byte 1: a string where an integer belongs");
  refuses<Ping>("81 a101", ErrorCode::kBadMessage, "Ping: byte 0: a map where an array belongs");
  refuses<Ping>("91 ff", ErrorCode::kBadMessage, "-1 is below 0");
  refuses<Ping>("91 c3", ErrorCode::kBadMessage, "a bool where an integer belongs");
  refuses<Ping>("91 c0", ErrorCode::kBadMessage, "nil where an integer belongs");
  refuses<Ping>("91 d40100", ErrorCode::kBadMessage, "an extension where an integer belongs");
  refuses<Ping>("91 c1", ErrorCode::kBadMessage, "0xc1");
  refuses<bool>("01", ErrorCode::kBadMessage, "an integer where a bool belongs");
  refuses<double>("01", ErrorCode::kBadMessage, "an integer where a float belongs");
  refuses<std::string>("c401 61", ErrorCode::kBadMessage, "a bin where a string belongs");
  refuses<std::vector<std::byte>>("a161", ErrorCode::kBadMessage, "a string where a bin belongs");
  refuses<std::vector<float>>("91 ca3f800000", ErrorCode::kBadMessage, "an array where a bin belongs");
  refuses<std::vector<std::int32_t>>("c403 000000", ErrorCode::kBadMessage, "a bin of 3 bytes, not a multiple of 4");
  auto view = ViewPublished{View{1}, {samples::member(0), samples::member(1)}};
  auto bytes = encode(view);
  bytes[bytes.size() - 3] = std::byte{1};  // the last address' host key, a string until now
  const auto result = decode<ViewPublished>(bytes);
  BOOST_REQUIRE(!result.has_value());
  BOOST_TEST(result.error().message.find("ViewPublished.members[1].gpus[1].host_key: byte ") == 0U,
             result.error().message);
}

BOOST_AUTO_TEST_CASE(C35_duplicate_keys_are_refused) {
  refuses<std::map<std::string, std::uint32_t>>("82 a16b 01 a16b 02", ErrorCode::kBadMessage, "key 'k' comes twice");
  const auto good = decode<std::map<std::string, std::uint32_t>>(unhex("82 a16c 01 a16b 02"));
  BOOST_REQUIRE(good.has_value());
  BOOST_TEST(good->at("k") == 2U);
}

BOOST_AUTO_TEST_CASE(C35_trailing_bytes_are_refused) {
  refuses<Ping>("91 01 c0", ErrorCode::kBadMessage, "Ping: byte 2: 1 bytes follow the end");
  for (const auto& [name, frame] : samples::frames()) {
    auto bytes = encode_frame(frame);
    bytes.push_back(std::byte{0});
    BOOST_TEST(!decode_frame(bytes).has_value(), name);
  }
}

BOOST_AUTO_TEST_CASE(C35_truncation_at_every_byte_is_refused) {
  for (const auto& [name, frame] : samples::frames()) {
    const auto bytes = encode_frame(frame);
    BOOST_REQUIRE(decode_frame(bytes).has_value());
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      const std::vector<std::byte> cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
      BOOST_TEST(!decode_frame(cut).has_value(), name << " cut to " << size << " of " << bytes.size());
    }
  }
}

BOOST_AUTO_TEST_CASE(integers_are_checked_against_their_own_range) {
  refuses<std::uint8_t>("cd 0100", ErrorCode::kBadMessage, "256 is over 255");
  refuses<std::int8_t>("cc 80", ErrorCode::kBadMessage, "128 is over 127");
  refuses<std::int8_t>("d1 ff7f", ErrorCode::kBadMessage, "-129 is below -128");
  refuses<std::int64_t>("cf ffffffffffffffff", ErrorCode::kBadMessage, "is over 9223372036854775807");
  refuses<Colour>("02", ErrorCode::kBadMessage, "2 is no known value");
  refuses<NodeId>("ce 00010000", ErrorCode::kBadMessage, "65536 is over 65535");
  // Any of msgpack's widths will do for a value that fits.
  BOOST_TEST(decode<std::uint8_t>(unhex("d3 00000000000000ff")).value() == 255U);
  BOOST_TEST(decode<std::int16_t>(unhex("d3 ffffffffffff8000")).value() == -32768);
  BOOST_TEST(decode<std::uint64_t>(unhex("cf ffffffffffffffff")).value() == std::numeric_limits<std::uint64_t>::max());
  BOOST_TEST((decode<Loose>(unhex("e0")).value() == static_cast<Loose>(-32)));
}

BOOST_AUTO_TEST_CASE(scalar_floats_must_be_finite) {
  refuses<double>("cb 7ff0000000000000", ErrorCode::kBadMessage, "NaN or infinite");
  refuses<double>("cb 7ff8000000000000", ErrorCode::kBadMessage, "NaN or infinite");
  refuses<float>("ca ff800000", ErrorCode::kBadMessage, "NaN or infinite");
  refuses<std::vector<double>>("91 cb 7ff8000000000000", ErrorCode::kBadMessage, "value[0]: byte 1");
  refuses<float>("cb 3fb999999999999a", ErrorCode::kBadMessage, "a float64 that no float32 holds");
  refuses<float>("cb 7fefffffffffffff", ErrorCode::kBadMessage, "a float64 that no float32 holds");
  BOOST_TEST(decode<float>(unhex("cb 3fe0000000000000")).value() == 0.5F);
  BOOST_TEST(decode<double>(unhex("ca 3f000000")).value() == 0.5);
}

BOOST_AUTO_TEST_CASE(bulk_floats_pass_bit_for_bit) {
  const std::vector<float> odd{std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), -0.0F,
                               std::numeric_limits<float>::denorm_min()};
  const auto back = decode<std::vector<float>>(encode(odd));
  BOOST_REQUIRE(back.has_value());
  BOOST_TEST((samples::bytes_of(*back) == samples::bytes_of(odd)));
}

BOOST_AUTO_TEST_CASE(unknown_fields_at_the_end_are_skipped) {
  const PingLater later{7, {{"x"}, {"y"}}, {{"k", "v"}}};
  const auto ping = decode<Ping>(encode(later));
  BOOST_REQUIRE_MESSAGE(ping.has_value(), (ping ? "" : ping.error().message));
  BOOST_TEST(ping->cookie == 7U);
  BOOST_TEST(decode<Ping>(unhex("93 01 c70100ff 81 c0 cb7ff8000000000000")).value().cookie == 1U);  // of any kind
  refuses<Ping>("92 01 c1", ErrorCode::kBadMessage, "Ping[1]: byte 2");
  refuses<Ping>("92 01 dd 00000010 00", ErrorCode::kBadMessage, "an array of 16 elements, but only 1 bytes follow");
}

BOOST_AUTO_TEST_CASE(a_missing_field_is_refused_unless_it_is_optional) {
  refuses<Ping>("90", ErrorCode::kBadMessage, "Ping.cookie: byte 0: Ping has 0 fields; this one is missing");
  refuses<Reject>("92 a161 05", ErrorCode::kBadMessage, "Reject.message");
  auto bytes = encode(everything());
  BOOST_REQUIRE(bytes[0] == std::byte{0x9d});
  bytes.pop_back();  // `later`
  bytes[0] = std::byte{0x9c};
  auto back = decode<Everything>(bytes);
  BOOST_REQUIRE_MESSAGE(back.has_value(), (back ? "" : back.error().message));
  BOOST_TEST(back->later == 5U);
  BOOST_TEST(back->maybe.has_value());
  bytes.resize(bytes.size() - encode(Inner{"in"}).size());  // `maybe`
  bytes[0] = std::byte{0x9b};
  back = decode<Everything>(bytes);
  BOOST_REQUIRE_MESSAGE(back.has_value(), (back ? "" : back.error().message));
  BOOST_TEST(!back->maybe.has_value());
}

BOOST_AUTO_TEST_CASE(limits_on_strings_elements_and_bytes_are_kept) {
  const CodecLimits tight{.max_bytes = 16, .max_string_bytes = 4, .max_elements = 2, .max_depth = 1};
  refuses<std::string>("a5 6162636465", ErrorCode::kLimit, "a string of 5 bytes, the limit is 4", tight);
  BOOST_TEST(decode<std::string>(unhex("a4 61626364"), tight).value() == "abcd");
  refuses<std::vector<std::uint64_t>>("93 010203", ErrorCode::kLimit, "3 elements, the limit is 2", tight);
  refuses<std::vector<Inner>>("91 91 a0", ErrorCode::kLimit, "nested deeper than 1", tight);
  refuses<std::vector<std::byte>>("c40f 000000000000000000000000000000", ErrorCode::kLimit, "17 bytes, the limit is 16",
                                  tight);
  BOOST_TEST(decode<std::vector<std::byte>>(unhex("c40e 0000000000000000000000000000"), tight).value().size() == 14U);
}

BOOST_AUTO_TEST_CASE(strings_hold_any_bytes) {
  const std::string odd("\xff\x00\xc3(", 4);
  BOOST_TEST(decode<std::string>(encode(odd)).value() == odd);
  refuses<std::map<std::string, std::uint32_t>>("82 a20a1b 01 a20a1b 02", ErrorCode::kBadMessage,
                                                "key '?\?' comes twice");
}

}  // namespace
}  // namespace troupe::messages
