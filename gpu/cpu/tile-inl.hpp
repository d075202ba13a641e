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
#define TROUPE_UNROLL_NOT _Pragma("GCC unroll 1")
#else
#define TROUPE_UNROLL
#define TROUPE_UNROLL_NOT _Pragma("nounroll")
#endif

HWY_BEFORE_NAMESPACE();
namespace troupe::gpu::cpu::HWY_NAMESPACE {

/// A panel whose weights are f32: as loaded from an f32 model, or decoded from bf16.
struct F32Panel {
  using Word = float;
  static constexpr std::size_t kStep = kPanelColumns;  ///< words of one inner index
  static constexpr bool kLeavesDecoded = false;
  static HWY_INLINE void load(const Word* w, std::size_t pair, float* /*decoded*/, Vec& low, Vec& high) {
    const F32 d;
    low = hn::Load(d, w + pair);
    high = hn::Load(d, w + kPanelPairs + pair);
  }
};

/// A panel of bf16 pairs, decoded as it is read.
struct Bf16Panel {
  using Word = std::uint32_t;
  static constexpr std::size_t kStep = kPanelPairs;
  static constexpr bool kLeavesDecoded = false;
  static HWY_INLINE void load(const Word* w, std::size_t pair, float* /*decoded*/, Vec& low, Vec& high) {
    const F32 d;
    const U32 du;
    const auto words = hn::Load(du, w + pair);
    low = hn::BitCast(d, hn::ShiftLeft<16>(words));
    high = hn::BitCast(d, hn::And(words, hn::Set(du, 0xFFFF0000U)));
  }
};

/// The same, and what was decoded is left for the tiles that follow, as an F32Panel.
struct DecodingPanel {
  using Word = std::uint32_t;
  static constexpr std::size_t kStep = kPanelPairs;
  static constexpr bool kLeavesDecoded = true;
  static HWY_INLINE void load(const Word* w, std::size_t pair, float* decoded, Vec& low, Vec& high) {
    const F32 d;
    Bf16Panel::load(w, pair, nullptr, low, high);
    hn::Store(low, d, decoded + pair);
    hn::Store(high, d, decoded + kPanelPairs + pair);
  }
};

/// Inner indices between two bursts of prefetches.
constexpr std::size_t kTurn = 8;

/// Cache lines that a tile asks the memory for while it computes: `at_once` of them, an even number, at each turn. A
/// few at a time, so that they never fill the core's queue of misses.
struct Ahead {
  const std::byte* from = nullptr;
  std::size_t at_once = 0;
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

/// One inner index of a tile: sums[r][j] += x[r] * weights[j].
template <int R, int P, class Panel>
HWY_INLINE void tile_step(const float* HWY_RESTRICT x, const typename Panel::Word* HWY_RESTRICT w, std::size_t pair,
                          float* HWY_RESTRICT decoded, Vec (&sums)[R][2 * P]) {
  const F32 d;
  Vec weights[2 * P];
  TROUPE_UNROLL
  for (int p = 0; p < P; ++p) {
    Panel::load(w, pair + static_cast<std::size_t>(p) * kLanes, decoded, weights[2 * p], weights[2 * p + 1]);
  }
  TROUPE_UNROLL
  for (int r = 0; r < R; ++r) {
    const Vec row = hn::Set(d, x[r]);
    TROUPE_UNROLL
    for (int j = 0; j < 2 * P; ++j) sums[r][j] = fused(row, weights[j], sums[r][j]);
  }
}

/// Sums of R rows over `depth` inner indices for the columns of P vectors of pairs from `pair` on. x: [depth][R].
/// partial: [R][64], read unless `first`, written. decoded: [depth][64], written by a DecodingPanel only.
template <int R, int P, class Panel>
HWY_INLINE void tile_columns(const float* HWY_RESTRICT x, const typename Panel::Word* HWY_RESTRICT w, std::size_t depth,
                             bool first, std::size_t pair, float* HWY_RESTRICT partial, float* HWY_RESTRICT decoded,
                             Ahead ahead) {
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
  for (std::size_t done = 0; done < depth; done += kTurn) {
    for (std::size_t line = 0; line < ahead.at_once; line += 2) {
      __builtin_prefetch(ahead.from, 0, 2);
      __builtin_prefetch(ahead.from + 64, 0, 2);
      ahead.from += 128;
    }
    const std::size_t turn = depth - done < kTurn ? depth - done : kTurn;
    // Not unrolled: compilers then keep the sums in registers without moving them about.
    TROUPE_UNROLL_NOT
    for (std::size_t k = 0; k < turn; ++k) {
      tile_step<R, P, Panel>(x, w, pair, decoded, sums);
      x += R;
      w += Panel::kStep;
      if constexpr (Panel::kLeavesDecoded) decoded += kPanelColumns;
    }
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

/// All 64 columns of a panel for R rows. Where the panel is wider than a tile, the first tile prefetches.
template <int R, class Panel>
HWY_NOINLINE void tile(const float* x, const typename Panel::Word* w, std::size_t depth, bool first, float* partial,
                       float* decoded, Ahead ahead) {
  constexpr int kVectors = vectors_in_tile<R>();
  for (std::size_t pair = 0; pair < kPanelPairs; pair += kVectors * kLanes) {
    tile_columns<R, kVectors, Panel>(x, w, depth, first, pair, partial, decoded, pair == 0 ? ahead : Ahead{});
  }
}

/// The same for a number of rows known at run time, 1 to kTileRows.
template <class Panel>
HWY_INLINE void tile_of(std::size_t rows, const float* x, const typename Panel::Word* w, std::size_t depth, bool first,
                        float* partial, float* decoded, Ahead ahead) {
  switch (rows) {
    case 1:
      return tile<1, Panel>(x, w, depth, first, partial, decoded, ahead);
    case 2:
      return tile<2, Panel>(x, w, depth, first, partial, decoded, ahead);
    case 3:
      return tile<3, Panel>(x, w, depth, first, partial, decoded, ahead);
    case 4:
      return tile<4, Panel>(x, w, depth, first, partial, decoded, ahead);
    case 5:
      return tile<5, Panel>(x, w, depth, first, partial, decoded, ahead);
    default:
      return tile<6, Panel>(x, w, depth, first, partial, decoded, ahead);
  }
}
static_assert(kTileRows == 6, "tile_of covers 1 to 6 rows");

}  // namespace troupe::gpu::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
