#include "scheduling/exact_math.hpp"

#include <bit>
#include <cfloat>
#include <cstdint>
#include <limits>

namespace troupe::scheduling {
namespace {

static_assert(FLT_EVAL_METHOD == 0, "f32 arithmetic must round to f32 after every operation");
static_assert(std::numeric_limits<float>::is_iec559);

/// Arguments whose result is a normal, finite f32.
constexpr float kLowest = -87.33654F;
constexpr float kHighest = 88.72283F;

/// 2^n for -126 <= n <= 127.
inline float power_of_two(std::int32_t n) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(n + 127) << 23);
}

/// e^x for kLowest <= x <= kHighest; anything else gives something finite or NaN that the caller replaces.
inline float exp_in_range(float x) {
  constexpr float kLog2E = 1.44269504F;
  // 355/512 has 9 significant bits: n * kLn2High is exact for every n here, and so is the subtraction from x.
  constexpr float kLn2High = 0.693359375F;
  constexpr float kLn2Low = -2.12194440e-4F;
  // Adding and taking away 1.5 * 2^23 rounds to the nearest integer without a call.
  constexpr float kRounder = 12582912.0F;
  const float n = (x * kLog2E + kRounder) - kRounder;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float p = 1.0F / 5040.0F;
  p = p * r + 1.0F / 720.0F;
  p = p * r + 1.0F / 120.0F;
  p = p * r + 1.0F / 24.0F;
  p = p * r + 1.0F / 6.0F;
  p = p * r + 0.5F;
  // 1 is added last: what was rounded before is small against it.
  const float e = 1.0F + (r + (r * r) * p);
  // Two factors, since 2^128 is no f32; both products are exact.
  const auto whole = static_cast<std::int32_t>(n);
  const std::int32_t half = whole >> 1;
  return (e * power_of_two(half)) * power_of_two(whole - half);
}

/// Written with selections only, so that a loop over it becomes vector code; lanes round as scalars do.
inline float exp_of(float x) {
  const float inside = x < kLowest ? kLowest : (x > kHighest ? kHighest : x);
  // A NaN must not reach the conversion to an integer.
  const float safe = x == x ? inside : 0.0F;
  const float e = exp_in_range(safe);
  const float bounded = x < kLowest ? 0.0F : (x > kHighest ? std::numeric_limits<float>::infinity() : e);
  return x == x ? bounded : x;
}

inline float sigmoid_of(float x) {
  // The exponential of a negative number never overflows.
  const float e = exp_of(x < 0.0F ? x : -x);
  return (x < 0.0F ? e : 1.0F) / (1.0F + e);
}

}  // namespace

float exact_exp(float x) {
  return exp_of(x);
}

void exact_exp(std::span<float> values) {
  float* const data = values.data();
  const std::size_t size = values.size();
  for (std::size_t i = 0; i < size; ++i) data[i] = exp_of(data[i]);
}

float exact_sigmoid(float x) {
  return sigmoid_of(x);
}

void exact_sigmoid(std::span<float> values) {
  float* const data = values.data();
  const std::size_t size = values.size();
  for (std::size_t i = 0; i < size; ++i) data[i] = sigmoid_of(data[i]);
}

}  // namespace troupe::scheduling
