#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <vector>

#include <msgpack/pack.hpp>

/// What the encoder writes with. Internal to the codec.
namespace troupe::messages::detail {

static_assert(std::endian::native == std::endian::little,
              "bulk vectors are copied as they are: little-endian on the wire");

/// What msgpack-c's packer writes into.
struct ByteSink {
  ByteSink() { bytes.reserve(512); }  // most control messages, so that they grow once

  std::vector<std::byte> bytes;
  void write(const char* data, std::size_t size);  // in codec.cpp: inlined it makes every message slow to compile
};
class Packer : public msgpack::packer<ByteSink> {
 public:
  explicit Packer(ByteSink& sink) : msgpack::packer<ByteSink>(sink), sink_(sink) {}

  // msgpack-c's own pack_float and pack_double write whole numbers as integers, which loses the type and the sign of
  // -0.
  void pack_float32(float value) { pack_bits(0xca, std::bit_cast<std::uint32_t>(value)); }
  void pack_float64(double value) { pack_bits(0xcb, std::bit_cast<std::uint64_t>(value)); }

 private:
  template <class Bits>
  void pack_bits(unsigned char tag, Bits bits) {
    char item[1 + sizeof(Bits)] = {static_cast<char>(tag)};
    for (std::size_t i = sizeof(Bits); i > 0; --i, bits >>= 8) item[i] = static_cast<char>(bits & 0xffU);
    sink_.write(item, sizeof(item));
  }
  ByteSink& sink_;
};

/// A size as msgpack can say it. Sizes come from our own structs, whose limits are far below: beyond 32 bits is a bug.
inline std::uint32_t checked_size(std::size_t size) {
  if (size > std::numeric_limits<std::uint32_t>::max()) {
    std::fprintf(stderr, "troupe: a message part of %zu bytes or elements cannot be encoded\n", size);
    std::abort();
  }
  return static_cast<std::uint32_t>(size);
}

}  // namespace troupe::messages::detail
