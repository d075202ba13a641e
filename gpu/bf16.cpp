#include "gpu/bf16.hpp"

#include <cassert>
#include <cstring>

namespace troupe::gpu {
namespace {

using scheduling::TransportType;

constexpr std::uint32_t without_nan_payload(std::uint32_t bits) {
  return (bits & 0x7FFFFFFFU) > 0x7F800000U ? kF32Nan : bits;
}

}  // namespace

// Loops over memcpy: the bytes need no alignment, and compilers turn them into vector loads and stores.

void to_transport(TransportType type, std::span<const float> in, std::span<std::byte> out) {
  assert(out.size() == in.size() * scheduling::bytes_of(type));
  std::byte* to = out.data();
  const float* from = in.data();
  if (type == TransportType::kBf16) {
    for (std::size_t i = 0; i < in.size(); ++i) {
      const std::uint16_t value = bf16_of_f32(from[i]);
      std::memcpy(to + 2 * i, &value, 2);
    }
    return;
  }
  for (std::size_t i = 0; i < in.size(); ++i) {
    const std::uint32_t value = without_nan_payload(std::bit_cast<std::uint32_t>(from[i]));
    std::memcpy(to + 4 * i, &value, 4);
  }
}

void from_transport(TransportType type, std::span<const std::byte> in, std::span<float> out) {
  assert(in.size() == out.size() * scheduling::bytes_of(type));
  const std::byte* from = in.data();
  float* to = out.data();
  if (type == TransportType::kF32) {
    if (!in.empty()) std::memcpy(to, from, in.size());
    return;
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t value = 0;
    std::memcpy(&value, from + 2 * i, 2);
    to[i] = f32_of_bf16(value);
  }
}

void round_to_transport(TransportType type, std::span<float> values) {
  if (type == TransportType::kBf16) {
    for (float& value : values) value = rounded_to_bf16(value);
    return;
  }
  for (float& value : values) value = std::bit_cast<float>(without_nan_payload(std::bit_cast<std::uint32_t>(value)));
}

}  // namespace troupe::gpu
