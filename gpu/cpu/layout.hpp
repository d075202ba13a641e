#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "scheduling/model_shape.hpp"

/// How the CPU device lays out weights and rows. The layout is the same for every instruction set, so packed weights
/// can be handed to a process on another machine.
///
/// Weights: panels of 64 output columns, each [inner][64] and contiguous, so that one row reads them as one stream. The
/// 64 columns are 32 pairs (low, high). In bf16 a pair is one 32-bit word, low in its lower half: decoding takes one
/// instruction per column, whatever the vector's length. In f32 the 32 low ones come first, then the 32 high ones.
///   w1 and w3: panel p holds hidden units [32p, 32p + 32); low = w1 (gate), high = w3 (up), so that SwiGLU needs no
///   shuffle. w2 and the router: panel p holds columns [64p, 64p + 64); low = 64p + i, high = 64p + 32 + i.
/// Columns beyond the matrix are zero.
///
/// Rows: tiles of up to 6 rows, each [stride][rows of the tile], so that what a tile needs for one inner index lies
/// side by side.
namespace troupe::gpu::cpu {

inline constexpr std::size_t kPanelColumns = 64;
inline constexpr std::size_t kPanelPairs = 32;
inline constexpr std::size_t kTileRows = 6;
/// Most rows whose partial sums are held at once; more rows are computed in blocks of equal size.
inline constexpr std::size_t kBlockRows = 264;
inline constexpr std::size_t kPageBytes = 4096;

/// Names the layout above and its version. Packed weights may be used only where the tag is the same.
inline constexpr std::string_view kLayoutTag = "troupe-panels64-pairs32-v1";

constexpr std::size_t round_up(std::size_t value, std::size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
constexpr std::size_t ceil_div(std::size_t value, std::size_t by) {
  return (value + by - 1) / by;
}

/// Bytes of one inner index of a panel.
constexpr std::size_t panel_step_bytes(scheduling::WeightType type) {
  return kPanelColumns * bytes_of(type);
}

/// Splits rows into tiles as equal as can be: no tile has more than kTileRows, none is more than one row shorter than
/// another.
struct RowTiles {
  std::size_t count = 0;
  std::size_t base = 0;    ///< rows of the shorter tiles
  std::size_t longer = 0;  ///< the first `longer` tiles have base + 1 rows

  constexpr explicit RowTiles(std::size_t rows) : count(ceil_div(rows, kTileRows)) {
    if (count == 0) return;
    base = rows / count;
    longer = rows % count;
  }
  constexpr std::size_t rows(std::size_t tile) const { return base + (tile < longer ? 1 : 0); }
  constexpr std::size_t first(std::size_t tile) const { return tile * base + std::min(tile, longer); }
};

}  // namespace troupe::gpu::cpu
