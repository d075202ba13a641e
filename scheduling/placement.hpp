#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "messages/control.hpp"
#include "messages/error.hpp"
#include "messages/ids.hpp"
#include "scheduling/model_shape.hpp"

/// Where each expert's replicas live. Placement = one epoch, by lasting GPU ids; LayerSites = one layer of it, resolved
/// to the ranks of a view. Pure; any thread.
namespace troupe::scheduling {

/// A GPU that can hold experts, as planners see it.
struct GpuSlots {
  GpuId gpu;
  std::uint32_t slots_per_layer = 0;
};

using Replica = messages::ReplicaEntry;

/// Replicas sorted by (layer, expert, gpu, slot) when they come from this module; what takes a Placement does not rely
/// on it.
struct Placement {
  Epoch epoch;
  std::vector<Replica> replicas;
};

/// Most replicas of a placement, of all layers together: what one message may carry (messages::CodecLimits).
inline constexpr std::size_t kMaxReplicas = std::size_t{1} << 20;
/// How far from 1 the shares of an expert may sum, so that shares written with a few decimals will do.
inline constexpr double kShareTolerance = 1e-6;

/// Can these GPUs hold one replica of each expert? Errors: kSlotsTooFew, naming placement.slots_per_gpu, the slots per
/// layer that are there, the experts, and the least slots_per_gpu that would do; kBadInput (no GPU, a GPU twice, no
/// layers or experts); kLimit (more than kMaxReplicas).
Result<void> check_slots(const ModelShape& shape, std::span<const GpuSlots> gpus);

/// Is this a placement of that model on those GPUs? Each expert of each layer has a replica; no slot twice; no expert
/// twice on a GPU (C01), hence no more replicas than GPUs; shares finite, > 0 and summing to 1 per expert; slots within
/// range; nothing unknown. Changes nothing. Errors: those of check_slots; kBadInput, whose message names layer, expert
/// and GPU.
Result<void> check_placement(const ModelShape& shape, std::span<const GpuSlots> gpus, const Placement& placement);

/// How experts are dealt out by plan_uniform. Both give each GPU the same number, to within one, where slots are equal.
enum class UniformOrder {
  kContiguous,  ///< GPU g of G gets experts [g*E/G, (g+1)*E/G); uneven slots: ranges in proportion to the slots
  kRoundRobin   ///< expert e goes to GPU e mod G; a GPU whose slots are full is passed over
};

/// One replica of each expert. Counts that do not divide and uneven slots work, and so do more GPUs than experts (C02):
/// then some GPUs hold none of a layer. Which GPUs get one expert more (or one at all) moves on from layer to layer, so
/// that GPUs hold about equal numbers over all layers; the formulas of UniformOrder are those of layer 0, and of every
/// layer where the counts divide. Errors: those of check_slots.
Result<Placement> plan_uniform(const ModelShape& shape, std::span<const GpuSlots> gpus, UniformOrder order,
                               Epoch epoch);

/// A replica in one view: which rank, which slot.
struct Site {
  std::uint32_t expert = 0;
  Rank rank;
  std::uint32_t slot = 0;  ///< slot of the layer on that GPU
  double share = 1.0;
};

/// All replicas of one layer, sorted by (expert, rank, slot); identical on every rank of the view, so that an index
/// into `sites` means the same everywhere. Sites of expert e: [first_site[e], first_site[e+1]).
struct LayerSites {
  std::uint32_t ranks = 0;
  std::vector<Site> sites;
  std::vector<std::uint32_t> first_site;  ///< [experts + 1]
  /// Sites on a rank, ascending: the order in which rows for that rank are sent and computed.
  std::vector<std::vector<std::uint32_t>> on_rank;
};

/// One rank's place in a view.
struct RankPlace {
  GpuId gpu;
};

/// Ranks of a view: the GPUs of its members in order.
std::vector<RankPlace> ranks_of(const messages::ViewPublished& view);

/// Resolves a placement for a view, one entry per layer. Replicas on GPUs outside the view are left out, and the shares
/// of their expert's other replicas grow in proportion, to sum to 1. An expert whose every replica is on a GPU outside
/// the view is an error: kUnavailable, naming the experts. Other errors: kBadInput (a replica of no layer or expert of
/// the model, a share that is no positive number, a GPU that is two ranks of the view). Slots are as check_placement
/// has seen them.
Result<std::vector<LayerSites>> resolve(const ModelShape& shape, const Placement& placement,
                                        std::span<const RankPlace> ranks);

messages::EpochPublished to_message(const Placement& placement, View view);
/// The placement of a message, sorted. Errors: of check_placement those that can be seen without model and GPUs: a slot
/// twice, an expert twice on a GPU, bad shares, too many replicas; and epoch 0, which means none.
Result<Placement> from_message(const messages::EpochPublished& message);

}  // namespace troupe::scheduling
