#include "scheduling/placement.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

namespace troupe::scheduling {
namespace {

std::string text(std::uint64_t value) {
  return std::to_string(value);
}
std::string text(GpuId gpu) {
  return "GPU " + text(gpu.node.value) + "/" + text(gpu.gpu);
}
std::string text(ExpertId id) {
  return "layer " + text(id.layer) + ", expert " + text(id.expert);
}

/// Sorted by (layer, expert, gpu, slot): the order of a Placement. Errors: kLimit, before any work is spent on too
/// many.
Result<std::vector<Replica>> sorted_by_expert(const std::vector<Replica>& replicas) {
  if (replicas.size() > kMaxReplicas) {
    return fail(ErrorCode::kLimit, text(replicas.size()) + " replicas; a placement has at most " + text(kMaxReplicas));
  }
  std::vector<Replica> sorted = replicas;
  std::sort(sorted.begin(), sorted.end(), [](const Replica& a, const Replica& b) {
    return std::tie(a.expert, a.gpu, a.slot) < std::tie(b.expert, b.gpu, b.slot);
  });
  return sorted;
}

Result<void> check_shares(ExpertId expert, double sum) {
  if (std::abs(sum - 1.0) <= kShareTolerance) return {};
  return fail(ErrorCode::kBadInput,
              text(expert) + ": the shares of its replicas sum to " + std::to_string(sum) + ", not to 1");
}

/// What can be said of replicas without knowing the model and the GPUs. `sorted` by expert.
Result<void> check_replicas(const std::vector<Replica>& sorted) {
  double sum = 0;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const Replica& replica = sorted[i];
    if (!std::isfinite(replica.share) || !(replica.share > 0)) {
      return fail(ErrorCode::kBadInput, text(replica.expert) + " on " + text(replica.gpu) + ": share " +
                                            std::to_string(replica.share) + " is not a number above 0");
    }
    const bool same = i > 0 && sorted[i - 1].expert == replica.expert;
    if (same && sorted[i - 1].gpu == replica.gpu) {
      return fail(ErrorCode::kBadInput, text(replica.expert) + " has two replicas on " + text(replica.gpu) +
                                            ", slots " + text(sorted[i - 1].slot) + " and " + text(replica.slot) +
                                            "; put the second on another GPU");
    }
    if (i > 0 && !same) {
      if (auto done = check_shares(sorted[i - 1].expert, sum); !done) return done;
    }
    sum = same ? sum + replica.share : replica.share;
  }
  if (!sorted.empty()) {
    if (auto done = check_shares(sorted.back().expert, sum); !done) return done;
  }
  std::vector<std::tuple<GpuId, std::uint32_t, std::uint32_t, std::uint32_t>> slots;  // gpu, layer, slot, expert
  slots.reserve(sorted.size());
  for (const Replica& r : sorted) slots.emplace_back(r.gpu, r.expert.layer, r.slot, r.expert.expert);
  std::sort(slots.begin(), slots.end());
  for (std::size_t i = 1; i < slots.size(); ++i) {
    const auto& [gpu, layer, slot, expert] = slots[i];
    const auto& [gpu0, layer0, slot0, expert0] = slots[i - 1];
    if (gpu == gpu0 && layer == layer0 && slot == slot0) {
      return fail(ErrorCode::kBadInput, "layer " + text(layer) + ", slot " + text(slot) + " of " + text(gpu) +
                                            " is given to experts " + text(expert0) + " and " + text(expert));
    }
  }
  return {};
}

std::vector<GpuSlots> sorted_gpus(std::span<const GpuSlots> gpus) {
  std::vector<GpuSlots> sorted(gpus.begin(), gpus.end());
  std::sort(sorted.begin(), sorted.end(), [](const GpuSlots& a, const GpuSlots& b) { return a.gpu < b.gpu; });
  return sorted;
}

std::string list_missing(const std::vector<ExpertId>& missing) {
  constexpr std::size_t kNamed = 8;
  std::string names;
  for (std::size_t i = 0; i < missing.size() && i < kNamed; ++i) {
    names += (i == 0 ? "" : ", ") + text(missing[i].layer) + ":" + text(missing[i].expert);
  }
  if (missing.size() > kNamed) names += " and " + text(missing.size() - kNamed) + " more";
  return names;
}

}  // namespace

