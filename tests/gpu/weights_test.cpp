#define BOOST_TEST_MODULE weights
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

#include "gpu/bf16.hpp"
#include "gpu/device.hpp"
#include "tests/gpu/device_cases.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::gpu::test;
using Matrix = WeightSource::Matrix;

namespace {

constexpr Matrix kMatrices[] = {Matrix::kW1, Matrix::kW3, Matrix::kW2};

std::vector<float> rows_of_matrix(const scheduling::ModelShape& shape, ExpertId expert, Matrix matrix,
                                  std::uint32_t first, std::uint32_t rows) {
  std::vector<float> out(std::size_t{rows} * (matrix == Matrix::kW2 ? shape.d_ff : shape.d_model));
  BOOST_REQUIRE(make_synthetic_weights(shape)->read(expert, matrix, first, rows, out));
  return out;
}

double correlation(std::span<const float> a, std::span<const float> b) {
  double ab = 0;
  double aa = 0;
  double bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ab += double{a[i]} * double{b[i]};
    aa += double{a[i]} * double{a[i]};
    bb += double{b[i]} * double{b[i]};
  }
  return ab / std::sqrt(aa * bb);
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_row_is_the_same_by_itself_and_among_others) {
  const auto shape = shape_of(67, 130, bf16, bf16);
  for (const Matrix matrix : kMatrices) {
    const std::uint32_t rows = matrix == Matrix::kW2 ? shape.d_model : shape.d_ff;
    const std::size_t columns = matrix == Matrix::kW2 ? shape.d_ff : shape.d_model;
    const std::vector<float> all = rows_of_matrix(shape, {0, 3}, matrix, 0, rows);
    for (std::uint32_t r = 0; r < rows; ++r) {
      const std::vector<float> one = rows_of_matrix(shape, {0, 3}, matrix, r, 1);
      BOOST_REQUIRE(std::equal(one.begin(), one.end(), all.begin() + static_cast<std::ptrdiff_t>(r * columns)));
    }
  }
}

BOOST_AUTO_TEST_CASE(values_are_uniform_and_scaled_by_the_inner_dimension) {
  for (const int type : {bf16, f32}) {
    const auto shape = shape_of(256, 1024, type, bf16);
    for (const Matrix matrix : kMatrices) {
      const double inner = matrix == Matrix::kW2 ? shape.d_ff : shape.d_model;
      const auto values = rows_of_matrix(shape, {0, 0}, matrix, 0, 200);
      const double width = std::sqrt(3 / inner);
      double sum = 0;
      double squares = 0;
      std::size_t upper_quarter = 0;
      for (const float v : values) {
        BOOST_REQUIRE(std::abs(double{v}) <= width * 1.005);
        if (type == bf16) BOOST_REQUIRE(rounded_to_bf16(v) == v);
        sum += double{v};
        squares += double{v} * double{v};
        upper_quarter += double{v} > width / 2 ? 1U : 0U;
      }
      const auto n = static_cast<double>(values.size());
      // Five standard errors of each.
      BOOST_TEST(std::abs(sum / n) < 5 / std::sqrt(n * inner));
      BOOST_TEST(std::abs(squares / n * inner - 1) < 5 * std::sqrt(0.8 / n) + 0.005);
      BOOST_TEST(std::abs(static_cast<double>(upper_quarter) / n - 0.25) < 5 * std::sqrt(0.1875 / n) + 0.002);
    }
  }
}

BOOST_AUTO_TEST_CASE(rows_matrices_experts_layers_and_seeds_have_nothing_in_common) {
  auto shape = shape_of(4096, 4096, bf16, bf16);
  shape.layers = 2;
  const auto base = rows_of_matrix(shape, {0, 0}, Matrix::kW1, 0, 1);
  auto other_seed = shape;
  other_seed.seed = 2;
  const std::vector<float> others[] = {
      rows_of_matrix(shape, {0, 0}, Matrix::kW1, 1, 1), rows_of_matrix(shape, {0, 0}, Matrix::kW3, 0, 1),
      rows_of_matrix(shape, {0, 0}, Matrix::kW2, 0, 1), rows_of_matrix(shape, {0, 1}, Matrix::kW1, 0, 1),
      rows_of_matrix(shape, {1, 0}, Matrix::kW1, 0, 1), rows_of_matrix(other_seed, {0, 0}, Matrix::kW1, 0, 1)};
  // Five standard errors: 5 / sqrt(4096).
  for (const auto& other : others) BOOST_TEST(std::abs(correlation(base, other)) < 0.08);
  // Neighbours in a row, too.
  for (std::size_t lag = 1; lag <= 64; ++lag) {
    BOOST_TEST(std::abs(correlation(std::span(base).first(base.size() - lag), std::span(base).subspan(lag))) < 0.08);
  }
}

