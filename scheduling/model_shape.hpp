#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "messages/error.hpp"

/// The numbers of a model that scheduling and devices need. Weights and tokenizers are elsewhere.
namespace troupe::scheduling {

/// How the gate turns a row of scores into k experts and weights.
enum class GateKind {
  kSoftmaxTopK,        ///< softmax over all experts, then the k largest, weights as they are
  kSoftmaxTopKRenorm,  ///< the same, weights divided by their sum (Mixtral, Qwen3-MoE)
  kTopKSoftmax,        ///< the k largest scores, softmax over those
  kSigmoidGroup        ///< sigmoid plus selection bias, best groups first, then the k largest (DeepSeek-V3)
};

enum class WeightType { kBf16, kF32 };
/// Type in which hidden states travel (and are rounded to whether they travel or stay).
enum class TransportType { kBf16, kF32 };

constexpr std::size_t bytes_of(WeightType type) {
  return type == WeightType::kBf16 ? 2 : 4;
}
constexpr std::size_t bytes_of(TransportType type) {
  return type == TransportType::kBf16 ? 2 : 4;
}

struct ModelShape {
  std::string name;           ///< preset's name, or "custom"
  std::uint32_t layers = 1;   ///< MoE layers
  std::uint32_t experts = 8;  ///< experts per layer
  std::uint32_t top_k = 2;
  std::uint32_t d_model = 256;
  std::uint32_t d_ff = 512;
  WeightType weights = WeightType::kBf16;
  TransportType transport = TransportType::kBf16;
  GateKind gate = GateKind::kSoftmaxTopKRenorm;
  std::uint32_t groups = 1;      ///< kSigmoidGroup: experts are split into this many groups
  std::uint32_t top_groups = 1;  ///< kSigmoidGroup: experts are chosen from the best this many groups
  float routed_scale = 1.0F;     ///< factor on the final weights (DeepSeek-V3: 2.5)
  std::uint64_t seed = 1;        ///< of the synthetic weights

  /// w1, w3: [d_ff x d_model]; w2: [d_model x d_ff].
  std::size_t expert_parameters() const { return std::size_t{3} * d_model * d_ff; }
  std::size_t expert_bytes() const { return expert_parameters() * bytes_of(weights); }
  std::size_t row_bytes() const { return std::size_t{d_model} * bytes_of(transport); }
  friend bool operator==(const ModelShape&, const ModelShape&) = default;
};

/// Does the shape make sense to the gate and to planners? At least one layer, expert, group and dimension; 1 <= top_k
/// <= experts; kSigmoidGroup: groups divide the experts, top_groups <= groups and the groups chosen hold top_k;
/// routed_scale > 0 and at most 1e30; expert ids fit the int32 of a route. Errors: kBadInput, naming field, value and
/// what would do.
Result<void> check_shape(const ModelShape& shape);

}  // namespace troupe::scheduling
