#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "messages/control.hpp"
#include "messages/error.hpp"
#include "messages/ids.hpp"
#include "scheduling/model_shape.hpp"

/// Where each expert's replicas live. Placement = one epoch, by lasting GPU ids; LayerSites = one layer of it, resolved to
/// the ranks of a view.
namespace troupe::scheduling {

/// A GPU that can hold experts, as planners see it.
struct GpuSlots {
  GpuId gpu;
  std::uint32_t slots_per_layer = 0;
};

using Replica = messages::ReplicaEntry;

/// Replicas sorted by (layer, expert, gpu, slot).
struct Placement {
  Epoch epoch;
  std::vector<Replica> replicas;
};

/// Is this a placement of that model on those GPUs? Each expert of each layer has a replica; no slot twice; no expert twice
/// on a GPU (C01); shares finite, > 0 and summing to 1 per expert; slots within range; nothing unknown.
/// Errors: kBadInput, kSlotsTooFew; the message names layer, expert and GPU.
Result<void> check_placement(const ModelShape& shape, std::span<const GpuSlots> gpus, const Placement& placement);

/// How experts are dealt out by plan_uniform.
enum class UniformOrder {
  kContiguous,  ///< GPU g gets experts [g*E/G, (g+1)*E/G)
  kRoundRobin   ///< expert e goes to GPU e mod G
};

/// Equal numbers of experts per GPU, as nearly as slots allow; counts that do not divide and uneven slots work (C02).
/// Errors: kSlotsTooFew, naming the slots per layer that are there, the experts, and the least slots_per_gpu that would do.
Result<Placement> plan_uniform(const ModelShape& shape, std::span<const GpuSlots> gpus, UniformOrder order, Epoch epoch);

/// A replica in one view: which rank, which slot.
struct Site {
  std::uint32_t expert = 0;
  Rank rank;
  std::uint32_t slot = 0;  ///< slot of the layer on that GPU
  double share = 1.0;
};

/// All replicas of one layer, sorted by (expert, rank, slot); identical on every rank of the view, so that an index into
/// `sites` means the same everywhere. Sites of expert e: [first_site[e], first_site[e+1]).
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

/// Resolves a placement for a view, one entry per layer. An expert whose every replica is on a GPU outside the view is an
/// error: kUnavailable, naming the experts.
Result<std::vector<LayerSites>> resolve(const ModelShape& shape, const Placement& placement,
                                        std::span<const RankPlace> ranks);

messages::EpochPublished to_message(const Placement& placement, View view);
/// Errors as check_placement.
Result<Placement> from_message(const messages::EpochPublished& message);

}  // namespace troupe::scheduling
