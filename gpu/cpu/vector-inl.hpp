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

#include "gpu/bf16.hpp"
#include "gpu/cpu/layout.hpp"
#include "hwy/highway.h"
#include "scheduling/model_shape.hpp"

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

/// Writes `count` floats in the transport type, rounded as by to_transport() (gpu/bf16.hpp). values must be readable up
/// to a multiple of the vector's length, 64-byte aligned; out needs no alignment.
HWY_INLINE void store_rounded(scheduling::TransportType type, const float* values, std::size_t count, std::byte* out) {
  const F32 d;
  const U32 du;
  if (type == scheduling::TransportType::kF32) {
    std::size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      const Vec v = hn::Load(d, values + i);
      const auto bits = hn::IfThenElse(hn::IsNaN(v), hn::BitCast(d, hn::Set(du, kF32Nan)), v);
      hn::StoreU(bits, d, reinterpret_cast<float*>(out) + i);
    }
    if (i < count) to_transport(type, {values + i, count - i}, {out + 4 * i, 4 * (count - i)});
    return;
  }
  const hn::RebindToSigned<F32> di;
  const hn::Rebind<std::uint16_t, F32> dh;
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Vec v = hn::Load(d, values + i);
    auto bits = hn::BitCast(du, v);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1U));
    bits = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFFU))));
    const auto nan = hn::Set(du, std::uint32_t{kBf16Nan});
    bits = hn::BitCast(du, hn::IfThenElse(hn::IsNaN(v), hn::BitCast(d, nan), hn::BitCast(d, bits)));
    hn::StoreU(hn::DemoteTo(dh, hn::BitCast(di, bits)), dh, reinterpret_cast<std::uint16_t*>(out) + i);
  }
  if (i < count) to_transport(type, {values + i, count - i}, {out + 2 * i, 2 * (count - i)});
}

/// Reads `count` floats from the transport type. `in` needs no alignment.
HWY_INLINE void load_exact(scheduling::TransportType type, const std::byte* in, std::size_t count, float* values) {
  const F32 d;
  std::size_t i = 0;
  if (type == scheduling::TransportType::kF32) {
    for (; i + kLanes <= count; i += kLanes) {
      hn::StoreU(hn::LoadU(d, reinterpret_cast<const float*>(in) + i), d, values + i);
    }
  } else {
    const U32 du;
    const hn::Rebind<std::uint16_t, F32> dh;
    for (; i + kLanes <= count; i += kLanes) {
      const auto halves = hn::LoadU(dh, reinterpret_cast<const std::uint16_t*>(in) + i);
      hn::StoreU(hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, halves))), d, values + i);
    }
  }
  if (i == count) return;
  const std::size_t bytes = scheduling::bytes_of(type);
  from_transport(type, {in + i * bytes, (count - i) * bytes}, {values + i, count - i});
}

template <std::size_t R>
HWY_INLINE void store_tile_of(const float* HWY_RESTRICT rows, std::size_t stride, std::size_t columns,
                              float* HWY_RESTRICT tile) {
  for (std::size_t c = 0; c < columns; ++c) {
    for (std::size_t r = 0; r < R; ++r) tile[c * R + r] = rows[r * stride + c];
  }
}

/// Rows, each `stride` floats after the one before, to a tile: [columns][count]. count: 1 to kTileRows.
HWY_INLINE void store_tile(const float* rows, std::size_t stride, std::size_t count, std::size_t columns, float* tile) {
  switch (count) {
    case 1:
      return store_tile_of<1>(rows, stride, columns, tile);
    case 2:
      return store_tile_of<2>(rows, stride, columns, tile);
    case 3:
      return store_tile_of<3>(rows, stride, columns, tile);
    case 4:
      return store_tile_of<4>(rows, stride, columns, tile);
    case 5:
      return store_tile_of<5>(rows, stride, columns, tile);
    default:
      return store_tile_of<6>(rows, stride, columns, tile);
  }
}
static_assert(kTileRows == 6, "store_tile covers 1 to 6 rows");

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
