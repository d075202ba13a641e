#define BOOST_TEST_MODULE device
#include "gpu/cpu/device.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

#include "gpu/bf16.hpp"
#include "gpu/device.hpp"
#include "tests/gpu/device_cases.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::gpu::test;

BOOST_AUTO_TEST_CASE(swiglu_agrees_with_plain_loops_in_double_precision) {
  for (const auto& shape : {shape_of(64, 96, bf16, bf16), shape_of(37, 53, bf16, bf16), shape_of(1, 1, bf16, bf16),
                            shape_of(130, 200, f32, f32), shape_of(97, 31, f32, f32), shape_of(64, 64, bf16, f32)}) {
    const auto source = make_synthetic_weights(shape);
    const auto device = device_of(shape, 1, 16);
    BOOST_REQUIRE(device->load_expert(0, {0, 3}, *source));
    const std::vector<std::byte> in = random_rows(shape, 16, 11);
    const std::vector<std::byte> out = run_one(*device, shape, 0, in);
    const double error = relative_error(plain_swiglu(shape, {0, 3}, *source, in), values_of(shape, out));
    const double most = shape.transport == scheduling::TransportType::kBf16 ? 1e-2 : 1e-5;
    BOOST_TEST(error < most, name_of(shape) << ": relative error " << error);
  }
}

BOOST_AUTO_TEST_CASE(a_row_has_the_same_bits_alone_and_among_others) {
  for (const auto& shape : {shape_of(72, 100, bf16, bf16), shape_of(72, 100, f32, f32), shape_of(72, 100, bf16, f32)}) {
    const auto source = make_synthetic_weights(shape);
    const auto device = device_of(shape, 1, 600);
    BOOST_REQUIRE(device->load_expert(0, {0, 1}, *source));
    constexpr std::uint32_t kRows = 600;
    const std::vector<std::byte> in = random_rows(shape, kRows, 5);
    std::vector<std::byte> alone;
    for (std::uint32_t r = 0; r < kRows; ++r) {
      const auto row = run_one(*device, shape, 0, rows_of(shape, in, r, 1));
      alone.insert(alone.end(), row.begin(), row.end());
    }
    std::vector<std::uint32_t> counts(70);
    for (std::uint32_t n = 1; n <= 70; ++n) counts[n - 1] = n;
    for (const std::uint32_t n : {256U, 263U, 264U, 265U, 529U, 600U}) counts.push_back(n);
    for (const std::uint32_t n : counts) {
      const auto together = run_one(*device, shape, 0, rows_of(shape, in, 0, n));
      BOOST_REQUIRE_MESSAGE(std::equal(together.begin(), together.end(), alone.begin()), name_of(shape)
                                                                                             << ", " << n << " rows");
    }
  }
}

BOOST_AUTO_TEST_CASE(a_row_has_the_same_bits_in_any_slot_and_group) {
  const auto shape = shape_of(48, 80, bf16, bf16);
  const auto source = make_synthetic_weights(shape);
  const auto device = device_of(shape, 4, 64);
  BOOST_REQUIRE(device->load_expert(0, {0, 0}, *source));
  BOOST_REQUIRE(device->load_expert(1, {0, 1}, *source));
  BOOST_REQUIRE(device->load_expert(3, {0, 0}, *source));
  const auto in = random_rows(shape, 40, 9);
  const auto of_0 = run_one(*device, shape, 0, in);
  const auto of_1 = run_one(*device, shape, 1, in);
  BOOST_TEST((of_0 != of_1));
  // Rows 0..9 and 30..39 to expert 0 by two slots, 10..29 to expert 1 in groups of unequal size, in mixed order.
  const std::vector<ExpertRows> groups = {{3, 30, 10}, {1, 10, 1}, {0, 0, 7}, {1, 11, 19}, {3, 7, 3}, {2, 5, 0}};
  std::vector<std::byte> out(in.size());
  BOOST_REQUIRE(device->run_experts(groups, in, out));
  for (std::uint32_t r = 0; r < 40; ++r) {
    const auto& expected = r >= 10 && r < 30 ? of_1 : of_0;
    BOOST_TEST((rows_of(shape, out, r, 1) == rows_of(shape, expected, r, 1)), "row " << r);
  }
}

BOOST_AUTO_TEST_CASE(rows_of_no_group_are_left_alone) {
  const auto shape = shape_of(16, 16, bf16, bf16);
  const auto device = device_of(shape, 1, 8);
  BOOST_REQUIRE(device->load_expert(0, {0, 0}, *make_synthetic_weights(shape)));
  const auto in = random_rows(shape, 8, 2);
  std::vector<std::byte> out(in.size(), std::byte{0x5A});
  const std::vector<ExpertRows> groups = {{0, 2, 3}};
  BOOST_REQUIRE(device->run_experts(groups, in, out));
  const std::vector<std::byte> untouched(shape.row_bytes(), std::byte{0x5A});
  for (const std::uint32_t r : {0U, 1U, 5U, 6U, 7U}) BOOST_TEST((rows_of(shape, out, r, 1) == untouched), "row " << r);
  BOOST_REQUIRE(device->run_experts({}, {}, {}));
}

