#define BOOST_TEST_MODULE kernel_values
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <boost/test/unit_test.hpp>

#include "gpu/bf16.hpp"
#include "gpu/cpu/kernels.hpp"
#include "gpu/cpu/packing.hpp"

using namespace troupe;
using namespace troupe::gpu;
using scheduling::TransportType;
using scheduling::WeightType;

namespace {

/// 64-byte aligned floats.
class Floats {
 public:
  explicit Floats(std::size_t count) : storage_(count + 16) {
    const auto at = reinterpret_cast<std::uintptr_t>(storage_.data());
    data_ = storage_.data() + (64 - at % 64) % 64 / sizeof(float);
  }
  float* data() { return data_; }
  std::byte* bytes() { return reinterpret_cast<std::byte*>(data_); }

 private:
  std::vector<float> storage_;
  float* data_;
};

/// silu(g) by the kernel: an expert of one unit whose gate passes the input on and whose up projection is 1.
float kernel_silu(const cpu::Kernels& kernels, float g) {
  Floats panel(2 * 64);
  const std::vector<float> gate = {1, 0};
  const std::vector<float> up = {0, 1};
  cpu::pack_panel(WeightType::kF32, 2, gate, up, {panel.bytes(), 2 * 64 * sizeof(float)});
  Floats rows(2);
  rows.data()[0] = g;
  rows.data()[1] = 1;
  Floats partial(cpu::partial_floats(1));
  Floats decoded(cpu::kDecodedFloats);
  Floats hidden(cpu::kPanelPairs);
  kernels.swiglu({rows.data(), 1, 2}, {panel.bytes(), WeightType::kF32, 2, 1}, {partial.data(), decoded.data()},
                 hidden.data(), cpu::kPanelPairs);
  return hidden.data()[0];
}

/// The nearest bf16 found by trying the neighbours, in exact arithmetic (long double holds the sum of two f32 here).
std::uint16_t nearest_bf16(float value) {
  const auto down = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16U);
  const auto up = static_cast<std::uint16_t>(down + 1);
  const auto as_number = [](std::uint16_t v) {
    // Beyond the largest finite one comes what would be the next power of two.
    return std::isinf(f32_of_bf16(v)) ? std::copysign(std::ldexp(1.0, 128), double{f32_of_bf16(v)})
                                      : double{f32_of_bf16(v)};
  };
  const double to_down = std::abs(double{value} - as_number(down));
  const double to_up = std::abs(double{value} - as_number(up));
  if (to_down != to_up) return to_down < to_up ? down : up;
  return down % 2 == 0 ? down : up;
}

}  // namespace

BOOST_AUTO_TEST_CASE(silu_is_exact_to_a_few_units_in_the_last_place) {
  for (const std::string& set : cpu::instruction_sets()) {
    const auto kernels = cpu::kernels_for(set);
    BOOST_REQUIRE(kernels);
    double worst = 0;
    for (int i = -8700; i <= 9000; ++i) {
      const float g = static_cast<float>(i) / 100.0F;
      if (g == 0.0F) continue;
      const double exact = double{g} / (1 + std::exp(-double{g}));
      worst = std::max(worst, std::abs((double{kernel_silu(*kernels, g)} - exact) / exact));
    }
    BOOST_TEST(worst < 3e-7, set << ": " << worst);
  }
}

BOOST_AUTO_TEST_CASE(silu_has_the_right_limits) {
  const auto kernels = cpu::kernels_for("");
  BOOST_REQUIRE(kernels);
  BOOST_TEST(kernel_silu(*kernels, 0.0F) == 0.0F);
  BOOST_TEST(kernel_silu(*kernels, -100.0F) == 0.0F);
  BOOST_TEST(kernel_silu(*kernels, -3e38F) == 0.0F);
  BOOST_TEST(kernel_silu(*kernels, 3e38F) == 3e38F);
  BOOST_TEST(std::isnan(kernel_silu(*kernels, std::numeric_limits<float>::quiet_NaN())));
}

BOOST_AUTO_TEST_CASE(every_bf16_survives_the_way_to_f32_and_back) {
  for (std::uint32_t v = 0; v < 0x10000U; ++v) {
    const auto half = static_cast<std::uint16_t>(v);
    const float value = f32_of_bf16(half);
    BOOST_REQUIRE(bf16_of_f32(value) == (std::isnan(value) ? kBf16Nan : half));
  }
}

BOOST_AUTO_TEST_CASE(bf16_rounds_to_nearest_and_ties_to_even) {
  std::mt19937 random(12);
  for (int i = 0; i < 200000; ++i) {
    auto bits = static_cast<std::uint32_t>(random());
    if (i % 3 == 0) bits = (bits & 0xFFFF0000U) | 0x8000U;  // ties
    if (i % 7 == 0) bits |= 0x7F7F0000U;                    // near the largest, where rounding can reach infinity
    const auto value = std::bit_cast<float>(bits);
    if (!std::isfinite(value)) continue;
    BOOST_REQUIRE_MESSAGE(bf16_of_f32(value) == nearest_bf16(value), "bits " << bits);
  }
  BOOST_TEST(bf16_of_f32(std::numeric_limits<float>::infinity()) == 0x7F80);
  BOOST_TEST(bf16_of_f32(-std::numeric_limits<float>::infinity()) == 0xFF80);
  // A NaN whose payload lies in the lower half must not become infinite.
  BOOST_TEST(bf16_of_f32(std::bit_cast<float>(0x7F800001U)) == kBf16Nan);
  BOOST_TEST(bf16_of_f32(std::bit_cast<float>(0xFFFFFFFFU)) == kBf16Nan);
}

BOOST_AUTO_TEST_CASE(conversion_of_spans_is_that_of_values_at_any_alignment) {
  std::mt19937 random(3);
  for (const std::size_t count : {0U, 1U, 7U, 64U, 129U}) {
    std::vector<float> values(count);
    for (float& v : values) v = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    for (const TransportType type : {TransportType::kBf16, TransportType::kF32}) {
      std::vector<std::byte> bytes(count * bytes_of(type) + 1);
      const std::span<std::byte> odd = std::span(bytes).subspan(1);
      to_transport(type, values, odd);
      std::vector<float> back(count);
      from_transport(type, odd, back);
      std::vector<float> rounded = values;
      round_to_transport(type, rounded);
      for (std::size_t i = 0; i < count; ++i) {
        float expected = type == TransportType::kBf16 ? rounded_to_bf16(values[i]) : values[i];
        if (std::isnan(values[i])) expected = std::bit_cast<float>(kF32Nan);
        BOOST_TEST(std::bit_cast<std::uint32_t>(back[i]) == std::bit_cast<std::uint32_t>(expected));
        BOOST_TEST(std::bit_cast<std::uint32_t>(rounded[i]) == std::bit_cast<std::uint32_t>(expected));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(row_tiles_cover_all_rows_once_and_are_of_equal_size) {
  for (std::size_t rows = 1; rows <= 300; ++rows) {
    const cpu::RowTiles tiles(rows);
    std::size_t next = 0;
    for (std::size_t t = 0; t < tiles.count; ++t) {
      BOOST_REQUIRE(tiles.first(t) == next);
      BOOST_REQUIRE(tiles.rows(t) >= 1);
      BOOST_REQUIRE(tiles.rows(t) <= cpu::kTileRows);
      BOOST_REQUIRE(tiles.rows(0) - tiles.rows(t) <= 1);
      next += tiles.rows(t);
    }
    BOOST_REQUIRE(next == rows);
  }
  BOOST_TEST(cpu::RowTiles(0).count == 0U);
}
