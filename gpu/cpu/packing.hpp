#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "gpu/device.hpp"
#include "messages/error.hpp"
#include "scheduling/model_shape.hpp"

/// From row-major matrices to panels (layout.hpp).
namespace troupe::gpu::cpu {

/// Writes a panel: pair i of inner index k gets low[i][k] and high[i][k]. low, high: row major with `inner` columns;
/// rows that are missing up to 32 count as zeros. panel: inner * panel_step_bytes(type), 64-byte aligned. bf16 rounds
/// to nearest.
void pack_panel(scheduling::WeightType type, std::size_t inner, std::span<const float> low, std::span<const float> high,
                std::span<std::byte> panel);

/// Reads an expert and packs it: the panels of w1 and w3 to `up`, those of w2 to `down`. The temporary memory is that
/// of 64 rows of the wider matrix. Errors: those of the source.
Result<void> pack_expert(const scheduling::ModelShape& shape, ExpertId expert, const WeightSource& source,
                         std::span<std::byte> up, std::span<std::byte> down);

/// Packs a router, [experts x d_model] f32.
void pack_router(std::size_t experts, std::size_t d_model, std::span<const float> weight, std::span<std::byte> panels);

}  // namespace troupe::gpu::cpu
