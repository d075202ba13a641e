#include <algorithm>
#include <cmath>
#include <numeric>

#include "scheduling/placement.hpp"

namespace troupe::scheduling {
namespace {

/// A step near the golden section of n that visits all of 0..n-1 before it comes back: any few layers in a row are
/// spread.
std::uint64_t golden_step(std::uint64_t n) {
  constexpr double kGolden = 0.6180339887498949;
  auto step = static_cast<std::uint64_t>(std::llround(kGolden * static_cast<double>(n)));
  while (std::gcd(step, n) != 1) ++step;
  return step;
}

/// No layer has more than kMaxReplicas experts: slots far beyond that change nothing but could overflow a product.
std::uint64_t counted_slots(const GpuSlots& gpu) {
  return std::min<std::uint64_t>(gpu.slots_per_layer, kMaxReplicas * 16);
}

}  // namespace

Result<Placement> plan_uniform(const ModelShape& shape, std::span<const GpuSlots> gpus, UniformOrder order,
                               Epoch epoch) {
  if (auto done = check_slots(shape, gpus); !done) return tl::unexpected(done.error());

  Placement placement{epoch, {}};
  placement.replicas.reserve(std::size_t{shape.layers} * shape.experts);
  const auto place = [&](std::uint32_t layer, std::uint32_t expert, std::size_t gpu, std::uint32_t slot) {
    placement.replicas.push_back({ExpertId{layer, expert}, gpus[gpu].gpu, slot, 1.0});
  };

  if (order == UniformOrder::kContiguous) {
    // In units of the greatest common divisor, so that equal slots count 1 each and the formula is the plain g*E/G.
    std::uint64_t unit = 0;
    std::uint64_t slots = 0;
    for (const GpuSlots& gpu : gpus) {
      unit = std::gcd(unit, counted_slots(gpu));
      slots += counted_slots(gpu);
    }
    const std::uint64_t total = slots / unit;
    const std::uint64_t step = golden_step(total);
    std::uint64_t offset = 0;
    for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
      // GPU g ends at floor((E * slots up to and with g + offset) / all slots). Any offset below `total` keeps the sum,
      // and the limits too: E <= slots, so a GPU with s slots gets at most ceil(E*s/slots) <= s.
      std::uint64_t cumulative = 0;
      std::uint32_t expert = 0;
      for (std::size_t g = 0; g < gpus.size(); ++g) {
        cumulative += counted_slots(gpus[g]) / unit;
        const std::uint64_t end = (shape.experts * cumulative + offset) / total;
        for (std::uint32_t slot = 0; expert < end; ++slot) place(layer, expert++, g, slot);
      }
      offset = (offset + step) % total;
    }
    return placement;
  }

  std::vector<std::uint32_t> used(gpus.size());
  std::size_t next = 0;
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    // Dealing goes on where the layer before stopped.
    std::fill(used.begin(), used.end(), 0U);
    for (std::uint32_t expert = 0; expert < shape.experts; ++expert) {
      while (used[next] == gpus[next].slots_per_layer) next = (next + 1) % gpus.size();
      place(layer, expert, next, used[next]);
      ++used[next];
      next = (next + 1) % gpus.size();
    }
  }
  return placement;
}

}  // namespace troupe::scheduling
