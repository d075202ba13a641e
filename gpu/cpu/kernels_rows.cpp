// What is done to rows outside products: packing, norm, combine.
#include "gpu/cpu/kernels.hpp"
#include "gpu/cpu/kernels_units.hpp"
#include "gpu/cpu/targets.hpp"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gpu/cpu/kernels_rows.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

#include <algorithm>
#include <cmath>

#include "gpu/bf16.hpp"
#include "gpu/cpu/vector-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace troupe::gpu::cpu::HWY_NAMESPACE {

/// Columns that are worked on at once; a multiple of any vector's length.
constexpr std::size_t kChunk = 512;
/// Chains of the sum of squares: element i belongs to chain i mod kChains.
constexpr std::size_t kChains = 64;
static_assert(kChunk % kChains == 0 && kChains % kLanes == 0);

void pack_rows(scheduling::TransportType type, const std::byte* in, std::size_t rows, std::size_t columns, float* out,
               std::size_t stride) {
  const RowTiles tiles(rows);
  const std::size_t bytes = scheduling::bytes_of(type);
  HWY_ALIGN float chunk[kTileRows][kChunk];
  for (std::size_t t = 0; t < tiles.count; ++t) {
    const std::size_t n = tiles.rows(t);
    for (std::size_t c = 0; c < columns; c += kChunk) {
      const std::size_t width = std::min(kChunk, columns - c);
      for (std::size_t r = 0; r < n; ++r) {
        load_exact(type, in + ((tiles.first(t) + r) * columns + c) * bytes, width, chunk[r]);
      }
      store_tile(chunk[0], kChunk, n, width, out + tiles.first(t) * stride + c * n);
    }
  }
}

/// Sum of squares of a row.
HWY_INLINE float sum_of_squares(const float* x, std::size_t columns) {
  const F32 d;
  HWY_ALIGN float chains[kChains] = {};
  HWY_ALIGN float tail[kChains] = {};
  for (std::size_t c = 0; c < columns; c += kChains) {
    const float* from = x + c;
    if (columns - c < kChains) {
      // A chain that has run out goes on with zeros, which leave it as it is.
      std::copy_n(x + c, columns - c, tail);
      from = tail;
    }
    for (std::size_t i = 0; i < kChains; i += kLanes) {
      const Vec v = hn::LoadU(d, from + i);
      hn::Store(fused(v, v, hn::Load(d, chains + i)), d, chains + i);
    }
  }
  for (std::size_t half = kChains / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) chains[i] += chains[i + half];
  }
  return chains[0];
}

void rms_norm(std::size_t rows, std::size_t columns, const float* x, scheduling::TransportType type, std::byte* out) {
  const F32 d;
  const std::size_t bytes = scheduling::bytes_of(type);
  HWY_ALIGN float chunk[kChunk] = {};
  for (std::size_t r = 0; r < rows; ++r) {
    const float* const row = x + r * columns;
    const Vec root = hn::Set(d, std::sqrt(sum_of_squares(row, columns) / static_cast<float>(columns) + kNormEpsilon));
    for (std::size_t c = 0; c < columns; c += kChunk) {
      const std::size_t width = std::min(kChunk, columns - c);
      std::copy_n(row + c, width, chunk);
      for (std::size_t i = 0; i < width; i += kLanes) hn::Store(hn::Div(hn::Load(d, chunk + i), root), d, chunk + i);
      store_rounded(type, chunk, width, out + (r * columns + c) * bytes);
    }
  }
}

void combine(std::size_t columns, std::size_t parts_count, const std::byte* const* parts, const float* weights,
             scheduling::TransportType type, float* x) {
  const F32 d;
  if (std::all_of(parts, parts + parts_count, [](const std::byte* part) { return part == nullptr; })) return;
  const std::size_t bytes = scheduling::bytes_of(type);
  HWY_ALIGN float sums[kChunk];
  HWY_ALIGN float part[kChunk] = {};
  for (std::size_t c = 0; c < columns; c += kChunk) {
    const std::size_t width = std::min(kChunk, columns - c);
    std::fill_n(sums, kChunk, 0.0F);
    for (std::size_t j = 0; j < parts_count; ++j) {
      if (parts[j] == nullptr) continue;
      load_exact(type, parts[j] + c * bytes, width, part);
      const Vec weight = hn::Set(d, weights[j]);
      for (std::size_t i = 0; i < width; i += kLanes) {
        hn::Store(fused(weight, hn::Load(d, part + i), hn::Load(d, sums + i)), d, sums + i);
      }
    }
    for (std::size_t i = 0; i < width; ++i) x[c + i] += sums[i];
    // One NaN for all processors; other values stay as they are.
    round_to_transport(scheduling::TransportType::kF32, {x + c, width});
  }
}

void set_row_kernels(Kernels& kernels) {
  kernels.pack_rows = &pack_rows;
  kernels.rms_norm = &rms_norm;
  kernels.combine = &combine;
}

}  // namespace troupe::gpu::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace troupe::gpu::cpu {
HWY_EXPORT(set_row_kernels);
void row_kernels(Kernels& kernels) {
  HWY_DYNAMIC_DISPATCH(set_row_kernels)(kernels);
}
}  // namespace troupe::gpu::cpu
#endif