Result<void> check_slots(const ModelShape& shape, std::span<const GpuSlots> gpus) {
  if (gpus.empty()) return fail(ErrorCode::kBadInput, "no GPU to place experts on");
  if (shape.layers == 0 || shape.experts == 0) {
    return fail(ErrorCode::kBadInput, "model.layers = " + text(shape.layers) + ", model.experts = " +
                                          text(shape.experts) + ": nothing to place; set at least 1 of each");
  }
  if (std::uint64_t{shape.layers} * shape.experts > kMaxReplicas) {
    return fail(ErrorCode::kLimit, "model.layers = " + text(shape.layers) +
                                       " of model.experts = " + text(shape.experts) + "; a placement has at most " +
                                       text(kMaxReplicas) + " replicas");
  }
  const std::vector<GpuSlots> sorted = sorted_gpus(gpus);
  std::uint64_t slots = 0;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    if (i > 0 && sorted[i].gpu == sorted[i - 1].gpu)
      return fail(ErrorCode::kBadInput, text(sorted[i].gpu) + " is listed twice");
    slots += sorted[i].slots_per_layer;
  }
  if (slots >= shape.experts) return {};
  const std::uint64_t least = (std::uint64_t{shape.experts} + gpus.size() - 1) / gpus.size();
  return fail(ErrorCode::kSlotsTooFew, "placement.slots_per_gpu: the " + text(slots) + " slots per layer of " +
                                           text(gpus.size()) + " GPUs hold " + text(slots) + " of " +
                                           text(shape.experts) + " experts; set at least " + text(least) + " per GPU");
}

Result<void> check_placement(const ModelShape& shape, std::span<const GpuSlots> gpus, const Placement& placement) {
  if (auto done = check_slots(shape, gpus); !done) return done;
  const std::vector<GpuSlots> known = sorted_gpus(gpus);
  const auto by_expert = sorted_by_expert(placement.replicas);
  if (!by_expert) return tl::unexpected(by_expert.error());
  const std::vector<Replica>& sorted = *by_expert;
  for (const Replica& replica : sorted) {
    const std::string where = text(replica.expert) + " on " + text(replica.gpu);
    if (replica.expert.layer >= shape.layers || replica.expert.expert >= shape.experts) {
      return fail(ErrorCode::kBadInput,
                  where + ": the model has " + text(shape.layers) + " layers of " + text(shape.experts) + " experts");
    }
    const auto gpu = std::lower_bound(known.begin(), known.end(), replica.gpu,
                                      [](const GpuSlots& a, GpuId id) { return a.gpu < id; });
    if (gpu == known.end() || gpu->gpu != replica.gpu) return fail(ErrorCode::kBadInput, where + ": no such GPU");
    if (replica.slot >= gpu->slots_per_layer) {
      return fail(ErrorCode::kBadInput, where + ": slot " + text(replica.slot) + "; the GPU has " +
                                            text(gpu->slots_per_layer) + " per layer");
    }
  }
  if (auto done = check_replicas(sorted); !done) return done;
  // Sorted, so each expert in turn is there or is the first one missing.
  std::size_t at = 0;
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    for (std::uint32_t expert = 0; expert < shape.experts; ++expert) {
      const ExpertId id{layer, expert};
      if (at == sorted.size() || sorted[at].expert != id)
        return fail(ErrorCode::kBadInput, text(id) + " has no replica");
      while (at < sorted.size() && sorted[at].expert == id) ++at;
    }
  }
  return {};
}

std::vector<RankPlace> ranks_of(const messages::ViewPublished& view) {
  std::vector<RankPlace> ranks;
  for (const messages::Member& member : view.members) {
    for (std::size_t gpu = 0; gpu < member.gpus.size(); ++gpu) {
      ranks.push_back({GpuId{member.node_id, static_cast<std::uint16_t>(gpu)}});
    }
  }
  return ranks;
}