BOOST_AUTO_TEST_CASE(a_call_that_does_not_fit_is_refused_with_its_numbers) {
  const auto shape = shape_of(16, 24, bf16, bf16);
  const auto source = make_synthetic_weights(shape);
  const auto device = device_of(shape, 2, 8);
  BOOST_REQUIRE(device->load_expert(0, {0, 0}, *source));
  const auto in = random_rows(shape, 9, 2);
  std::vector<std::byte> out(in.size());
  const auto refused = [&](std::vector<ExpertRows> groups, std::span<const std::byte> from, std::span<std::byte> to,
                           const std::string& words) {
    const auto result = device->run_experts(groups, from, to);
    BOOST_REQUIRE(!result);
    BOOST_TEST((result.error().code == ErrorCode::kBadInput));
    BOOST_TEST(result.error().message.find(words) != std::string::npos, result.error().message);
  };
  refused({{2, 0, 1}}, in, out, "slot 2 is not one of the 2 slots");
  refused({{1, 0, 1}}, in, out, "slot 1 holds no expert");
  refused({{0, 8, 2}}, in, out, "rows 8 to 10 of slot 0 lie beyond the 9 rows given");
  refused({{0, 0xFFFFFFFFU, 0xFFFFFFFFU}}, in, out, "beyond the 9 rows");
  refused({{0, 0, 9}}, in, out, "9 rows in one call; this device was made for at most 8");
  refused({{0, 0, 1}}, std::span(in).first(31), std::span(out).first(31), "31");
  refused({{0, 0, 1}}, in, std::span(out).first(32), "output of 32 bytes");
  refused({{0, 0, 1}}, std::span(out).first(64), std::span(out).subspan(32, 64), "overlap");

  for (const auto& [slot, words] :
       {std::pair<std::uint32_t, const char*>{0, "slot 0 is in use"}, {7, "slot 7 is not one"}}) {
    const auto result = device->load_expert(slot, {0, 1}, *source);
    BOOST_REQUIRE(!result);
    BOOST_TEST((result.error().code == ErrorCode::kBadInput));
    BOOST_TEST(result.error().message.find(words) != std::string::npos, result.error().message);
  }
}

BOOST_AUTO_TEST_CASE(a_load_that_fails_leaves_the_slot_free) {
  const auto shape = shape_of(16, 24, bf16, bf16);
  const auto source = make_synthetic_weights(shape);
  const auto device = device_of(shape, 1, 8);
  const auto result = device->load_expert(0, {0, 8}, *source);
  BOOST_REQUIRE(!result);
  BOOST_TEST(result.error().message.find("expert 8") != std::string::npos, result.error().message);
  BOOST_TEST(device->arena_use().slots_used == 0U);
  BOOST_REQUIRE(device->load_expert(0, {0, 7}, *source));
  BOOST_TEST(device->arena_use().slots_used == 1U);
}

BOOST_AUTO_TEST_CASE(a_released_slot_takes_another_expert) {
  const auto shape = shape_of(32, 40, bf16, bf16);
  const auto source = make_synthetic_weights(shape);
  const auto device = device_of(shape, 2, 8);
  const auto in = random_rows(shape, 3, 2);
  BOOST_REQUIRE(device->load_expert(0, {0, 5}, *source));
  BOOST_REQUIRE(device->load_expert(1, {0, 6}, *source));
  const auto of_6 = run_one(*device, shape, 1, in);
  device->release_slot(0);
  std::vector<std::byte> out(in.size());
  BOOST_TEST(!device->run_experts(std::vector<ExpertRows>{{0, 0, 3}}, in, out));
  BOOST_REQUIRE(device->load_expert(0, {0, 6}, *source));
  BOOST_TEST((run_one(*device, shape, 0, in) == of_6));
}

