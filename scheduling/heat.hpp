#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "messages/control.hpp"
#include "messages/error.hpp"
#include "scheduling/model_shape.hpp"

/// Heat: exact counts per window from every node, then an exponentially weighted mean.
namespace troupe::scheduling {

struct HeatStats {
  std::uint64_t accepted = 0;
  std::uint64_t duplicates = 0;  ///< same (node, incarnation, window) again
  std::uint64_t stale = 0;       ///< window already closed
  std::uint64_t refused = 0;     ///< sums that do not match, cells out of range
  std::uint64_t incomplete = 0;  ///< windows given up because a node's report never came: not used
};

/// Collects HeatReports and folds each complete window into the EWMA, in window order.
class HeatBook {
 public:
  /// nodes: whose reports a window needs. half_life_windows: after so many windows a load counts half.
  HeatBook(ModelShape shape, std::vector<NodeId> nodes, double half_life_windows);

  /// Errors: kBadInput, kBadLoad (names node, window, cell); refused reports change nothing but a counter.
  Result<void> on_report(const messages::HeatReport& report);

  /// [layers x experts], tokens per window; zeros before the first complete window. Always finite.
  std::span<const double> heat() const;
  std::uint64_t complete_windows() const;
  const HeatStats& stats() const;

 private:
  void fold(std::uint64_t window);

  ModelShape shape_;
  std::vector<NodeId> nodes_;
  double decay_;
  std::vector<double> heat_;
  std::uint64_t complete_windows_ = 0;
  std::uint64_t next_window_ = 0;
  /// Open windows only, at most kMaxOpenWindows: a node that never reports cannot make this grow.
  std::map<std::uint64_t, std::map<NodeId, messages::HeatReport>> open_;
  HeatStats stats_;
};

}  // namespace troupe::scheduling