Result<std::vector<LayerSites>> resolve(const ModelShape& shape, const Placement& placement,
                                        std::span<const RankPlace> ranks) {
  std::vector<std::pair<GpuId, std::uint32_t>> by_gpu;
  by_gpu.reserve(ranks.size());
  for (std::size_t r = 0; r < ranks.size(); ++r) by_gpu.emplace_back(ranks[r].gpu, static_cast<std::uint32_t>(r));
  std::sort(by_gpu.begin(), by_gpu.end());
  for (std::size_t i = 1; i < by_gpu.size(); ++i) {
    if (by_gpu[i].first == by_gpu[i - 1].first) {
      return fail(ErrorCode::kBadInput, text(by_gpu[i].first) + " is both rank " + text(by_gpu[i - 1].second) +
                                            " and rank " + text(by_gpu[i].second) + " of the view");
    }
  }

  std::vector<LayerSites> layers(shape.layers);
  for (LayerSites& layer : layers) {
    layer.ranks = static_cast<std::uint32_t>(ranks.size());
    layer.on_rank.resize(ranks.size());
  }
  for (const Replica& replica : placement.replicas) {
    if (replica.expert.layer >= shape.layers || replica.expert.expert >= shape.experts) {
      return fail(ErrorCode::kBadInput, "epoch " + text(placement.epoch.value) + " places " + text(replica.expert) +
                                            "; the model has " + text(shape.layers) + " layers of " +
                                            text(shape.experts) + " experts");
    }
    if (!std::isfinite(replica.share) || !(replica.share > 0)) {
      return fail(ErrorCode::kBadInput, text(replica.expert) + " on " + text(replica.gpu) + ": share " +
                                            std::to_string(replica.share) + " is not a number above 0");
    }
    const auto found = std::lower_bound(by_gpu.begin(), by_gpu.end(), std::pair(replica.gpu, std::uint32_t{0}));
    if (found == by_gpu.end() || found->first != replica.gpu) continue;
    layers[replica.expert.layer].sites.push_back(
        {replica.expert.expert, Rank{found->second}, replica.slot, replica.share});
  }

  std::vector<ExpertId> missing;
  for (std::uint32_t l = 0; l < shape.layers; ++l) {
    LayerSites& layer = layers[l];
    std::sort(layer.sites.begin(), layer.sites.end(), [](const Site& a, const Site& b) {
      return std::tie(a.expert, a.rank, a.slot) < std::tie(b.expert, b.rank, b.slot);
    });
    layer.first_site.resize(std::size_t{shape.experts} + 1);
    std::uint32_t at = 0;
    for (std::uint32_t expert = 0; expert < shape.experts; ++expert) {
      layer.first_site[expert] = at;
      double sum = 0;
      std::uint32_t end = at;
      for (; end < layer.sites.size() && layer.sites[end].expert == expert; ++end) sum += layer.sites[end].share;
      if (end == at) missing.push_back({l, expert});
      for (; at < end; ++at) {
        // Untouched where all are there: 1.0 stays 1.0, and shares stay what the planner wrote.
        if (std::abs(sum - 1.0) > kShareTolerance) layer.sites[at].share /= sum;
        layer.on_rank[layer.sites[at].rank.value].push_back(at);
      }
    }
    layer.first_site[shape.experts] = at;
  }
  if (!missing.empty()) {
    return fail(ErrorCode::kUnavailable, "epoch " + text(placement.epoch.value) +
                                             " has no replica on a GPU of the view for " + text(missing.size()) +
                                             " experts (layer:expert): " + list_missing(missing));
  }
  return layers;
}

messages::EpochPublished to_message(const Placement& placement, View view) {
  return {placement.epoch, view, placement.replicas};
}

Result<Placement> from_message(const messages::EpochPublished& message) {
  if (message.epoch == Epoch{}) return fail(ErrorCode::kBadInput, "a placement of epoch 0; epochs begin at 1");
  const std::string where = "epoch " + text(message.epoch.value);
  auto sorted = sorted_by_expert(message.replicas);
  if (!sorted) return fail_in(where, sorted.error());
  if (auto done = check_replicas(*sorted); !done) return fail_in(where, done.error());
  return Placement{message.epoch, std::move(*sorted)};
}

}  // namespace troupe::scheduling