BOOST_AUTO_TEST_CASE(gate_logits_are_products_with_the_router_and_do_not_depend_on_the_batch) {
  auto shape = shape_of(70, 8, bf16, bf16);
  shape.experts = 67;
  shape.layers = 2;
  const auto source = make_synthetic_weights(shape);
  const auto device = device_of(shape, 1, 8);
  BOOST_TEST(!device->run_gate(1, 0, {}, {}));
  for (std::uint32_t layer = 0; layer < 2; ++layer) BOOST_REQUIRE(device->load_gate(layer, *source));
  constexpr std::uint32_t kRows = 40;
  const std::vector<float> in = random_values(std::size_t{kRows} * shape.d_model, 3);
  std::vector<float> logits(std::size_t{kRows} * shape.experts);
  BOOST_REQUIRE(device->run_gate(1, kRows, in, logits));

  std::vector<float> router(std::size_t{shape.experts} * shape.d_model);
  std::vector<float> bias(shape.experts);
  BOOST_REQUIRE(source->read_gate(1, router, bias));
  std::vector<double> expected(logits.size());
  for (std::size_t r = 0; r < kRows; ++r) {
    for (std::size_t e = 0; e < shape.experts; ++e) {
      for (std::size_t k = 0; k < shape.d_model; ++k) {
        expected[r * shape.experts + e] += double{in[r * shape.d_model + k]} * double{router[e * shape.d_model + k]};
      }
    }
  }
  BOOST_TEST(relative_error(expected, logits) < 1e-5);

  for (std::uint32_t r = 0; r < kRows; ++r) {
    std::vector<float> alone(shape.experts);
    BOOST_REQUIRE(device->run_gate(1, 1, std::span(in).subspan(std::size_t{r} * shape.d_model, shape.d_model), alone));
    BOOST_TEST(std::memcmp(alone.data(), logits.data() + std::size_t{r} * shape.experts, alone.size() * 4) == 0,
               "row " << r);
  }
  BOOST_TEST(!device->run_gate(2, kRows, in, logits));
  BOOST_TEST(!device->run_gate(0, kRows + 1, in, logits));
}

BOOST_AUTO_TEST_CASE(norm_divides_by_the_root_mean_square) {
  for (const std::uint32_t d_model : {1U, 3U, 64U, 65U, 513U, 1100U}) {
    const auto shape = shape_of(d_model, 8, f32, f32);
    const auto device = device_of(shape, 1, 8);
    std::vector<float> x = random_values(std::size_t{3} * d_model, 4);
    std::fill_n(x.begin() + d_model, d_model, 0.0F);
    std::vector<std::byte> out(x.size() * 4);
    device->rms_norm(3, x, out);
    const std::vector<float> normed = values_of(shape, out);
    std::vector<double> expected(x.size());
    for (std::size_t r = 0; r < 3; ++r) {
      double squares = 0;
      for (std::size_t i = 0; i < d_model; ++i) squares += std::pow(double{x[r * d_model + i]}, 2);
      for (std::size_t i = 0; i < d_model; ++i) {
        expected[r * d_model + i] = double{x[r * d_model + i]} / std::sqrt(squares / d_model + 1e-6);
      }
    }
    BOOST_TEST(relative_error(expected, normed) < 1e-6, "d_model " << d_model);
    BOOST_TEST(std::all_of(normed.begin() + d_model, normed.begin() + 2 * d_model, [](float v) { return v == 0.0F; }));
  }
}

BOOST_AUTO_TEST_CASE(combine_adds_the_parts_in_order_and_skips_those_that_are_missing) {
  const auto shape = shape_of(75, 8, bf16, bf16);
  const auto device = device_of(shape, 1, 8);
  const std::vector<std::byte> rows = random_rows(shape, 4, 6);
  const std::vector<float> values = values_of(shape, rows);
  std::vector<float> x = random_values(std::size_t{2} * shape.d_model, 7);
  x[0] = -0.0F;
  const std::vector<float> before = x;
  const std::byte* const r0 = rows.data();
  const std::vector<const std::byte*> parts = {nullptr, nullptr, nullptr, r0, nullptr, r0 + 2 * shape.row_bytes()};
  const std::vector<float> weights = {0.5F, 0.25F, 0.25F, 0.75F, 8.0F, 0.3F};
  device->combine(2, 3, parts, weights, x);
  BOOST_TEST(std::memcmp(x.data(), before.data(), shape.d_model * 4) == 0);
  for (std::size_t i = 0; i < shape.d_model; ++i) {
    const float sum = std::fma(0.3F, values[2 * shape.d_model + i], std::fma(0.75F, values[i], 0.0F));
    BOOST_TEST(x[shape.d_model + i] == before[shape.d_model + i] + sum);
  }
}

BOOST_AUTO_TEST_CASE(every_nan_leaves_as_the_same_one) {
  for (const auto& shape : {shape_of(40, 40, bf16, bf16), shape_of(40, 40, f32, f32)}) {
    const auto device = device_of(shape, 1, 8);
    BOOST_REQUIRE(device->load_expert(0, {0, 0}, *make_synthetic_weights(shape)));
    std::vector<float> row(40, 1.0F);
    row[3] = std::numeric_limits<float>::infinity();
    row[5] = std::bit_cast<float>(0xFFC12345U);
    std::vector<std::byte> in(shape.row_bytes());
    to_transport(shape.transport, row, in);
    const auto out = run_one(*device, shape, 0, in);
    std::vector<std::byte> expected(shape.row_bytes());
    to_transport(shape.transport, std::vector<float>(40, std::numeric_limits<float>::quiet_NaN()), expected);
    BOOST_TEST((out == expected));
    std::vector<std::byte> normed(shape.row_bytes());
    device->rms_norm(1, row, normed);
    BOOST_TEST((normed == expected));
  }
}
