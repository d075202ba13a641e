#include "scheduling/heat.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace troupe::scheduling {
namespace {

std::string text(std::uint64_t value) {
  return std::to_string(value);
}

double decay_of(double half_life_windows) {
  if (!std::isfinite(half_life_windows) || !(half_life_windows > 0)) return 0;
  return std::exp2(-1.0 / half_life_windows);
}

}  // namespace

HeatBook::HeatBook(const ModelShape& shape, std::vector<NodeId> nodes, double half_life_windows,
                   std::uint64_t first_window)
    : shape_(shape),
      nodes_(std::move(nodes)),
      decay_(decay_of(half_life_windows)),
      heat_(std::size_t{shape.layers} * shape.experts, 0.0),
      last_window_(heat_.size(), 0),
      seen_in_(heat_.size(), 0),
      layer_sums_(shape.layers, 0),
      next_window_(first_window) {
  std::sort(nodes_.begin(), nodes_.end());
  nodes_.erase(std::unique(nodes_.begin(), nodes_.end()), nodes_.end());
  newest_.resize(nodes_.size());
}

Result<std::size_t> HeatBook::check(const messages::HeatReport& report) {
  const auto refuse = [&](ErrorCode code, const std::string& what) {
    return fail(code,
                "heat report of node " + text(report.node.value) + ", window " + text(report.window) + ": " + what);
  };
  const auto node = std::lower_bound(nodes_.begin(), nodes_.end(), report.node);
  if (node == nodes_.end() || *node != report.node) return refuse(ErrorCode::kBadInput, "the view has no such node");
  if (report.valid_tokens > kMaxWindowTokens) {
    return refuse(ErrorCode::kBadLoad,
                  text(report.valid_tokens) + " tokens; at most " + text(kMaxWindowTokens) + " are believed");
  }
  const std::uint64_t slots = report.valid_tokens * shape_.top_k;
  ++checks_;
  std::fill(layer_sums_.begin(), layer_sums_.end(), 0U);
  for (const messages::HeatCell& cell : report.cells) {
    const std::uint32_t layer = cell.expert.layer;
    const std::uint32_t expert = cell.expert.expert;
    const auto where = [&] { return "cell " + text(layer) + ":" + text(expert); };
    if (layer >= shape_.layers || expert >= shape_.experts) {
      return refuse(ErrorCode::kBadInput, where() + " is outside the model's " + text(shape_.layers) + " layers of " +
                                              text(shape_.experts) + " experts");
    }
    std::uint64_t& seen = seen_in_[std::size_t{layer} * shape_.experts + expert];
    if (seen == checks_) return refuse(ErrorCode::kBadInput, where() + " is named twice");
    seen = checks_;
    std::uint64_t& sum = layer_sums_[layer];
    if (cell.tokens > slots - sum) {
      return refuse(ErrorCode::kBadLoad, where() + " = " + text(cell.tokens) + " brings the layer above its " +
                                             text(report.valid_tokens) + " valid tokens x top_k " + text(shape_.top_k));
    }
    sum += cell.tokens;
  }
  return static_cast<std::size_t>(node - nodes_.begin());
}

Result<void> HeatBook::on_report(const messages::HeatReport& report) {
  const auto checked = check(report);
  if (!checked) {
    ++stats_.refused;
    return tl::unexpected(checked.error());
  }
  const std::size_t node = *checked;
  if (report.window < next_window_ || report.incarnation < newest_[node]) {
    ++stats_.stale;
    return {};
  }
  newest_[node] = report.incarnation;
  if (report.window - next_window_ >= kMaxOpenWindows) give_up_before(report.window - kMaxOpenWindows + 1);

  Window& window = open_[report.window];
  if (window.visits.empty()) {
    window.visits.assign(heat_.size(), 0);
    window.reported.resize(nodes_.size());
    window.has.resize(nodes_.size());
    window.missing = nodes_.size();
  }
  if (window.has[node] && window.reported[node] == report.incarnation) {
    ++stats_.duplicates;
    return {};
  }
  if (!window.has[node]) --window.missing;
  window.has[node] = true;
  window.reported[node] = report.incarnation;
  window.valid_tokens += report.valid_tokens;
  for (const messages::HeatCell& cell : report.cells) {
    window.visits[std::size_t{cell.expert.layer} * shape_.experts + cell.expert.expert] += cell.tokens;
  }
  ++stats_.accepted;
  fold_complete();
  return {};
}

void HeatBook::give_up_before(std::uint64_t window) {
  std::uint64_t folded = 0;
  while (!open_.empty() && open_.begin()->first < window) {
    Window oldest = std::move(open_.begin()->second);
    open_.erase(open_.begin());
    // Complete, but waiting for an earlier one that has never come.
    if (oldest.missing == 0) {
      fold(std::move(oldest));
      ++folded;
    }
  }
  stats_.incomplete += window - next_window_ - folded;
  next_window_ = window;
  fold_complete();
}

void HeatBook::fold_complete() {
  while (!open_.empty() && open_.begin()->first == next_window_ && open_.begin()->second.missing == 0) {
    Window window = std::move(open_.begin()->second);
    open_.erase(open_.begin());
    ++next_window_;
    fold(std::move(window));
  }
}

void HeatBook::fold(Window window) {
  std::uint64_t visits = 0;
  for (std::size_t i = 0; i < heat_.size(); ++i) {
    const auto load = static_cast<double>(window.visits[i]);
    heat_[i] = complete_windows_ == 0 ? load : decay_ * heat_[i] + (1.0 - decay_) * load;
    visits += window.visits[i];
  }
  stats_.visits += visits;
  stats_.unrouted += window.valid_tokens * shape_.top_k * shape_.layers - visits;
  last_window_ = std::move(window.visits);
  ++complete_windows_;
}

}  // namespace troupe::scheduling
