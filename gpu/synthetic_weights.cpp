// Weights from the model's seed.
#include "gpu/cpu/targets.hpp"
#include "gpu/device.hpp"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gpu/synthetic_weights.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

#include <cmath>
#include <cstdint>
#include <string>

#ifndef TROUPE_GPU_SYNTHETIC_KEY
#define TROUPE_GPU_SYNTHETIC_KEY
namespace troupe::gpu {
/// What the values of one row depend on besides the column.
struct RowKey {
  std::uint32_t first = 0;
  std::uint32_t second = 0;
};
}  // namespace troupe::gpu
#endif

HWY_BEFORE_NAMESPACE();
namespace troupe::gpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// out[c] = scale * u(key, c), u uniform in [-1, 1) in steps of 2^-23; rounded to bf16 if `to_bf16`. Integer arithmetic
/// and one rounding multiplication, so the bits are the same everywhere. The hash: a counter through two rounds of
/// xor-shift-multiply with the constants of Wellons' lowbias32 (2018), keyed before each.
void fill_row(RowKey key, float scale, bool to_bf16, float* out, std::size_t columns) {
  const hn::ScalableTag<std::uint32_t> du;
  const hn::RebindToSigned<decltype(du)> di;
  const hn::RebindToFloat<decltype(du)> df;
  constexpr std::size_t kLanes = HWY_LANES(std::uint32_t);
  HWY_ALIGN float last[kLanes];
  auto counter = hn::Iota(du, key.first);
  for (std::size_t c = 0; c < columns; c += kLanes) {
    auto h = counter;
    counter = hn::Add(counter, hn::Set(du, static_cast<std::uint32_t>(kLanes)));
    h = hn::Xor(h, hn::ShiftRight<16>(h));
    h = hn::Mul(h, hn::Set(du, 0x21F0AAADU));
    h = hn::Xor(h, hn::ShiftRight<15>(h));
    h = hn::Xor(h, hn::Set(du, key.second));
    h = hn::Mul(h, hn::Set(du, 0x735A2D97U));
    h = hn::Xor(h, hn::ShiftRight<15>(h));
    h = hn::Mul(h, hn::Set(du, 0x846CA68BU));
    h = hn::Xor(h, hn::ShiftRight<16>(h));
    // The upper 24 bits as a signed number are exact in f32.
    const auto number = hn::ConvertTo(df, hn::ShiftRight<8>(hn::BitCast(di, h)));
    auto value = hn::Mul(number, hn::Set(df, scale / 8388608.0F));
    if (to_bf16) {
      auto bits = hn::BitCast(du, value);
      const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1U));
      bits = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFFU)));
      value = hn::BitCast(df, hn::And(bits, hn::Set(du, 0xFFFF0000U)));
    }
    if (columns - c >= kLanes) {
      hn::StoreU(value, df, out + c);
    } else {
      hn::Store(value, df, last);
      for (std::size_t i = 0; i < columns - c; ++i) out[c + i] = last[i];
    }
  }
}

}  // namespace troupe::gpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace troupe::gpu {
namespace {

HWY_EXPORT(fill_row);

/// Numbers of the matrices in a row's key; part of what the weights are, so never changed.
enum class Stream : std::uint64_t { kW1 = 1, kW3 = 2, kW2 = 3, kRouter = 4, kBias = 5 };

/// Standard deviation of a router's scores for a normed row: enough for clear choices, not so much that one expert
/// takes all.
constexpr double kScoreSpread = 1.5;
/// Largest selection bias; scores after the sigmoid lie in 0..1.
constexpr float kLargestBias = 0.05F;

/// Steele, Lea and Flood's SplitMix64 (2014), its output function.
constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31U);
}

/// Half width of the uniform distribution whose sum over `inner` products with values of unit variance has variance 1.
double half_width(std::uint32_t inner) {
  return std::sqrt(3.0 / static_cast<double>(inner));
}

class SyntheticWeights final : public WeightSource {
 public:
  explicit SyntheticWeights(const scheduling::ModelShape& shape) : shape_(shape) {}

