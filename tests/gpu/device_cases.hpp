#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gpu/cpu/device.hpp"
#include "gpu/device.hpp"
#include "scheduling/model_shape.hpp"

/// Shapes, rows and an independent SwiGLU for the tests of the CPU device.
namespace troupe::gpu::test {

inline constexpr int bf16 = 2;  ///< bytes of the type
inline constexpr int f32 = 4;

/// A model of one layer and 8 experts; weights and transport: bf16 or f32.
scheduling::ModelShape shape_of(std::uint32_t d_model, std::uint32_t d_ff, int weights, int transport);
std::string name_of(const scheduling::ModelShape& shape);

/// Throws (and so fails the test) where no device can be made.
std::unique_ptr<cpu::CpuDevice> device_of(const scheduling::ModelShape& shape, std::uint32_t slots,
                                          std::uint32_t max_rows, const std::string& instruction_set = "");

/// Values in about -2..2 from a seed.
std::vector<float> random_values(std::size_t count, std::uint64_t seed);
/// The same as rows in the transport type.
std::vector<std::byte> random_rows(const scheduling::ModelShape& shape, std::uint32_t rows, std::uint64_t seed);
std::vector<std::byte> rows_of(const scheduling::ModelShape& shape, std::span<const std::byte> rows,
                               std::uint32_t first, std::uint32_t count);
std::vector<float> values_of(const scheduling::ModelShape& shape, std::span<const std::byte> rows);

/// All rows of `in` through the expert in a slot. Throws where the device refuses.
std::vector<std::byte> run_one(Device& device, const scheduling::ModelShape& shape, std::uint32_t slot,
                               std::span<const std::byte> in);

/// SwiGLU by plain loops in double precision.
std::vector<double> plain_swiglu(const scheduling::ModelShape& shape, ExpertId expert, const WeightSource& source,
                                 std::span<const std::byte> in);

/// |actual - expected| / |expected|, Euclidean norms.
double relative_error(std::span<const double> expected, std::span<const float> actual);

}  // namespace troupe::gpu::test
