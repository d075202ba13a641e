// Plans where the experts of a small model live on two nodes with two GPUs each, as the placement manager does when a
// cluster starts, and prints the plan: one line per layer, one column per rank.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <troupe/scheduling/model_shape.hpp>
#include <troupe/scheduling/placement.hpp>

namespace {

using troupe::Epoch;
using troupe::GpuId;
using troupe::NodeId;
using troupe::Result;
using troupe::scheduling::GpuSlots;
using troupe::scheduling::LayerSites;
using troupe::scheduling::ModelShape;
using troupe::scheduling::Placement;
using troupe::scheduling::RankPlace;

/// Every function of Troupe that can fail returns a value or an error whose message is written for a person.
template <class T>
T value_or_exit(Result<T> result) {
  if (result) return std::move(*result);
  std::fprintf(stderr, "embed: %s\n", result.error().message.c_str());
  std::exit(1);
}

std::string experts_of(const LayerSites& layer, std::size_t rank) {
  std::string experts;
  for (const std::uint32_t site : layer.on_rank[rank]) {
    experts += (experts.empty() ? "" : ",") + std::to_string(layer.sites[site].expert);
  }
  return experts;
}

}  // namespace

int main() {
  ModelShape shape;
  shape.name = "custom";
  shape.layers = 2;
  shape.experts = 10;
  shape.top_k = 2;

  // Ten experts on four GPUs do not divide: three slots per layer hold them, and two slots stay empty.
  std::vector<GpuSlots> gpus;
  std::vector<RankPlace> ranks;
  for (std::uint16_t node = 0; node < 2; ++node) {
    for (std::uint16_t gpu = 0; gpu < 2; ++gpu) {
      const GpuId id{NodeId{node}, gpu};
      gpus.push_back({id, 3});
      ranks.push_back({id});
    }
  }

  const Placement placement =
      value_or_exit(plan_uniform(shape, gpus, troupe::scheduling::UniformOrder::kContiguous, Epoch{1}));
  const std::vector<LayerSites> layers = value_or_exit(resolve(shape, placement, ranks));

  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    std::printf("layer %zu:", layer);
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      std::printf("  rank %zu has experts %s", rank, experts_of(layers[layer], rank).c_str());
    }
    std::printf("\n");
  }
  return 0;
}