  Result<void> read(ExpertId expert, Matrix matrix, std::uint32_t first_row, std::uint32_t rows,
                    std::span<float> out) const override {
    const bool down = matrix == Matrix::kW2;
    const std::uint32_t all_rows = down ? shape_.d_model : shape_.d_ff;
    const std::uint32_t columns = down ? shape_.d_ff : shape_.d_model;
    if (expert.layer >= shape_.layers || expert.expert >= shape_.experts) {
      return fail(ErrorCode::kBadInput, "synthetic weights: layer " + std::to_string(expert.layer) + ", expert " +
                                            std::to_string(expert.expert) + " is not in a model of " +
                                            std::to_string(shape_.layers) + " layers x " +
                                            std::to_string(shape_.experts) + " experts");
    }
    if (std::uint64_t{first_row} + rows > all_rows || out.size() != std::size_t{rows} * columns) {
      return fail(ErrorCode::kBadInput, "synthetic weights: rows " + std::to_string(first_row) + " to " +
                                            std::to_string(std::uint64_t{first_row} + rows) + " into " +
                                            std::to_string(out.size()) + " values, of a matrix of " +
                                            std::to_string(all_rows) + " x " + std::to_string(columns));
    }
    const Stream stream = matrix == Matrix::kW1 ? Stream::kW1 : matrix == Matrix::kW3 ? Stream::kW3 : Stream::kW2;
    const auto scale = static_cast<float>(half_width(columns));
    const bool to_bf16 = shape_.weights == scheduling::WeightType::kBf16;
    for (std::uint32_t r = 0; r < rows; ++r) {
      HWY_DYNAMIC_DISPATCH(fill_row)
      (key(stream, expert, first_row + r), scale, to_bf16, out.data() + std::size_t{r} * columns, columns);
    }
    return {};
  }

  Result<void> read_gate(std::uint32_t layer, std::span<float> weight, std::span<float> bias) const override {
    if (layer >= shape_.layers || weight.size() != std::size_t{shape_.experts} * shape_.d_model ||
        bias.size() != shape_.experts) {
      return fail(ErrorCode::kBadInput,
                  "synthetic weights: gate of layer " + std::to_string(layer) + " into " +
                      std::to_string(weight.size()) + " weights and " + std::to_string(bias.size()) +
                      " biases, in a model of " + std::to_string(shape_.layers) + " layers, " +
                      std::to_string(shape_.experts) + " experts x " + std::to_string(shape_.d_model));
    }
    const auto scale = static_cast<float>(kScoreSpread * half_width(shape_.d_model));
    const bool to_bf16 = shape_.weights == scheduling::WeightType::kBf16;
    for (std::uint32_t e = 0; e < shape_.experts; ++e) {
      HWY_DYNAMIC_DISPATCH(fill_row)
      (key(Stream::kRouter, {layer, 0}, e), scale, to_bf16, weight.data() + std::size_t{e} * shape_.d_model,
       shape_.d_model);
    }
    const float bias_scale = shape_.gate == scheduling::GateKind::kSigmoidGroup ? kLargestBias : 0.0F;
    HWY_DYNAMIC_DISPATCH(fill_row)(key(Stream::kBias, {layer, 0}, 0), bias_scale, false, bias.data(), bias.size());
    if (bias_scale == 0.0F) std::fill(bias.begin(), bias.end(), 0.0F);
    return {};
  }

 private:
  RowKey key(Stream stream, ExpertId expert, std::uint32_t row) const {
    std::uint64_t state = mix(shape_.seed);
    state = mix(state ^ static_cast<std::uint64_t>(stream));
    state = mix(state ^ (std::uint64_t{expert.layer} << 32U | expert.expert));
    state = mix(state ^ row);
    return {static_cast<std::uint32_t>(state), static_cast<std::uint32_t>(state >> 32U)};
  }

  scheduling::ModelShape shape_;
};

}  // namespace

std::unique_ptr<WeightSource> make_synthetic_weights(const scheduling::ModelShape& shape) {
  return std::make_unique<SyntheticWeights>(shape);
}

}  // namespace troupe::gpu
#endif
