#include "gpu/cpu/packing.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "gpu/bf16.hpp"
#include "gpu/cpu/layout.hpp"

namespace troupe::gpu::cpu {
namespace {

using scheduling::WeightType;

/// Inner indices that are packed at once: their part of the panel and of the rows stays in the cache.
constexpr std::size_t kStrip = 32;

}  // namespace

void pack_panel(WeightType type, std::size_t inner, std::span<const float> low, std::span<const float> high,
                std::span<std::byte> panel) {
  const std::size_t low_rows = low.size() / inner;
  const std::size_t high_rows = high.size() / inner;
  if (type == WeightType::kBf16) {
    auto* const words = reinterpret_cast<std::uint32_t*>(panel.data());
    for (std::size_t k0 = 0; k0 < inner; k0 += kStrip) {
      const std::size_t k1 = std::min(inner, k0 + kStrip);
      for (std::size_t i = 0; i < kPanelPairs; ++i) {
        const float* const a = i < low_rows ? low.data() + i * inner : nullptr;
        const float* const b = i < high_rows ? high.data() + i * inner : nullptr;
        for (std::size_t k = k0; k < k1; ++k) {
          const std::uint32_t low_half = a != nullptr ? bf16_of_f32(a[k]) : 0U;
          const std::uint32_t high_half = b != nullptr ? bf16_of_f32(b[k]) : 0U;
          words[k * kPanelPairs + i] = low_half | high_half << 16U;
        }
      }
    }
    return;
  }
  auto* const floats = reinterpret_cast<float*>(panel.data());
  for (std::size_t k0 = 0; k0 < inner; k0 += kStrip) {
    const std::size_t k1 = std::min(inner, k0 + kStrip);
    for (std::size_t i = 0; i < kPanelPairs; ++i) {
      const float* const a = i < low_rows ? low.data() + i * inner : nullptr;
      const float* const b = i < high_rows ? high.data() + i * inner : nullptr;
      for (std::size_t k = k0; k < k1; ++k) {
        floats[k * kPanelColumns + i] = a != nullptr ? a[k] : 0.0F;
        floats[k * kPanelColumns + kPanelPairs + i] = b != nullptr ? b[k] : 0.0F;
      }
    }
  }
}

Result<void> pack_expert(const scheduling::ModelShape& shape, ExpertId expert, const WeightSource& source,
                         std::span<std::byte> up, std::span<std::byte> down) {
  using Matrix = WeightSource::Matrix;
  const std::size_t step = panel_step_bytes(shape.weights);
  std::vector<float> rows(kPanelColumns * std::size_t{std::max(shape.d_model, shape.d_ff)});
  const auto read = [&](Matrix matrix, std::size_t first, std::size_t count, std::span<float> out) {
    return source.read(expert, matrix, static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(count), out);
  };

  for (std::size_t p = 0; p * kPanelPairs < shape.d_ff; ++p) {
    const std::size_t first = p * kPanelPairs;
    const std::size_t count = std::min(kPanelPairs, shape.d_ff - first);
    const std::span<float> gate = std::span(rows).first(count * shape.d_model);
    const std::span<float> lift = std::span(rows).subspan(count * shape.d_model, count * shape.d_model);
    if (auto done = read(Matrix::kW1, first, count, gate); !done) return done;
    if (auto done = read(Matrix::kW3, first, count, lift); !done) return done;
    pack_panel(shape.weights, shape.d_model, gate, lift, up.subspan(p * shape.d_model * step, shape.d_model * step));
  }
  for (std::size_t p = 0; p * kPanelColumns < shape.d_model; ++p) {
    const std::size_t first = p * kPanelColumns;
    const std::size_t count = std::min(kPanelColumns, shape.d_model - first);
    const std::span<float> columns = std::span(rows).first(count * shape.d_ff);
    if (auto done = read(Matrix::kW2, first, count, columns); !done) return done;
    const std::size_t low = std::min(kPanelPairs, count) * shape.d_ff;
    pack_panel(shape.weights, shape.d_ff, columns.first(low), columns.subspan(low),
               down.subspan(p * shape.d_ff * step, shape.d_ff * step));
  }
  return {};
}

void pack_router(std::size_t experts, std::size_t d_model, std::span<const float> weight, std::span<std::byte> panels) {
  const std::size_t panel_bytes = d_model * panel_step_bytes(WeightType::kF32);
  for (std::size_t p = 0; p * kPanelColumns < experts; ++p) {
    const std::size_t first = p * kPanelColumns;
    const std::span<const float> columns =
        weight.subspan(first * d_model, std::min(kPanelColumns, experts - first) * d_model);
    const std::size_t low = std::min(kPanelPairs * d_model, columns.size());
    pack_panel(WeightType::kF32, d_model, columns.first(low), columns.subspan(low),
               panels.subspan(p * panel_bytes, panel_bytes));
  }
}

}  // namespace troupe::gpu::cpu
