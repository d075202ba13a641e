#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "messages/client.hpp"
#include "messages/error.hpp"
#include "scheduling/model_shape.hpp"

/// From gate scores, or from a client's own routes, to k experts and weights per token.
namespace troupe::scheduling {

/// Routes of a batch of tokens in one layer. ids, weights: [tokens x top_k], row major.
/// A slot with id -1 adds nothing and is counted nowhere. A valid token has k distinct valid ids, or fewer where slots are -1.
struct Routes {
  std::uint32_t tokens = 0;
  std::uint32_t top_k = 0;
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
  std::vector<std::uint8_t> flags;  ///< [tokens], messages::TokenFlag
  std::uint64_t refused_slots = 0;  ///< slots that named no expert of the layer (C13)
  std::uint64_t failed_tokens = 0;  ///< rows without usable scores (C14)
};

/// Applies the model's gate to logits [tokens x experts]. bias: [experts], used by kSigmoidGroup for the selection only.
/// ranked_extra: how many further choices beyond top_k to append per token for the overflow policy "next expert"; they go
/// to `extra` [tokens x ranked_extra] (-1 where there are none), in the order of the gate's preference, and may be null.
/// Ties go to the lower expert id. NaN and infinite scores (C14): a NaN or -Inf score is never chosen while enough others
/// are there; a row with fewer than k finite scores fails: flag kTokenFailed, all ids -1. Nothing in the result is NaN.
Routes route_by_gate(const ModelShape& shape, std::uint32_t tokens, std::span<const float> logits,
                     std::span<const float> bias, std::uint32_t ranked_extra = 0, std::vector<std::int32_t>* extra = nullptr);

/// Takes a client's own routes for one layer. Per slot: id -1 is padding; an id outside 0..experts-1, or a weight that is
/// not finite, is refused for that slot (id becomes -1, flag kTokenBadRoute, counted); an expert named twice keeps its first
/// slot with the sum of the weights, later ones become -1 (C14's [4,4]: the one documented rule).
Routes route_by_client(const ModelShape& shape, std::uint32_t tokens, std::span<const std::int32_t> ids,
                       std::span<const float> weights);

}  // namespace troupe::scheduling
