#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cluster/config.hpp"
#include "cluster/workload.hpp"
#include "messages/error.hpp"

/// What a workload is made of: a layout (which request holds which tokens, and when), hidden states, and routes.
/// Internal.
namespace troupe::cluster {

/// Counter-based randomness: a fixed integer hash of what the number is for, so that the same config gives the same
/// numbers with any compiler, library and machine. No floating-point functions whose last bit may differ between
/// libraries.
namespace dice {
enum class Use : std::uint64_t { kHidden = 1, kRoute = 2, kWeight = 3, kOrder = 4 };
/// Steele, Lea and Flood's SplitMix64 finaliser (2014).
std::uint64_t mixed(std::uint64_t value);
std::uint64_t roll(std::uint64_t seed, Use use, std::uint64_t a, std::uint64_t b, std::uint64_t c);
/// value scaled to 0 .. bound-1 (the high word of the product); bound > 0.
std::uint64_t below(std::uint64_t value, std::uint64_t bound);
/// floor(2^40 / n^exponent), in integers throughout; n >= 1, 0 <= exponent <= 8.
std::uint64_t power_weight(std::uint64_t n, double exponent);
}  // namespace dice

/// One token: where it stands in its stream and in the whole run.
struct TokenPlace {
  std::uint64_t stream = 0;
  std::uint64_t sequence = 0;
  std::uint64_t number = 0;  ///< place in the run, from 0
};

/// Consecutive tokens of one stream that travel as one request.
struct RequestPlace {
  std::uint64_t stream = 0;
  std::uint64_t first_sequence = 0;
  std::uint32_t tokens = 0;
  std::uint64_t first_number = 0;
  std::uint64_t number_step = 1;  ///< between the places in the run of neighbours in the request
  std::uint64_t at_ns = 0;
};

/// Cuts the run into requests. Immutable.
class RequestLayout {
 public:
  virtual ~RequestLayout() = default;
  virtual std::uint64_t requests() const = 0;
  virtual RequestPlace request(std::uint64_t index) const = 0;
};
/// Without arrivals: token n of the run is token n / streams of stream n mod streams.
std::unique_ptr<RequestLayout> make_even_layout(const WorkloadConfig& workload);
/// By workload.arrivals: row r of the file goes to stream r mod streams.
/// Errors: kBadConfig (file, line, what is wrong; too few tokens in the file).
Result<std::unique_ptr<RequestLayout>> make_arrivals_layout(const WorkloadConfig& workload);

/// Chooses a token's experts and weights. Immutable.
class RouteSource {
 public:
  virtual ~RouteSource() = default;
  /// ids, weights: [top_k] of one token in one layer.
  virtual void routes(const TokenPlace& token, std::uint32_t layer, std::span<std::int32_t> ids,
                      std::span<float> weights) const = 0;
};
/// Errors of all: kBadConfig (file and line; counts that do not fit the model).
Result<std::unique_ptr<RouteSource>> make_statistics_routes(const Config& config);
Result<std::unique_ptr<RouteSource>> make_zipf_routes(const Config& config);
Result<std::unique_ptr<RouteSource>> make_explicit_routes(const Config& config);

/// Draws distinct indices in proportion to weights, by integer arithmetic alone. Immutable.
class WeightedDraw {
 public:
  /// The sum must be below 2^63, and as many weights be positive as will be drawn.
  explicit WeightedDraw(std::vector<std::uint64_t> weights);
  /// Fills `ids` with distinct indices, each drawn in proportion to the weights of those not drawn yet. The random
  /// numbers are roll(seed, kRoute, key, 0, 1, 2, ...).
  void draw(std::uint64_t seed, std::uint64_t key, std::span<std::int32_t> ids) const;

 private:
  std::vector<std::uint64_t> weights_;
  std::vector<std::uint64_t> sums_;  ///< sums_[i] = weights_[0] + ... + weights_[i]
};

/// Weights of a token's choices: positive, descending, multiples of 2^-16 that sum to 1 exactly.
void draw_weights(std::uint64_t seed, std::uint64_t key, std::span<float> weights);

/// One number for (stream, sequence, layer): the key of all draws of a token in a layer.
std::uint64_t token_key(const TokenPlace& token, std::uint32_t layer);

}  // namespace troupe::cluster
