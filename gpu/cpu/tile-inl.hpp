// The register tile, compiled once per instruction set (no #pragma once: Highway includes this again and again).
#if defined(TROUPE_GPU_CPU_TILE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef TROUPE_GPU_CPU_TILE_INL
#undef TROUPE_GPU_CPU_TILE_INL
#else
#define TROUPE_GPU_CPU_TILE_INL
#endif

#include "gpu/cpu/layout.hpp"
#include "gpu/cpu/vector-inl.hpp"

// The loops over a tile must be unrolled in full, so that its sums stay in registers. GCC must be told; clang does it
// anyway.
#if defined(__GNUC__) && !defined(__clang__)
#define TROUPE_UNROLL _Pragma("GCC unroll 16")
#else
#define TROUPE_UNROLL
#endif

HWY_BEFORE_NAMESPACE();
namespace troupe::gpu::cpu::HWY_NAMESPACE {

/// A panel whose weights are f32: as loaded from an f32 model, or decoded from bf16.
struct F32Panel {
  using Word = float;
  static constexpr std::size_t kStep = kPanelColumns;  ///< words of one inner index
  static HWY_INLINE void load(const Word* w, std::size_t pair, Vec& low, Vec& high) {
    const F32 d;
    low = hn::Load(d, w + pair);
    high = hn::Load(d, w + kPanelPairs + pair);
  }
};

/// A panel of bf16 pairs, decoded as it is read.
struct Bf16Panel {
  using Word = std::uint32_t;
  static constexpr std::size_t kStep = kPanelPairs;
  static HWY_INLINE void load(const Word* w, std::size_t pair, Vec& low, Vec& high) {
    const F32 d;
    const U32 du;
    const auto words = hn::Load(du, w + pair);
    low = hn::BitCast(d, hn::ShiftLeft<16>(words));
    high = hn::BitCast(d, hn::And(words, hn::Set(du, 0xFFFF0000U)));
  }
};

/// Vectors of pairs in a tile of R rows: R x 2 x this many sums, which must leave room in the registers for the
/// weights.
template <int R>
constexpr int vectors_in_tile() {
  constexpr int kAll = static_cast<int>(kPanelPairs / kLanes);
  if constexpr (kLanes >= 16) return 2;                           // 32 registers of 16: the whole panel
  if constexpr (kLanes == 8) return R == 1 ? 4 : R == 2 ? 2 : 1;  // 16 registers of 8
  return kAll < 2 ? kAll : 2;
}

/// True where one tile spans a panel's columns.
template <int R>
constexpr bool tile_spans_panel() {
  return static_cast<std::size_t>(vectors_in_tile<R>()) * kLanes == kPanelPairs;
}

/// Sums of R rows over `depth` inner indices for the columns of P vectors of pairs from `pair` on. x: [depth][R].
/// partial: [R][64], read unless `first`, written. `ahead`: what the memory should bring meanwhile, kAheadLines cache
/// lines per index.
template <int R, int P, class Panel, int kAheadLines>
HWY_INLINE void tile_columns(const float* HWY_RESTRICT x, const typename Panel::Word* HWY_RESTRICT w, std::size_t depth,
                             bool first, std::size_t pair, float* HWY_RESTRICT partial,
                             const std::byte* HWY_RESTRICT ahead) {
  const F32 d;
  Vec sums[R][2 * P];
  TROUPE_UNROLL
  for (int r = 0; r < R; ++r) {
    TROUPE_UNROLL
    for (int p = 0; p < P; ++p) {
      float* const at =
          partial + static_cast<std::size_t>(r) * kPanelColumns + pair + static_cast<std::size_t>(p) * kLanes;
      sums[r][2 * p] = first ? hn::Zero(d) : hn::Load(d, at);
      sums[r][2 * p + 1] = first ? hn::Zero(d) : hn::Load(d, at + kPanelPairs);
    }
  }
  for (std::size_t k = 0; k < depth; ++k) {
    TROUPE_UNROLL
    for (int line = 0; line < kAheadLines; ++line) __builtin_prefetch(ahead + line * 64, 0, 2);
    if constexpr (kAheadLines > 0) ahead += kAheadLines * 64;
    Vec weights[2 * P];
    TROUPE_UNROLL
    for (int p = 0; p < P; ++p) {
      Panel::load(w, pair + static_cast<std::size_t>(p) * kLanes, weights[2 * p], weights[2 * p + 1]);
    }
    TROUPE_UNROLL
    for (int r = 0; r < R; ++r) {
      const Vec row = hn::Set(d, x[r]);
      TROUPE_UNROLL
      for (int j = 0; j < 2 * P; ++j) sums[r][j] = fused(row, weights[j], sums[r][j]);
    }
    x += R;
    w += Panel::kStep;
  }
  TROUPE_UNROLL
  for (int r = 0; r < R; ++r) {
    TROUPE_UNROLL
    for (int p = 0; p < P; ++p) {
      float* const at =
          partial + static_cast<std::size_t>(r) * kPanelColumns + pair + static_cast<std::size_t>(p) * kLanes;
      hn::Store(sums[r][2 * p], d, at);
      hn::Store(sums[r][2 * p + 1], d, at + kPanelPairs);
    }
  }
}

/// All 64 columns of a panel for R rows. Only the first of the tiles that make up the panel's width prefetches.
template <int R, class Panel, int kAheadLines>
HWY_NOINLINE void tile(const float* x, const typename Panel::Word* w, std::size_t depth, bool first, float* partial,
                       const std::byte* ahead) {
  constexpr int kVectors = vectors_in_tile<R>();
  tile_columns<R, kVectors, Panel, kAheadLines>(x, w, depth, first, 0, partial, ahead);
  for (std::size_t pair = kVectors * kLanes; pair < kPanelPairs; pair += kVectors * kLanes) {
    tile_columns<R, kVectors, Panel, 0>(x, w, depth, first, pair, partial, nullptr);
  }
}

/// The same for a number of rows known at run time, 1 to kTileRows.
template <class Panel, int kAheadLines>
HWY_INLINE void tile_of(std::size_t rows, const float* x, const typename Panel::Word* w, std::size_t depth, bool first,
                        float* partial, const std::byte* ahead) {
  switch (rows) {
    case 1:
      return tile<1, Panel, kAheadLines>(x, w, depth, first, partial, ahead);
    case 2:
      return tile<2, Panel, kAheadLines>(x, w, depth, first, partial, ahead);
    case 3:
      return tile<3, Panel, kAheadLines>(x, w, depth, first, partial, ahead);
    case 4:
      return tile<4, Panel, kAheadLines>(x, w, depth, first, partial, ahead);
    case 5:
      return tile<5, Panel, kAheadLines>(x, w, depth, first, partial, ahead);
    default:
      return tile<6, Panel, kAheadLines>(x, w, depth, first, partial, ahead);
  }
}
static_assert(kTileRows == 6, "tile_of covers 1 to 6 rows");

}  // namespace troupe::gpu::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
