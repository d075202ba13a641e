#include <algorithm>
#include <cmath>
#include <numeric>

#include "cluster/workload_parts.hpp"

/// Routes by a Zipf law whose hot set may drift.
namespace troupe::cluster {
namespace {

class ZipfRoutes : public RouteSource {
 public:
  ZipfRoutes(const Config& config, std::vector<std::uint64_t> weights)
      : seed_(config.workload.seed),
        experts_(config.model.experts),
        drift_(config.workload.zipf_drift),
        ranks_(std::move(weights)),
        orders_(config.model.layers) {
    for (std::uint32_t layer = 0; layer < orders_.size(); ++layer) orders_[layer] = shuffled(layer);
  }

  void routes(const TokenPlace& token, std::uint32_t layer, std::span<std::int32_t> ids,
              std::span<float> weights) const override {
    const std::uint64_t key = token_key(token, layer);
    ranks_.draw(seed_, key, ids);
    // The product is below 10^15, so the floor is exact enough to be the same everywhere: one rounding of each
    // operation.
    const auto moved = static_cast<std::uint64_t>(std::floor(static_cast<double>(token.number) * drift_ / 1000.0));
    for (std::int32_t& id : ids) {
      id = static_cast<std::int32_t>(orders_[layer][(static_cast<std::uint64_t>(id) + moved) % experts_]);
    }
    draw_weights(seed_, key, weights);
  }

 private:
  /// Which expert has which rank: another order in every layer (Fisher and Yates).
  std::vector<std::uint32_t> shuffled(std::uint32_t layer) const {
    std::vector<std::uint32_t> order(experts_);
    std::iota(order.begin(), order.end(), 0U);
    for (std::uint64_t i = experts_; i > 1; --i) {
      std::swap(order[i - 1], order[dice::below(dice::roll(seed_, dice::Use::kOrder, layer, i, 0), i)]);
    }
    return order;
  }

  std::uint64_t seed_;
  std::uint32_t experts_;
  double drift_;
  WeightedDraw ranks_;
  std::vector<std::vector<std::uint32_t>> orders_;  ///< [layers][rank] -> expert
};

}  // namespace

Result<std::unique_ptr<RouteSource>> make_zipf_routes(const Config& config) {
  std::vector<std::uint64_t> weights;
  for (std::uint64_t rank = 1; rank <= config.model.experts; ++rank) {
    // A steep law leaves nothing of the last ranks in integers; they keep one part in 2^40, so that any top_k can be
    // drawn.
    weights.push_back(std::max<std::uint64_t>(1, dice::power_weight(rank, config.workload.zipf_exponent)));
  }
  return std::unique_ptr<RouteSource>(std::make_unique<ZipfRoutes>(config, std::move(weights)));
}

}  // namespace troupe::cluster
