#include "scheduling/gate.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "scheduling/exact_math.hpp"

namespace troupe::scheduling {
namespace {

struct Choice {
  float score = 0;
  std::int32_t expert = -1;
};

/// Keeps the best `limit` of what it is offered, best first. Experts come in ascending id, so that the earlier of two
/// equals is the lower id.
class Best {
 public:
  void reset(std::size_t limit) {
    choices_.clear();
    limit_ = limit;
  }
  void offer(float score, std::int32_t expert) {
    if (choices_.size() == limit_) {
      if (limit_ == 0 || !(score > choices_.back().score)) return;
      choices_.pop_back();
    }
    std::size_t at = choices_.size();
    choices_.push_back({});
    while (at > 0 && score > choices_[at - 1].score) {
      choices_[at] = choices_[at - 1];
      --at;
    }
    choices_[at] = {score, expert};
  }
  const std::vector<Choice>& choices() const { return choices_; }

 private:
  std::vector<Choice> choices_;
  std::size_t limit_ = 0;
};

/// One token at a time, with buffers kept over the batch.
class Gate {
 public:
  Gate(const ModelShape& shape, std::span<const float> bias, std::size_t wanted)
      : shape_(shape), bias_(bias), wanted_(wanted), values_(shape.experts), biased_(shape.experts) {}

  /// Best first, at most `wanted`; the first k of them have weights(). False: the row has fewer than k usable scores.
  bool choose(std::span<const float> logits) {
    const bool grouped = shape_.gate == GateKind::kSigmoidGroup;
    if (grouped) {
      choose_in_groups(logits);
    } else {
      best_.reset(wanted_);
      for (std::size_t e = 0; e < logits.size(); ++e) {
        if (std::isfinite(logits[e])) best_.offer(logits[e], static_cast<std::int32_t>(e));
      }
    }
    return best_.choices().size() >= shape_.top_k;
  }

  const std::vector<Choice>& choices() const { return best_.choices(); }

  void weights(std::span<const float> logits, std::span<float> out) {
    switch (shape_.gate) {
      case GateKind::kSoftmaxTopK:
      case GateKind::kSoftmaxTopKRenorm: {
        const float sum = softmax_terms(logits);
        for (std::size_t j = 0; j < out.size(); ++j) out[j] = values_[expert(j)] / sum;
        if (shape_.gate == GateKind::kSoftmaxTopKRenorm) divide_by_sum(out);
        break;
      }
      case GateKind::kTopKSoftmax: {
        const float highest = best_.choices().front().score;
        for (std::size_t j = 0; j < out.size(); ++j) out[j] = exact_exp(best_.choices()[j].score - highest);
        divide_by_sum(out);
        break;
      }
      case GateKind::kSigmoidGroup:
        for (std::size_t j = 0; j < out.size(); ++j) out[j] = values_[expert(j)];
        divide_by_sum(out);
        break;
    }
    for (float& weight : out) weight *= shape_.routed_scale;
  }

 private:
  std::size_t expert(std::size_t j) const { return static_cast<std::size_t>(best_.choices()[j].expert); }

  /// values_[e] = e^(logit - highest), 0 for what is not finite; returns their sum, at least 1.
  float softmax_terms(std::span<const float> logits) {
    const float highest = best_.choices().front().score;
    for (std::size_t e = 0; e < values_.size(); ++e) {
      // The difference of two finite numbers can overflow to -infinity, whose exponential is 0: right.
      values_[e] = std::isfinite(logits[e]) ? logits[e] - highest : -INFINITY;
    }
    exact_exp(std::span(values_));
    float sum = 0.0F;
    for (const float value : values_) sum += value;
    return sum;
  }

  static void divide_by_sum(std::span<float> out) {
    float sum = 0.0F;
    for (const float weight : out) sum += weight;
    if (sum > 0.0F) {
      for (float& weight : out) weight /= sum;
    } else {
      for (float& weight : out) weight = 1.0F / static_cast<float>(out.size());
    }
  }

  void choose_in_groups(std::span<const float> logits) {
    const std::size_t per_group = shape_.experts / shape_.groups;
    std::copy(logits.begin(), logits.end(), values_.begin());
    exact_sigmoid(std::span(values_));
    for (std::size_t e = 0; e < values_.size(); ++e) {
      // A score that is not finite becomes a NaN here, and is passed over below.
      biased_[e] = std::isfinite(logits[e]) ? values_[e] + (bias_.empty() ? 0.0F : bias_[e]) : NAN;
    }
    groups_.reset(shape_.groups);
    finite_.assign(shape_.groups, 0);
    for (std::size_t g = 0; g < shape_.groups; ++g) {
      pair_.reset(2);
      for (std::size_t e = g * per_group; e < (g + 1) * per_group; ++e) {
        if (!std::isfinite(biased_[e])) continue;
        pair_.offer(biased_[e], static_cast<std::int32_t>(e));
        ++finite_[g];
      }
      if (finite_[g] == 0) continue;
      float score = 0.0F;
      for (const Choice& choice : pair_.choices()) score += choice.score;
      groups_.offer(score, static_cast<std::int32_t>(g));
    }
    open_.assign(shape_.groups, false);
    std::size_t taken = 0;
    std::size_t finite = 0;
    for (const Choice& group : groups_.choices()) {
      if (taken >= shape_.top_groups && finite >= shape_.top_k) break;
      open_[static_cast<std::size_t>(group.expert)] = true;
      finite += finite_[static_cast<std::size_t>(group.expert)];
      ++taken;
    }
    best_.reset(wanted_);
    for (std::size_t g = 0; g < shape_.groups; ++g) {
      if (!open_[g]) continue;
      for (std::size_t e = g * per_group; e < (g + 1) * per_group; ++e) {
        if (std::isfinite(biased_[e])) best_.offer(biased_[e], static_cast<std::int32_t>(e));
      }
    }
  }

