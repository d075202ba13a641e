#include "cluster/workload.hpp"

#include <cstring>
#include <utility>

#include "cluster/workload_parts.hpp"

namespace troupe::cluster {
namespace {

/// Hidden states are odd multiples of 2^-10 between -1773 and 1773 of them, evenly likely: exact in f32, mean 0, and
/// root mean square 1 to within 0.03 %.
constexpr std::uint32_t kHalfSteps = 887;

void write_hidden(std::uint64_t seed, const TokenPlace& token, std::uint32_t d_model, std::byte* out) {
  std::uint64_t bits = 0;
  for (std::uint32_t i = 0; i < d_model; ++i) {
    if (i % 4 == 0) bits = dice::roll(seed, dice::Use::kHidden, token.stream, token.sequence, i / 4);
    const auto step = static_cast<std::int32_t>(((bits & 0xffffU) * (2 * kHalfSteps)) >> 16);
    bits >>= 16;
    const float value = static_cast<float>(2 * step + 1 - static_cast<std::int32_t>(2 * kHalfSteps)) / 1024.0F;
    std::memcpy(out + std::size_t{i} * sizeof value, &value, sizeof value);
  }
}

class EvenLayout : public RequestLayout {
 public:
  explicit EvenLayout(const WorkloadConfig& w) : tokens_(w.tokens), streams_(w.streams), size_(w.tokens_per_request) {}

  // Requests go in rounds: the first of every stream, then the second of every stream, and so on. The streams 0 ..
  // longer-1 have one token more than the others, which may make one request more: those come last.
  std::uint64_t requests() const override {
    const std::uint64_t longer = tokens_ % streams_;
    return rounds(tokens_ / streams_) * (streams_ - longer) + rounds(tokens_ / streams_ + 1) * longer;
  }
  RequestPlace request(std::uint64_t index) const override {
    const std::uint64_t short_length = tokens_ / streams_;
    const std::uint64_t common = rounds(short_length);
    RequestPlace place;
    const bool last_round = index >= common * streams_;
    const std::uint64_t round = last_round ? common : index / streams_;
    place.stream = last_round ? index - common * streams_ : index % streams_;
    place.first_sequence = round * size_;
    const std::uint64_t length = short_length + (place.stream < tokens_ % streams_ ? 1 : 0);
    place.tokens = static_cast<std::uint32_t>(std::min<std::uint64_t>(size_, length - place.first_sequence));
    place.first_number = place.first_sequence * streams_ + place.stream;
    place.number_step = streams_;
    return place;
  }

 private:
  std::uint64_t rounds(std::uint64_t length) const { return (length + size_ - 1) / size_; }

  std::uint64_t tokens_;
  std::uint64_t streams_;
  std::uint64_t size_;
};

class LaidOutWorkload : public Workload {
 public:
  LaidOutWorkload(const Config& config, std::unique_ptr<RequestLayout> layout, std::unique_ptr<RouteSource> routes)
      : model_(config.model),
        seed_(config.workload.seed),
        tokens_(config.workload.tokens),
        layout_(std::move(layout)),
        routes_(std::move(routes)) {}

  std::uint64_t total_tokens() const override { return tokens_; }
  std::uint64_t total_requests() const override { return layout_->requests(); }

  WorkItem item(std::uint64_t index) const override {
    const RequestPlace place = layout_->request(index);
    WorkItem item;
    item.at_ns = place.at_ns;
    messages::Submit& submit = item.submit;
    submit.request = {0, index};
    submit.stream = place.stream;
    submit.first_sequence = place.first_sequence;
    submit.tokens = place.tokens;
    const std::size_t row = std::size_t{model_.d_model} * sizeof(float);
    submit.hidden.resize(place.tokens * row);
    for (std::uint32_t t = 0; t < place.tokens; ++t) {
      write_hidden(seed_, token(place, t), model_.d_model, submit.hidden.data() + t * row);
    }
    if (routes_ == nullptr) return item;
    const std::size_t slots = std::size_t{model_.layers} * place.tokens * model_.top_k;
    submit.route_ids.resize(slots);
    submit.route_weights.resize(slots);
    const std::span<std::int32_t> ids(submit.route_ids);
    const std::span<float> weights(submit.route_weights);
    for (std::uint32_t layer = 0; layer < model_.layers; ++layer) {
      for (std::uint32_t t = 0; t < place.tokens; ++t) {
        const std::size_t at = (std::size_t{layer} * place.tokens + t) * model_.top_k;
        routes_->routes(token(place, t), layer, ids.subspan(at, model_.top_k), weights.subspan(at, model_.top_k));
      }
    }
    return item;
  }

 private:
  static TokenPlace token(const RequestPlace& place, std::uint32_t t) {
    return {place.stream, place.first_sequence + t, place.first_number + t * place.number_step};
  }

  scheduling::ModelShape model_;
  std::uint64_t seed_;
  std::uint64_t tokens_;
  std::unique_ptr<RequestLayout> layout_;
  std::unique_ptr<RouteSource> routes_;
};

Result<std::unique_ptr<RouteSource>> make_routes(const Config& config) {
  switch (config.workload.kind) {
    case WorkloadKind::kStatistics:
      return make_statistics_routes(config);
    case WorkloadKind::kZipf:
      return make_zipf_routes(config);
    case WorkloadKind::kExplicit:
      return make_explicit_routes(config);
    case WorkloadKind::kGate:
      break;
  }
  return std::unique_ptr<RouteSource>();
}

}  // namespace

std::unique_ptr<RequestLayout> make_even_layout(const WorkloadConfig& workload) {
  return std::make_unique<EvenLayout>(workload);
}

Result<std::unique_ptr<Workload>> make_workload(const Config& config) {
  auto routes = make_routes(config);
  if (!routes) return tl::unexpected<Error>(routes.error());
  std::unique_ptr<RequestLayout> layout;
  if (config.workload.arrivals.empty()) {
    layout = make_even_layout(config.workload);
  } else {
    auto by_arrivals = make_arrivals_layout(config.workload);
    if (!by_arrivals) return tl::unexpected<Error>(by_arrivals.error());
    layout = std::move(*by_arrivals);
  }
  return std::unique_ptr<Workload>(std::make_unique<LaidOutWorkload>(config, std::move(layout), std::move(*routes)));
}

}  // namespace troupe::cluster
