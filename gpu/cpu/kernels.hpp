#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gpu/cpu/layout.hpp"
#include "messages/error.hpp"
#include "scheduling/model_shape.hpp"

/// The inner loops of the CPU device, compiled for several instruction sets; one is chosen when a device is made.
///
/// Why the bits never differ: each output element is one chain of fused multiply-adds over the inner index, from 0
/// upwards, whatever the tile, the block or the vector's length; lanes run over output columns. Partial sums that are
/// stored and loaded again are f32 throughout, so blocking is exact. exp is a fixed sequence of fused multiply-adds;
/// the sum of squares is 64 chains and one fixed tree. Division and square root are correctly rounded by IEEE 754.
/// Instruction sets without a fused multiply-add use std::fma, which is slow and gives the same bits.
namespace troupe::gpu::cpu {

/// Rows of a product, in tiles (layout.hpp): the tile whose first row is r begins at values + r * stride.
struct PackedRows {
  const float* values = nullptr;
  std::size_t rows = 0;
  std::size_t stride = 0;  ///< floats a row takes; at least `inner` of the weights
};

/// Panels of weights (layout.hpp).
struct PackedWeights {
  const std::byte* panels = nullptr;
  scheduling::WeightType type = scheduling::WeightType::kBf16;
  std::size_t inner = 0;
  std::size_t count = 0;
};

/// Buffers of a product, 64-byte aligned.
struct ProductScratch {
  float* partial = nullptr;  ///< partial_floats(rows)
  float* decoded = nullptr;  ///< kDecodedFloats
};
inline constexpr std::size_t kPanelGroup = 4;  ///< panels that share a slab of rows while it is in the cache
inline constexpr std::size_t kDecodeDepth =
    96;  ///< inner indices of a panel that are decoded at once; they fit the L1 cache
inline constexpr std::size_t kDecodedFloats = kDecodeDepth * kPanelColumns;
constexpr std::size_t partial_floats(std::size_t rows) {
  return rows * kPanelColumns * kPanelGroup;
}

/// Thread rule: the functions keep no state; safe from any thread on buffers of its own.
struct Kernels {
  /// Rows in the transport type, row major [rows x columns], to tiles of f32 at `out` with the given stride.
  void (*pack_rows)(scheduling::TransportType type, const std::byte* in, std::size_t rows, std::size_t columns,
                    float* out, std::size_t stride);
  /// hidden[r][u] = silu(gate[r][u]) * up[r][u] for all units of the panels, in tiles of the same rows with stride
  /// `hidden_stride` >= 32 * weights.count.
  void (*swiglu)(const PackedRows& rows, const PackedWeights& weights, const ProductScratch& scratch, float* hidden,
                 std::size_t hidden_stride);
  /// out[r][c] = the product, rounded to `type`; row major [rows x columns].
  void (*product)(const PackedRows& rows, const PackedWeights& weights, const ProductScratch& scratch,
                  scheduling::TransportType type, std::byte* out, std::size_t columns);
  /// out = x / sqrt(mean(x^2) + eps), rounded to `type`; both [rows x columns].
  void (*rms_norm)(std::size_t rows, std::size_t columns, const float* x, scheduling::TransportType type,
                   std::byte* out);
  /// x += sum over j of weights[j] * parts[j], in order, skipping null parts; x: [columns].
  void (*combine)(std::size_t columns, std::size_t parts_count, const std::byte* const* parts, const float* weights,
                  scheduling::TransportType type, float* x);
};

/// Under the root of the norm, so that a row of zeros stays zeros.
inline constexpr float kNormEpsilon = 1e-6F;

/// Instruction sets that this processor can run, fastest first, by Highway's names ("AVX3" is AVX-512). Never empty.
std::vector<std::string> instruction_sets();

/// The kernels for an instruction set; empty: the fastest.
/// Errors: kBadInput (not one of instruction_sets(); names them).
Result<Kernels> kernels_for(const std::string& instruction_set);

}  // namespace troupe::gpu::cpu
