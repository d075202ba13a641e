#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "messages/control.hpp"
#include "messages/error.hpp"
#include "scheduling/model_shape.hpp"

/// Heat: exact counts per window from every node, then an exponentially weighted mean.
namespace troupe::scheduling {

/// A window that some node has not reported is given up as soon as any node reports the window this many later. So at
/// most this many windows are open, whatever is lost.
inline constexpr std::uint64_t kMaxOpenWindows = 8;

struct HeatStats {
  std::uint64_t accepted = 0;
  std::uint64_t duplicates = 0;  ///< same (node, incarnation, window) again
  std::uint64_t stale = 0;       ///< window already closed, or an incarnation that a newer one has replaced
  std::uint64_t refused = 0;     ///< sums that do not match, cells out of range
  std::uint64_t incomplete = 0;  ///< windows given up because a node's report never came: not used
  std::uint64_t visits = 0;      ///< token visits in the windows folded so far, all layers
  std::uint64_t unrouted =
      0;  ///< slots of valid tokens in these that went to no expert: padding within a token's routes,
          ///< refused, failed, dropped. visits + unrouted = layers x valid tokens x top_k, exactly
};

/// Collects HeatReports and folds each complete window into the EWMA, in window order.
/// Thread rule: one thread at a time. Memory: at most kMaxOpenWindows + 1 arrays of [layers x experts].
class HeatBook {
 public:
  /// nodes: whose reports a window needs. half_life_windows: after so many windows a load counts half; 0 or no finite
  /// number: only the last window counts. first_window: the first that will be reported; earlier ones are stale.
  HeatBook(const ModelShape& shape, std::vector<NodeId> nodes, double half_life_windows,
           std::uint64_t first_window = 0);

  /// Counts a report once. Duplicates and stale reports are no errors: they change nothing but a counter. A newer
  /// incarnation of a node adds to what the older one has reported of the same window, and ends the older one's right
  /// to report. Errors: kBadInput (unknown node; a cell out of range or named twice), kBadLoad (a layer with more
  /// visits than valid tokens x top_k, or more than kMaxWindowTokens tokens); all name node, window and cell. Refused
  /// reports change nothing but a counter.
  Result<void> on_report(const messages::HeatReport& report);

  /// Most tokens of a node in one window that are believed: far above any machine's speed, far below where sums
  /// overflow.
  static constexpr std::uint64_t kMaxWindowTokens = std::uint64_t{1} << 36;

  /// [layers x experts], tokens per window; zeros before the first complete window. Always finite.
  /// The first complete window is taken as it is; each later one as heat = d heat + (1 - d) window, d = 2^(-1/half
  /// life).
  std::span<const double> heat() const { return heat_; }
  /// The last window folded, [layers x experts] exact counts; zeros before the first.
  std::span<const std::uint64_t> last_window() const { return last_window_; }
  std::uint64_t complete_windows() const { return complete_windows_; }
  const HeatStats& stats() const { return stats_; }

 private:
  struct Window {
    std::vector<std::uint64_t> visits;  ///< [layers x experts]
    std::vector<Incarnation> reported;  ///< [nodes] newest incarnation counted here
    std::vector<bool> has;              ///< [nodes]
    std::size_t missing = 0;            ///< nodes that have not reported
    std::uint64_t valid_tokens = 0;
  };
  Result<std::size_t> check(const messages::HeatReport& report);
  void give_up_before(std::uint64_t window);
  void fold_complete();
  void fold(Window window);

  ModelShape shape_;
  std::vector<NodeId> nodes_;        ///< sorted
  std::vector<Incarnation> newest_;  ///< [nodes] newest incarnation heard of
  double decay_;
  std::vector<double> heat_;
  std::vector<std::uint64_t> last_window_;
  std::vector<std::uint64_t> seen_in_;     ///< [layers x experts] number of the last check that met this cell
  std::vector<std::uint64_t> layer_sums_;  ///< [layers] scratch
  std::uint64_t checks_ = 0;
  std::uint64_t complete_windows_ = 0;
  std::uint64_t next_window_;
  /// Windows from next_window_ on: a node that never reports cannot make this grow.
  std::map<std::uint64_t, Window> open_;
  HeatStats stats_;
};

}  // namespace troupe::scheduling