  const ModelShape& shape_;
  std::span<const float> bias_;
  std::size_t wanted_;
  Best best_;
  Best groups_;
  Best pair_;
  std::vector<float> values_;  ///< softmax terms, or sigmoids
  std::vector<float> biased_;
  std::vector<std::size_t> finite_;  ///< usable scores per group
  std::vector<bool> open_;           ///< groups that experts are chosen from
};

Routes empty_routes(const ModelShape& shape, std::uint32_t tokens) {
  Routes routes;
  routes.tokens = tokens;
  routes.top_k = shape.top_k;
  routes.ids.assign(std::size_t{tokens} * shape.top_k, -1);
  routes.weights.assign(routes.ids.size(), 0.0F);
  routes.flags.assign(tokens, messages::kTokenExact);
  return routes;
}

void set_flag(Routes& routes, std::size_t token, messages::TokenFlag flag) {
  routes.flags[token] = static_cast<std::uint8_t>(routes.flags[token] | flag);
}

}  // namespace

Routes route_by_gate(const ModelShape& shape, std::uint32_t tokens, std::span<const float> logits,
                     std::span<const float> bias, std::uint32_t ranked_extra, std::vector<std::int32_t>* extra) {
  const std::size_t experts = shape.experts;
  const std::size_t k = shape.top_k;
  Routes routes = empty_routes(shape, tokens);
  if (extra != nullptr) extra->assign(std::size_t{tokens} * ranked_extra, -1);

  const bool usable = check_shape(shape).has_value() && logits.size() == std::size_t{tokens} * experts &&
                      (bias.empty() || bias.size() == experts);
  if (!usable) {
    for (std::size_t t = 0; t < tokens; ++t) set_flag(routes, t, messages::kTokenFailed);
    routes.failed_tokens = tokens;
    return routes;
  }

  Gate gate(shape, bias, std::min(experts, k + (extra == nullptr ? 0 : ranked_extra)));
  for (std::size_t t = 0; t < tokens; ++t) {
    const std::span<const float> row = logits.subspan(t * experts, experts);
    if (!gate.choose(row)) {
      set_flag(routes, t, messages::kTokenFailed);
      ++routes.failed_tokens;
      continue;
    }
    const std::vector<Choice>& choices = gate.choices();
    for (std::size_t j = 0; j < k; ++j) routes.ids[t * k + j] = choices[j].expert;
    for (std::size_t j = k; j < choices.size(); ++j) (*extra)[t * ranked_extra + j - k] = choices[j].expert;
    gate.weights(row, std::span(routes.weights).subspan(t * k, k));
  }
  return routes;
}

Routes route_by_client(const ModelShape& shape, std::uint32_t tokens, std::span<const std::int32_t> ids,
                       std::span<const float> weights) {
  const std::size_t k = shape.top_k;
  Routes routes = empty_routes(shape, tokens);
  auto refuse = [&](std::size_t token) {
    set_flag(routes, token, messages::kTokenBadRoute);
    ++routes.refused_slots;
  };
  for (std::size_t t = 0; t < tokens; ++t) {
    const std::size_t first = t * k;
    for (std::size_t slot = first; slot < first + k; ++slot) {
      if (slot >= ids.size() || slot >= weights.size()) {
        refuse(t);
        continue;
      }
      const std::int32_t id = ids[slot];
      if (id == -1) continue;
      if (id < 0 || static_cast<std::uint32_t>(id) >= shape.experts || !std::isfinite(weights[slot])) {
        refuse(t);
        continue;
      }
      const auto begin = routes.ids.begin() + static_cast<std::ptrdiff_t>(first);
      const auto end = routes.ids.begin() + static_cast<std::ptrdiff_t>(slot);
      const auto earlier = std::find(begin, end, id);
      if (earlier == end) {
        routes.ids[slot] = id;
        routes.weights[slot] = weights[slot];
        continue;
      }
      float& kept = routes.weights[static_cast<std::size_t>(earlier - routes.ids.begin())];
      const float sum = kept + weights[slot];
      if (std::isfinite(sum)) {
        kept = sum;
      } else {
        refuse(t);
      }
    }
  }
  return routes;
}

}  // namespace troupe::scheduling
