#define BOOST_TEST_MODULE messages_golden
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>

#include <boost/test/unit_test.hpp>

#include "tests/messages/samples.hpp"

// tests/golden/frames.txt holds the bytes of every message, so that the wire cannot change by accident. After a change
// that is meant (new message, new field at the end; anything else needs another kWireVersion), write it and the
// fuzzer's corpus again with
//   TROUPE_WRITE_GOLDEN=1 messages_golden_test
// and read the difference before you commit it.

namespace troupe::messages {
namespace {

const std::string kGoldenFile = TROUPE_SOURCE_DIR "/tests/golden/frames.txt";
const std::string kCorpus = TROUPE_SOURCE_DIR "/tests/fuzz/corpus/frame/";

void write_golden() {
  std::ofstream golden(kGoldenFile);
  golden << "# name: frame in hex. How to write this again: tests/messages/golden_test.cpp\n";
  for (const auto& [name, frame] : samples::frames()) {
    const auto bytes = encode_frame(frame);
    golden << name << ": " << samples::hex(bytes) << '\n';
    auto file = name;
    std::replace_if(
        file.begin(), file.end(), [](char c) { return c == '/' || c == ' '; }, '_');
    std::ofstream seed(kCorpus + file, std::ios::binary);
    seed.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    BOOST_REQUIRE_MESSAGE(seed.good(), "cannot write " << kCorpus + file);
  }
  BOOST_REQUIRE_MESSAGE(golden.good(), "cannot write " << kGoldenFile);
}

std::map<std::string, std::string> read_golden() {
  std::ifstream in(kGoldenFile);
  BOOST_REQUIRE_MESSAGE(in.good(), "cannot read " << kGoldenFile);
  std::map<std::string, std::string> golden;
  for (std::string line; std::getline(in, line);) {
    const auto colon = line.find(": ");
    if (line.empty() || line[0] == '#') continue;
    BOOST_REQUIRE_MESSAGE(colon != std::string::npos, kGoldenFile << ": " << line);
    BOOST_REQUIRE_MESSAGE(golden.emplace(line.substr(0, colon), line.substr(colon + 2)).second, "twice: " << line);
  }
  return golden;
}

BOOST_AUTO_TEST_CASE(every_message_has_the_bytes_that_it_always_had) {
  if (const char* write = std::getenv("TROUPE_WRITE_GOLDEN"); write != nullptr && *write == '1') write_golden();
  auto golden = read_golden();
  for (const auto& [name, frame] : samples::frames()) {
    BOOST_REQUIRE_MESSAGE(golden.count(name) == 1, name << " has no golden vector");
    BOOST_TEST(samples::hex(encode_frame(frame)) == golden[name], name);
    golden.erase(name);
  }
  for (const auto& [name, hex] : golden) BOOST_ERROR("a golden vector of no sample: " << name);
}

BOOST_AUTO_TEST_CASE(golden_bytes_decode_to_the_samples) {
  const auto golden = read_golden();
  for (const auto& [name, frame] : samples::frames()) {
    const auto found = golden.find(name);
    BOOST_REQUIRE_MESSAGE(found != golden.end(), name);
    const auto decoded = decode_frame(samples::unhex(found->second));
    BOOST_REQUIRE_MESSAGE(decoded.has_value(), name << ": " << (decoded ? "" : decoded.error().message));
    BOOST_TEST((*decoded == frame), name);
  }
}

BOOST_AUTO_TEST_CASE(every_message_that_may_travel_has_a_sample) {
  std::set<std::size_t> seen;
  for (const auto& [name, frame] : samples::frames()) seen.insert(frame.payload.index());
  BOOST_TEST(seen.size() == std::variant_size_v<Payload>);
}

}  // namespace
}  // namespace troupe::messages
