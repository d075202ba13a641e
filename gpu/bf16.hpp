#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "scheduling/model_shape.hpp"

/// bf16: the upper half of an f32. All of Troupe rounds by these functions, so that a value has the same bits wherever
/// it is rounded.
namespace troupe::gpu {

/// The one NaN that leaves a rounding: quiet, positive, no payload. Processors differ in the NaN they make.
inline constexpr std::uint16_t kBf16Nan = 0x7FC0;
inline constexpr std::uint32_t kF32Nan = 0x7FC00000;

constexpr float f32_of_bf16(std::uint16_t value) {
  return std::bit_cast<float>(std::uint32_t{value} << 16U);
}

/// To the nearest bf16, ties to even; what is beyond the largest bf16 becomes infinite, any NaN becomes kBf16Nan.
constexpr std::uint16_t bf16_of_f32(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return kBf16Nan;
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U);
}

/// The f32 that `value` is after a trip through bf16.
constexpr float rounded_to_bf16(float value) {
  return f32_of_bf16(bf16_of_f32(value));
}

/// `out` = `in` in the transport type. f32 is copied, but for NaNs, which become kF32Nan. out.size() must be in.size()
/// times the type's bytes; `out` needs no alignment. Pure; safe from any thread.
void to_transport(scheduling::TransportType type, std::span<const float> in, std::span<std::byte> out);

/// The reverse, exact. in.size() must be out.size() times the type's bytes; `in` needs no alignment.
void from_transport(scheduling::TransportType type, std::span<const std::byte> in, std::span<float> out);

/// `values` as they are after a trip through the transport type.
void round_to_transport(scheduling::TransportType type, std::span<float> values);

}  // namespace troupe::gpu
