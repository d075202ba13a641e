#define BOOST_TEST_MODULE kernel_isa
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

#include "gpu/bf16.hpp"
#include "gpu/cpu/device.hpp"
#include "gpu/cpu/kernels.hpp"
#include "tests/gpu/device_cases.hpp"

// The promise at its root: the same bits by every instruction set, and by every machine.

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::gpu::test;

namespace {

/// Everything a device computes, for rows that hold ordinary numbers, huge, tiny and subnormal ones, infinities and
/// NaN.
std::vector<std::byte> all_results(const scheduling::ModelShape& shape, const std::string& instruction_set) {
  constexpr std::uint32_t kRows = 70;
  const auto device = device_of(shape, 2, 300, instruction_set);
  const auto source = make_synthetic_weights(shape);
  for (std::uint32_t e = 0; e < 2; ++e) BOOST_REQUIRE(device->load_expert(e, {0, e}, *source));
  BOOST_REQUIRE(device->load_gate(0, *source));

  std::vector<float> x = random_values(std::size_t{kRows} * shape.d_model, 21);
  const float special[] = {3e38F,
                           -3e38F,
                           1e-38F,
                           1e-42F,
                           -0.0F,
                           std::numeric_limits<float>::infinity(),
                           -std::numeric_limits<float>::infinity(),
                           std::bit_cast<float>(0xFFC12345U),
                           std::bit_cast<float>(0x7F812345U)};
  for (std::size_t i = 0; i < std::size(special); ++i) x[(40 + i) * shape.d_model + i % shape.d_model] = special[i];
  for (std::size_t c = 0; c < shape.d_model; ++c) x[50 * shape.d_model + c] *= 60.0F;
  for (std::size_t c = 0; c < shape.d_model; ++c) x[51 * shape.d_model + c] *= 1e-30F;

  std::vector<std::byte> results;
  const auto add = [&](std::span<const std::byte> bytes) { results.insert(results.end(), bytes.begin(), bytes.end()); };
  std::vector<std::byte> in(kRows * shape.row_bytes());
  to_transport(shape.transport, x, in);
  for (const std::uint32_t rows : {1U, 2U, 3U, 4U, 5U, 6U, 7U, 13U, 70U}) {
    add(run_one(*device, shape, rows % 2, std::span(in).first(rows * shape.row_bytes())));
  }
  std::vector<float> logits(std::size_t{kRows} * shape.experts);
  BOOST_REQUIRE(device->run_gate(0, kRows, x, logits));
  add(std::as_bytes(std::span(logits)));
  std::vector<std::byte> normed(in.size());
  device->rms_norm(kRows, x, normed);
  add(normed);
  std::vector<const std::byte*> parts;
  for (std::uint32_t t = 0; t < kRows; ++t) {
    parts.push_back(in.data() + t * shape.row_bytes());
    parts.push_back(t % 3 == 0 ? nullptr : in.data() + (kRows - 1 - t) * shape.row_bytes());
  }
  device->combine(kRows, 2, parts, random_values(parts.size(), 8), x);
  add(std::as_bytes(std::span(x)));
  return results;
}

/// FNV-1a, 64 bits.
std::uint64_t digest(std::span<const std::byte> bytes) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (const std::byte b : bytes) hash = (hash ^ std::to_integer<std::uint64_t>(b)) * 0x100000001B3U;
  return hash;
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_instruction_set_gives_the_same_bits) {
  const std::vector<std::string> sets = cpu::instruction_sets();
  BOOST_REQUIRE(!sets.empty());
  for (const std::string& set : sets) BOOST_TEST_MESSAGE("instruction set " << set);
  for (const auto& shape : {shape_of(64, 64, bf16, bf16), shape_of(129, 70, bf16, bf16), shape_of(33, 95, f32, f32),
                            shape_of(200, 31, bf16, f32), shape_of(3, 2, f32, bf16)}) {
    const std::vector<std::byte> expected = all_results(shape, sets.front());
    for (const std::string& set : sets) {
      const std::vector<std::byte> results = all_results(shape, set);
      BOOST_TEST((results == expected), set << " differs from " << sets.front() << ": " << name_of(shape));
    }
  }
}

BOOST_AUTO_TEST_CASE(every_machine_and_compiler_gives_these_bits) {
  BOOST_TEST(digest(all_results(shape_of(96, 160, bf16, bf16), "")) == 691753204662564304U);
  BOOST_TEST(digest(all_results(shape_of(50, 77, f32, f32), "")) == 7040392828081914533U);
}

BOOST_AUTO_TEST_CASE(an_instruction_set_that_is_not_there_is_refused) {
  const auto refused = cpu::CpuDevice::make(shape_of(8, 8, bf16, bf16), {1, 1}, "Z80");
  BOOST_REQUIRE(!refused);
  BOOST_TEST((refused.error().code == ErrorCode::kBadInput));
  BOOST_TEST(refused.error().message.find("'Z80'") != std::string::npos);
  BOOST_TEST(refused.error().message.find(cpu::instruction_sets().front()) != std::string::npos);
}

BOOST_AUTO_TEST_CASE(two_devices_of_different_instruction_sets_live_side_by_side) {
  const auto shape = shape_of(40, 48, bf16, bf16);
  const auto source = make_synthetic_weights(shape);
  const std::vector<std::string> sets = cpu::instruction_sets();
  const auto a = device_of(shape, 1, 4, sets.front());
  const auto b = device_of(shape, 1, 4, sets.back());
  BOOST_TEST(a->description().find(sets.front()) != std::string::npos);
  BOOST_TEST(b->description().find(sets.back()) != std::string::npos);
  BOOST_REQUIRE(a->load_expert(0, {0, 0}, *source));
  BOOST_REQUIRE(b->load_expert(0, {0, 0}, *source));
  const auto in = random_rows(shape, 4, 1);
  BOOST_TEST((run_one(*a, shape, 0, in) == run_one(*b, shape, 0, in)));
}
