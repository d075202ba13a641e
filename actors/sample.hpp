#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe::actors {

/// A uniform sample of a stream of times, bounded: Vitter's reservoir (algorithm R, 1985) with a fixed generator.
class TimeSample {
 public:
  static constexpr std::size_t kMax = 8192;

  void add(std::uint64_t ns) {
    ++seen_;
    if (values_.size() < kMax) {
      values_.push_back(ns);
      return;
    }
    state_ ^= state_ << 13U;
    state_ ^= state_ >> 7U;
    state_ ^= state_ << 17U;
    const std::uint64_t at = state_ % seen_;
    if (at < kMax) values_[at] = ns;
  }
  const std::vector<std::uint64_t>& values() const { return values_; }

 private:
  std::vector<std::uint64_t> values_;
  std::uint64_t seen_ = 0;
  std::uint64_t state_ = 0x9E3779B97F4A7C15ULL;
};

}  // namespace troupe::actors