BOOST_AUTO_TEST_CASE(these_are_the_weights_of_seed_1_for_ever) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  const auto add = [&](const std::vector<float>& values) {
    for (const float v : values) hash = (hash ^ std::bit_cast<std::uint32_t>(v)) * 0x100000001B3U;
  };
  for (const int type : {bf16, f32}) {
    auto shape = shape_of(45, 70, type, bf16);
    shape.layers = 3;
    shape.gate = scheduling::GateKind::kSigmoidGroup;
    for (const Matrix matrix : kMatrices) add(rows_of_matrix(shape, {2, 7}, matrix, 3, 5));
    std::vector<float> router(std::size_t{shape.experts} * shape.d_model);
    std::vector<float> bias(shape.experts);
    BOOST_REQUIRE(make_synthetic_weights(shape)->read_gate(1, router, bias));
    add(router);
    add(bias);
  }
  BOOST_TEST(hash == 14466086239893378546U);
}

BOOST_AUTO_TEST_CASE(scores_of_normed_rows_spread) {
  auto shape = shape_of(512, 8, bf16, f32);
  shape.experts = 64;
  const auto source = make_synthetic_weights(shape);
  const auto device = device_of(shape, 1, 64);
  BOOST_REQUIRE(device->load_gate(0, *source));
  const auto x = random_values(std::size_t{64} * shape.d_model, 4);
  std::vector<std::byte> normed(x.size() * 4);
  device->rms_norm(64, x, normed);
  std::vector<float> logits(std::size_t{64} * shape.experts);
  BOOST_REQUIRE(device->run_gate(0, 64, values_of(shape, normed), logits));
  double squares = 0;
  for (const float v : logits) squares += double{v} * double{v};
  const double deviation = std::sqrt(squares / static_cast<double>(logits.size()));
  BOOST_TEST(deviation > 1.2);
  BOOST_TEST(deviation < 1.8);
}

BOOST_AUTO_TEST_CASE(only_the_gate_with_a_selection_bias_has_one) {
  auto shape = shape_of(32, 8, bf16, bf16);
  shape.experts = 16;
  std::vector<float> router(std::size_t{shape.experts} * shape.d_model);
  std::vector<float> bias(shape.experts, 9.0F);
  for (const auto gate : {scheduling::GateKind::kSoftmaxTopK, scheduling::GateKind::kSoftmaxTopKRenorm,
                          scheduling::GateKind::kTopKSoftmax, scheduling::GateKind::kSigmoidGroup}) {
    shape.gate = gate;
    BOOST_REQUIRE(make_synthetic_weights(shape)->read_gate(0, router, bias));
    const bool zero = std::all_of(bias.begin(), bias.end(), [](float b) { return b == 0.0F; });
    BOOST_TEST(zero == (gate != scheduling::GateKind::kSigmoidGroup));
    BOOST_TEST(std::all_of(bias.begin(), bias.end(), [](float b) { return std::abs(b) <= 0.05F; }));
  }
}

BOOST_AUTO_TEST_CASE(reading_beyond_the_model_is_refused) {
  const auto shape = shape_of(16, 24, bf16, bf16);
  const auto source = make_synthetic_weights(shape);
  std::vector<float> row(16);
  const auto refused = [](const Result<void>& result, const std::string& words) {
    BOOST_REQUIRE(!result);
    BOOST_TEST((result.error().code == ErrorCode::kBadInput));
    BOOST_TEST(result.error().message.find(words) != std::string::npos, result.error().message);
  };
  refused(source->read({1, 0}, Matrix::kW1, 0, 1, row), "layer 1");
  refused(source->read({0, 8}, Matrix::kW1, 0, 1, row), "expert 8");
  refused(source->read({0, 0}, Matrix::kW1, 24, 1, row), "rows 24 to 25");
  refused(source->read({0, 0}, Matrix::kW1, 0xFFFFFFFFU, 1, row), "of a matrix of 24 x 16");
  refused(source->read({0, 0}, Matrix::kW2, 0, 1, row), "into 16 values");
  refused(source->read_gate(1, row, row), "layer 1");
}
