#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "messages/client.hpp"
#include "messages/error.hpp"
#include "scheduling/model_shape.hpp"

/// From gate scores, or from a client's own routes, to k experts and weights per token. Pure; any thread.
namespace troupe::scheduling {

/// Routes of a batch of tokens in one layer. ids, weights: [tokens x top_k], row major; the gate's in the order of its
/// preference. A slot with id -1 adds nothing, has weight 0 and is counted nowhere. A valid token has k distinct valid
/// ids, or fewer where slots are -1. All weights are finite.
struct Routes {
  std::uint32_t tokens = 0;
  std::uint32_t top_k = 0;
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
  std::vector<std::uint8_t> flags;  ///< [tokens], messages::TokenFlag
  std::uint64_t refused_slots = 0;  ///< slots that named no expert of the layer (C13)
  std::uint64_t failed_tokens = 0;  ///< rows without usable scores (C14)
};

/// Applies the model's gate to logits [tokens x experts]. shape: one that check_shape accepts. bias: [experts], used by
/// kSigmoidGroup for the selection only; empty means zeros.
/// ranked_extra: how many further choices beyond top_k to append per token for the overflow policy "next expert"; they
/// go to `extra` [tokens x ranked_extra] (-1 where there are none), in the order of the gate's preference, and may be
/// null.
///
/// Ties go to the lower expert id. Scores that are not finite (C14), or whose bias is not, are as if the expert were
/// not there: never chosen, no part of a sum. A row with fewer than k finite scores fails: flag kTokenFailed, all ids
/// -1. So does every row where the sizes of logits or bias do not fit the shape.
///
/// kSigmoidGroup is DeepSeek-V3's: a group's score is the sum of its two best biased sigmoids, the best top_groups
/// groups stay, weights are the sigmoids without bias divided by their sum. Where the groups that stay have fewer than
/// k finite scores, the next best groups come in; where all k sigmoids are 0, each weighs 1/k.
///
/// Bits: a token's routes depend on its own logits only, and are the same on every machine (exact_math.hpp; f32 sums
/// over experts in ascending id, over choices in order of preference).
Routes route_by_gate(const ModelShape& shape, std::uint32_t tokens, std::span<const float> logits,
                     std::span<const float> bias, std::uint32_t ranked_extra = 0,
                     std::vector<std::int32_t>* extra = nullptr);

/// Takes a client's own routes for one layer. Per slot: id -1 is padding; an id outside 0..experts-1, or a weight that
/// is not finite, is refused for that slot (id becomes -1, flag kTokenBadRoute, counted); an expert named twice keeps
/// its first slot with the sum of the weights, later ones become -1 (C14's [4,4]: the one documented rule; a sum that
/// is no finite number any more is refused). Slots that ids or weights are too short for are refused too.
Routes route_by_client(const ModelShape& shape, std::uint32_t tokens, std::span<const std::int32_t> ids,
                       std::span<const float> weights);

}  // namespace troupe::scheduling
