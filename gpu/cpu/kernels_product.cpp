// Products of rows with panels of weights, and SwiGLU.
#include "gpu/cpu/kernels.hpp"
#include "gpu/cpu/kernels_units.hpp"
#include "gpu/cpu/targets.hpp"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gpu/cpu/kernels_product.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

#include <algorithm>

#include "gpu/bf16.hpp"
#include "gpu/cpu/tile-inl.hpp"
#include "gpu/cpu/vector-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace troupe::gpu::cpu::HWY_NAMESPACE {

template <class Word>
HWY_INLINE const Word* words_at(const std::byte* bytes) {
  return reinterpret_cast<const Word*>(bytes);
}

/// How far ahead of the weights in use a single tile prefetches: enough to hide a miss, and to begin a page before it
/// is needed.
constexpr std::size_t kAheadBytes = 2048;

/// A few rows, one tile: the weights are used once, straight from memory.
template <class Panel>
HWY_INLINE void panel_of_one_tile(const PackedRows& rows, const std::byte* panel, std::size_t inner, float* partial) {
  constexpr std::size_t kLines = Panel::kStep * sizeof(typename Panel::Word) / 64;
  // Where the tile is narrower than the panel, the panel is read in pieces that stay in the cache from one tile to the
  // next.
  const bool spans = rows.rows == 1 ? tile_spans_panel<1>() : tile_spans_panel<static_cast<int>(kTileRows)>();
  const std::size_t most = spans ? inner : kDecodeDepth;
  const auto* w = words_at<typename Panel::Word>(panel);
  for (std::size_t k = 0; k < inner; k += most) {
    const std::size_t depth = std::min(most, inner - k);
    const auto* from = w + k * Panel::kStep;
    tile_of<Panel>(rows.rows, rows.values + k * rows.rows, from, depth, k == 0, partial, nullptr,
                   {reinterpret_cast<const std::byte*>(from) + kAheadBytes, kLines * kTurn});
  }
}

/// How a block's prefetches are spread over the tiles that come before it: evenly, and at least one at each turn.
struct Spread {
  std::size_t at_once = 0;
  std::size_t lines_per_tile = 0;
  std::size_t tiles = 0;  ///< the first so many

  Spread(std::size_t lines, std::size_t tile_count) {
    constexpr std::size_t kTurns = kDecodeDepth / kTurn;
    at_once = round_up(ceil_div(lines, kTurns * tile_count), 2);
    lines_per_tile = at_once * kTurns;
    tiles = ceil_div(lines, lines_per_tile);
  }
};

/// One block of a panel, `depth` inner indices from k on, for all tiles. ahead: the block that comes next.
HWY_INLINE void block_of_tiles(const PackedRows& rows, const RowTiles& tiles, const PackedWeights& weights,
                               const std::byte* block, std::size_t k, std::size_t depth, float* partial, float* decoded,
                               const std::byte* ahead, const Spread& spread) {
  const bool bf16 = weights.type == scheduling::WeightType::kBf16;
  const float* const w = bf16 ? decoded : words_at<float>(block);
  for (std::size_t t = 0; t < tiles.count; ++t) {
    const std::size_t n = tiles.rows(t);
    const float* const x = rows.values + tiles.first(t) * rows.stride + k * n;
    float* const sums = partial + tiles.first(t) * kPanelColumns;
    const Ahead next{ahead, t < spread.tiles ? spread.at_once : 0};
    ahead += spread.lines_per_tile * 64;
    if (t == 0 && bf16) {
      tile_of<DecodingPanel>(n, x, words_at<std::uint32_t>(block), depth, k == 0, sums, decoded, next);
    } else {
      tile_of<F32Panel>(n, x, w, depth, k == 0, sums, nullptr, next);
    }
  }
}

