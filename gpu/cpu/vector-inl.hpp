// Vector helpers, compiled once per instruction set (no #pragma once: Highway includes this again and again).
#if defined(TROUPE_GPU_CPU_VECTOR_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef TROUPE_GPU_CPU_VECTOR_INL
#undef TROUPE_GPU_CPU_VECTOR_INL
#else
#define TROUPE_GPU_CPU_VECTOR_INL
#endif

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace troupe::gpu::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using U32 = hn::ScalableTag<std::uint32_t>;
using Vec = hn::Vec<F32>;
/// Floats of a vector, known at compile time.
constexpr std::size_t kLanes = HWY_LANES(float);

/// a * b + c, rounded once.
HWY_INLINE Vec fused(Vec a, Vec b, Vec c) {
#if HWY_NATIVE_FMA
  return hn::MulAdd(a, b, c);
#else
  HWY_ALIGN float x[kLanes];
  HWY_ALIGN float y[kLanes];
  HWY_ALIGN float z[kLanes];
  const F32 d;
  hn::Store(a, d, x);
  hn::Store(b, d, y);
  hn::Store(c, d, z);
  for (std::size_t i = 0; i < kLanes; ++i) z[i] = std::fma(x[i], y[i], z[i]);
  return hn::Load(d, z);
#endif
}

/// g / (1 + exp(-g)), relative error below 3e-7 for g >= -87; 0 below that, where the true value is under 1.5e-36. NaN
/// stays NaN. exp: t = n ln 2 + r with |r| <= ln 2 / 2, the two-part ln 2 of Cody and Waite (1980), e^r by its Taylor
/// series to the 7th power.
HWY_INLINE Vec silu(Vec g) {
  const F32 d;
  const U32 du;
  // Adding 1.5 * 2^23 rounds to the nearest integer, which then stands in the lowest bits.
  const Vec magic = hn::Set(d, 12582912.0F);
  const Vec limit = hn::Set(d, -87.0F);
  const Vec one = hn::Set(d, 1.0F);
  // Comparisons with NaN are false, so NaN is not clamped.
  Vec t = hn::Neg(g);
  t = hn::IfThenElse(hn::Lt(t, limit), limit, t);
  t = hn::IfThenElse(hn::Gt(t, hn::Neg(limit)), hn::Neg(limit), t);
  const Vec shifted = fused(t, hn::Set(d, 1.44269504088896341F), magic);
  const Vec n = hn::Sub(shifted, magic);
  Vec r = fused(n, hn::Set(d, -0.693359375F), t);
  r = fused(n, hn::Set(d, 2.12194440e-4F), r);
  Vec p = hn::Set(d, 1.0F / 5040);
  p = fused(p, r, hn::Set(d, 1.0F / 720));
  p = fused(p, r, hn::Set(d, 1.0F / 120));
  p = fused(p, r, hn::Set(d, 1.0F / 24));
  p = fused(p, r, hn::Set(d, 1.0F / 6));
  p = fused(p, r, hn::Set(d, 0.5F));
  p = fused(p, r, one);
  p = fused(p, r, one);
  const auto exponent = hn::ShiftLeft<23>(hn::Add(hn::BitCast(du, shifted), hn::Set(du, 127U)));
  const Vec one_plus_exp = fused(p, hn::BitCast(d, exponent), one);
  return hn::IfThenZeroElse(hn::Lt(g, limit), hn::Div(g, one_plus_exp));
}

}  // namespace troupe::gpu::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
