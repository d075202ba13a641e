#include <algorithm>
#include <cmath>

#include "cluster/workload_parts.hpp"

namespace troupe::cluster {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr int kFraction = 32;  // bits of log2 and of its multiples
constexpr std::uint64_t kOne = std::uint64_t{1} << 62;

// log2(n) in units of 2^-32: the classic bit-by-bit squaring.
std::uint64_t log2_fixed(std::uint64_t n) {
  int whole = 63;
  while ((n >> whole) == 0) --whole;
  Wide x = (Wide{n} << 62) >> whole;  // 1 <= x / 2^62 < 2
  std::uint64_t result = static_cast<std::uint64_t>(whole);
  for (int i = 0; i < kFraction; ++i) {
    x = (x * x) >> 62;
    result <<= 1;
    if (x >= Wide{kOne} * 2) {
      x >>= 1;
      result |= 1;
    }
  }
  return result;
}

std::uint64_t root(Wide value) {
  std::uint64_t result = 0;
  for (std::uint64_t bit = std::uint64_t{1} << 63; bit != 0; bit >>= 1) {
    const std::uint64_t next = result | bit;
    if (Wide{next} * next <= value) result = next;
  }
  return result;
}

// 2^-(fraction / 2^32), in units of 2^-62.
std::uint64_t exp2_minus(std::uint64_t fraction) {
  Wide result = kOne;
  std::uint64_t factor = kOne / 2;  // 2^-1; its roots are 2^-(1/2), 2^-(1/4), ...
  for (int i = kFraction - 1; i >= 0; --i) {
    factor = root(Wide{factor} << 62);
    if ((fraction >> i) & 1) result = (result * factor) >> 62;
  }
  return static_cast<std::uint64_t>(result);
}

}  // namespace

namespace dice {

std::uint64_t mixed(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31);
}

std::uint64_t roll(std::uint64_t seed, Use use, std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15U;
  std::uint64_t state = mixed(seed + kGolden * static_cast<std::uint64_t>(use));
  state = mixed(state + kGolden + a);
  state = mixed(state + kGolden + b);
  return mixed(state + kGolden + c);
}

std::uint64_t below(std::uint64_t value, std::uint64_t bound) {
  return static_cast<std::uint64_t>((Wide{value} * bound) >> 64);
}

std::uint64_t power_weight(std::uint64_t n, double exponent) {
  // exponent * 2^32 is exact up to the rounding to an integer: scaling by a power of two loses nothing.
  const auto scaled = static_cast<std::uint64_t>(exponent * 4294967296.0);
  const std::uint64_t power = static_cast<std::uint64_t>((Wide{scaled} * log2_fixed(n)) >> kFraction);
  const std::uint64_t whole = power >> kFraction;
  if (whole >= 40) return 0;
  return exp2_minus(power & 0xffffffffU) >> (22 + whole);
}

}  // namespace dice

WeightedDraw::WeightedDraw(std::vector<std::uint64_t> weights) : weights_(std::move(weights)) {
  std::uint64_t sum = 0;
  for (const std::uint64_t weight : weights_) sums_.push_back(sum += weight);
}

void WeightedDraw::draw(std::uint64_t seed, std::uint64_t key, std::span<std::int32_t> ids) const {
  const auto drawn = [&](std::size_t count, std::size_t index) {
    return std::find(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count), static_cast<std::int32_t>(index)) !=
           ids.begin() + static_cast<std::ptrdiff_t>(count);
  };
  std::uint64_t rolls = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    // Drawing again until the index is new gives each of the others its share. Where a few weights hold nearly
    // everything that may take long: then the rest is summed up and drawn from directly, which gives the same shares.
    bool found = false;
    for (int attempt = 0; attempt < 8 && !found; ++attempt) {
      const std::uint64_t at = dice::below(dice::roll(seed, dice::Use::kRoute, key, 0, rolls++), sums_.back());
      const auto index = static_cast<std::size_t>(std::upper_bound(sums_.begin(), sums_.end(), at) - sums_.begin());
      if (drawn(i, index)) continue;
      ids[i] = static_cast<std::int32_t>(index);
      found = true;
    }
    if (found) continue;
    std::uint64_t rest = 0;
    for (std::size_t e = 0; e < weights_.size(); ++e) rest += drawn(i, e) ? 0 : weights_[e];
    std::uint64_t at = dice::below(dice::roll(seed, dice::Use::kRoute, key, 0, rolls++), rest);
    for (std::size_t e = 0; e < weights_.size(); ++e) {
      if (drawn(i, e) || weights_[e] == 0) continue;
      ids[i] = static_cast<std::int32_t>(e);
      if (at < weights_[e]) break;
      at -= weights_[e];
    }
  }
}

void draw_weights(std::uint64_t seed, std::uint64_t key, std::span<float> weights) {
  constexpr std::uint64_t kUnits = 65536;
  // Scores from 1 to 8, most of them small, as a gate's are; then each its share, the odd units to the first.
  std::vector<std::uint64_t> scores(weights.size());
  std::uint64_t sum = 0;
  for (std::size_t j = 0; j < scores.size(); ++j) {
    const std::uint64_t u = dice::roll(seed, dice::Use::kWeight, key, j, 0) >> 48;
    scores[j] = 65536 + 7 * (u * u >> 16);
    sum += scores[j];
  }
  std::sort(scores.begin(), scores.end(), std::greater<>());
  std::uint64_t given = 0;
  for (std::uint64_t& score : scores) given += score = score * kUnits / sum;
  if (!scores.empty()) scores[0] += kUnits - given;
  for (std::size_t j = 0; j < scores.size(); ++j) weights[j] = static_cast<float>(scores[j]) / float{kUnits};
}

std::uint64_t token_key(const TokenPlace& token, std::uint32_t layer) {
  return dice::mixed(dice::mixed(dice::mixed(token.stream) + token.sequence) + layer);
}

}  // namespace troupe::cluster