/// Sums of panels [first_panel, first_panel + count) for all rows, to scratch.partial: [count][rows][64].
HWY_INLINE void panel_sums(const PackedRows& rows, const RowTiles& tiles, const PackedWeights& weights,
                           const ProductScratch& scratch, std::size_t first_panel, std::size_t count) {
  const std::size_t step = panel_step_bytes(weights.type);
  const std::size_t panel_bytes = weights.inner * step;
  const std::byte* const panels = weights.panels + first_panel * panel_bytes;
  const std::size_t panel_floats = rows.rows * kPanelColumns;
  if (tiles.count == 1) {
    for (std::size_t p = 0; p < count; ++p) {
      if (weights.type == scheduling::WeightType::kBf16) {
        panel_of_one_tile<Bf16Panel>(rows, panels + p * panel_bytes, weights.inner, scratch.partial + p * panel_floats);
      } else {
        panel_of_one_tile<F32Panel>(rows, panels + p * panel_bytes, weights.inner, scratch.partial + p * panel_floats);
      }
    }
    return;
  }
  const Spread spread(kDecodeDepth * step / 64, tiles.count);
  for (std::size_t k = 0; k < weights.inner; k += kDecodeDepth) {
    const std::size_t depth = std::min(kDecodeDepth, weights.inner - k);
    for (std::size_t p = 0; p < count; ++p) {
      const std::byte* const block = panels + p * panel_bytes + k * step;
      // The next block in the order of use; beyond the last one a prefetch does no harm.
      const std::byte* ahead = p + 1 < count ? block + panel_bytes : panels + (k + depth) * step;
      if (p + 1 == count && k + depth == weights.inner) ahead = panels + count * panel_bytes;
      block_of_tiles(rows, tiles, weights, block, k, depth, scratch.partial + p * panel_floats, scratch.decoded, ahead,
                     spread);
    }
  }
}

/// hidden = silu(low) * high for the 32 units of a panel, from unit number `unit` on.
HWY_NOINLINE void store_hidden(const RowTiles& tiles, const float* partial, std::size_t unit, float* hidden,
                               std::size_t stride) {
  const F32 d;
  HWY_ALIGN float units[kTileRows][kPanelPairs];
  for (std::size_t t = 0; t < tiles.count; ++t) {
    const std::size_t n = tiles.rows(t);
    for (std::size_t r = 0; r < n; ++r) {
      const float* const sums = partial + (tiles.first(t) + r) * kPanelColumns;
      for (std::size_t pair = 0; pair < kPanelPairs; pair += kLanes) {
        const Vec gate = silu(hn::Load(d, sums + pair));
        hn::Store(hn::Mul(gate, hn::Load(d, sums + kPanelPairs + pair)), d, units[r] + pair);
      }
    }
    store_tile(units[0], kPanelPairs, n, kPanelPairs, hidden + tiles.first(t) * stride + unit * n);
  }
}

void swiglu(const PackedRows& rows, const PackedWeights& weights, const ProductScratch& scratch, float* hidden,
            std::size_t hidden_stride) {
  const RowTiles tiles(rows.rows);
  for (std::size_t panel = 0; panel < weights.count; panel += kPanelGroup) {
    const std::size_t count = std::min(kPanelGroup, weights.count - panel);
    panel_sums(rows, tiles, weights, scratch, panel, count);
    for (std::size_t p = 0; p < count; ++p) {
      store_hidden(tiles, scratch.partial + p * rows.rows * kPanelColumns, (panel + p) * kPanelPairs, hidden,
                   hidden_stride);
    }
  }
}

void product(const PackedRows& rows, const PackedWeights& weights, const ProductScratch& scratch,
             scheduling::TransportType type, std::byte* out, std::size_t columns) {
  const RowTiles tiles(rows.rows);
  const std::size_t bytes = scheduling::bytes_of(type);
  for (std::size_t panel = 0; panel < weights.count; panel += kPanelGroup) {
    const std::size_t count = std::min(kPanelGroup, weights.count - panel);
    panel_sums(rows, tiles, weights, scratch, panel, count);
    for (std::size_t p = 0; p < count; ++p) {
      const std::size_t column = (panel + p) * kPanelColumns;
      const std::size_t width = std::min(kPanelColumns, columns - column);
      for (std::size_t r = 0; r < rows.rows; ++r) {
        const float* const sums = scratch.partial + (p * rows.rows + r) * kPanelColumns;
        store_rounded(type, sums, width, out + (r * columns + column) * bytes);
      }
    }
  }
}

void set_product_kernels(Kernels& kernels) {
  kernels.swiglu = &swiglu;
  kernels.product = &product;
}

}  // namespace troupe::gpu::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace troupe::gpu::cpu {
HWY_EXPORT(set_product_kernels);
void product_kernels(Kernels& kernels) {
  HWY_DYNAMIC_DISPATCH(set_product_kernels)(kernels);
}
}  // namespace troupe::gpu::cpu
#endif
