#define BOOST_TEST_MODULE messages_codec_mutation
#include <algorithm>
#include <array>
#include <cstdlib>
#include <new>
#include <random>

#include <boost/test/unit_test.hpp>

#include "tests/messages/samples.hpp"

// Every allocation of this program is counted, so that the test sees what a decoder asks for on bad input.
namespace {
std::size_t allocated = 0;
void* count_and_allocate(std::size_t size) {
  allocated += size;
  if (void* memory = std::malloc(std::max<std::size_t>(size, 1))) return memory;
  throw std::bad_alloc();
}
}  // namespace
void* operator new(std::size_t size) {
  return count_and_allocate(size);
}
void* operator new[](std::size_t size) {
  return count_and_allocate(size);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace troupe::messages {
namespace {

using Bytes = std::vector<std::byte>;

std::uint64_t seed() {
  const char* given = std::getenv("TROUPE_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 0) : 35;
}

// Heads of msgpack items that claim more than there is, and other bytes that decoders trip over.
const std::array<std::string_view, 14> kNasty{
    "ddffffffff", "dd00000100", "dfffffffff", "c6ffffffff",         "dbffffffff",         "dcffff",      "deffff", "c1",
    "c0",         "9f",         "8f",         "cb7ff8000000000000", "d3ffffffffffffffff", "c9ffffffff00"};

class Mutator {
 public:
  explicit Mutator(std::uint64_t from) : random_(from) {}

  std::size_t below(std::size_t bound) { return std::uniform_int_distribution<std::size_t>(0, bound - 1)(random_); }

  void mutate(Bytes& bytes, const Bytes& other) {
    if (bytes.empty()) bytes.push_back(std::byte{0});
    const auto at = below(bytes.size());
    const auto place = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    switch (below(7)) {
      case 0:
        bytes[at] ^= static_cast<std::byte>(1U << below(8));
        break;
      case 1:
        bytes[at] = static_cast<std::byte>(below(256));
        break;
      case 2:
        bytes.insert(place, static_cast<std::byte>(below(256)));
        break;
      case 3:
        bytes.erase(place);
        break;
      case 4: {
        const auto nasty = samples::unhex(kNasty[below(kNasty.size())]);
        std::copy_n(nasty.begin(), std::min(nasty.size(), bytes.size() - at), place);
        break;
      }
      case 5: {
        const auto nasty = samples::unhex(kNasty[below(kNasty.size())]);
        bytes.insert(place, nasty.begin(), nasty.end());
        break;
      }
      default: {
        const auto from = static_cast<std::ptrdiff_t>(below(other.size()));
        bytes.resize(at);
        bytes.insert(bytes.end(), other.begin() + from, other.end());
      }
    }
  }

 private:
  std::mt19937_64 random_;
};

BOOST_AUTO_TEST_CASE(C35_a_hundred_thousand_mutations_do_no_harm) {
  const auto from = seed();
  BOOST_TEST_MESSAGE("repeat with TROUPE_SEED=" << from << " messages_codec_mutation_test");
  std::vector<Bytes> seeds;
  for (const auto& [name, frame] : samples::frames()) seeds.push_back(encode_frame(frame));
  Mutator mutator(from);
  std::size_t taken = 0;
  for (int i = 0; i < 100'000; ++i) {
    auto bytes = seeds[mutator.below(seeds.size())];
    const auto& other = seeds[mutator.below(seeds.size())];
    for (auto rounds = 1 + mutator.below(4); rounds > 0; --rounds) mutator.mutate(bytes, other);

    const auto before = allocated;
    const auto frame = decode_frame(bytes);
    const auto used = allocated - before;
    BOOST_REQUIRE_MESSAGE(used <= 64 * bytes.size() + 4096,
                          "mutation " << i << ": " << used << " bytes allocated for " << samples::hex(bytes));
    if (!frame) {
      BOOST_REQUIRE(frame.error().code != ErrorCode::kNone);
      BOOST_REQUIRE(frame.error().message.size() < 1000);
      continue;
    }
    ++taken;
    // What was taken has one meaning: said again it is the same. Bytes, since NaN in a bulk vector equals nothing.
    const auto again = encode_frame(*frame);
    const auto twice = decode_frame(again);
    BOOST_REQUIRE_MESSAGE(twice.has_value(), "mutation " << i << ": " << samples::hex(bytes));
    BOOST_REQUIRE_MESSAGE(encode_frame(*twice) == again, "mutation " << i << ": " << samples::hex(bytes));
  }
  BOOST_TEST_MESSAGE(taken << " of 100000 mutations were still frames");
  BOOST_TEST(taken > 1'000U);   // mutations reach past the envelope
  BOOST_TEST(taken < 90'000U);  // and most of them break something
}

}  // namespace
}  // namespace troupe::messages
