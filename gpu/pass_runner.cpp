#include "gpu/pass_runner.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "gpu/bf16.hpp"

namespace troupe::gpu {
namespace {

using scheduling::LayerSites;
using std::chrono::nanoseconds;
using std::chrono::steady_clock;

/// Numbers of the exchanges within a step. Rounds follow in pairs.
enum Phase : std::uint32_t { kCounts = 0, kCountsSettled = 1, kFirstRound = 2 };

/// Further choices that the gate ranks for the policy "next expert". More than this many experts full at once means the
/// capacity is set below the load; the row is then dropped.
constexpr std::uint32_t kMaxExtraChoices = 8;

std::uint64_t ns_since(steady_clock::time_point start) {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<nanoseconds>(steady_clock::now() - start).count());
}

std::string place(StepId step) {
  return "pass " + std::to_string(step.pass.value) + ", layer " + std::to_string(step.layer);
}

/// Adds the time of its scope to a counter.
class Timed {
 public:
  explicit Timed(std::uint64_t& total) : total_(total), start_(steady_clock::now()) {}
  ~Timed() { total_ += ns_since(start_); }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  std::uint64_t& total_;
  steady_clock::time_point start_;
};

bool moves_rows(scheduling::Overflow policy) {
  return policy == scheduling::Overflow::kNext || policy == scheduling::Overflow::kReplica;
}

}  // namespace

PassRunner::PassRunner(const scheduling::ModelShape& shape, const PassRunnerOptions& options, Device& device)
    : shape_(shape), options_(options), device_(device) {
  if (options.capacity.tokens_per_replica > 0 && options.capacity.overflow == scheduling::Overflow::kNext) {
    extra_per_token_ = std::min(kMaxExtraChoices, shape.experts - shape.top_k);
  }
}

Result<PassOutcome> PassRunner::run(PassNumber pass, const std::vector<LayerSites>& sites, AllToAll& exchange,
                                    PassTokens& tokens) {
  const std::size_t n = tokens.tokens;
  if (sites.size() != shape_.layers || tokens.hidden.size() != n * shape_.d_model || tokens.client_routed.size() != n ||
      tokens.route_ids.size() != n * shape_.layers * shape_.top_k ||
      tokens.route_weights.size() != tokens.route_ids.size()) {
    return fail(ErrorCode::kBadInput,
                "pass " + std::to_string(pass.value) + ": the tokens' arrays do not have the model's shape");
  }
  PassOutcome outcome;
  outcome.flags.assign(n, 0);
  outcome.routed.assign(std::size_t{shape_.layers} * shape_.experts, 0);
  outcome.computed.assign(std::size_t{shape_.layers} * options_.slots_per_layer, 0);
  outcome.step_ns.reserve(shape_.layers);
  for (std::uint32_t layer = 0; layer < shape_.layers; ++layer) {
    const auto start = steady_clock::now();
    const StepId step{pass, layer};
    if (auto done = run_step(step, sites[layer], exchange, tokens, outcome); !done)
      return fail_in(place(step), done.error());
    outcome.step_ns.push_back(ns_since(start));
  }
  return outcome;
}

Result<scheduling::Routes> PassRunner::route(std::uint32_t layer, const PassTokens& tokens, PassOutcome& outcome) {
  const std::size_t k = shape_.top_k;
  const std::size_t first = std::size_t{layer} * tokens.tokens * k;
  scheduling::Routes routes =
      scheduling::route_by_client(shape_, tokens.tokens, std::span(tokens.route_ids).subspan(first, tokens.tokens * k),
                                  std::span(tokens.route_weights).subspan(first, tokens.tokens * k));
  extra_.assign(std::size_t{tokens.tokens} * extra_per_token_, -1);

  std::vector<std::uint32_t> gated;
  for (std::uint32_t t = 0; t < tokens.tokens; ++t) {
    if (tokens.client_routed[t] == 0) gated.push_back(t);
  }
  if (!gated.empty()) {
    const std::size_t row_bytes = shape_.row_bytes();
    const auto rows = static_cast<std::uint32_t>(gated.size());
    gate_input_.resize(gated.size() * shape_.d_model);
    logits_.resize(gated.size() * shape_.experts);
    for (std::size_t i = 0; i < gated.size(); ++i) {
      from_transport(shape_.transport, std::span(normed_).subspan(gated[i] * row_bytes, row_bytes),
                     std::span(gate_input_).subspan(i * shape_.d_model, shape_.d_model));
    }
    if (auto done = device_.run_gate(layer, rows, gate_input_, logits_); !done) return tl::unexpected(done.error());
    std::vector<std::int32_t> extra;
    const scheduling::Routes by_gate = scheduling::route_by_gate(
        shape_, rows, logits_, device_.gate_bias(layer), extra_per_token_, extra_per_token_ > 0 ? &extra : nullptr);
    for (std::size_t i = 0; i < gated.size(); ++i) {
      const std::size_t t = gated[i];
      std::copy_n(by_gate.ids.begin() + static_cast<std::ptrdiff_t>(i * k), k,
                  routes.ids.begin() + static_cast<std::ptrdiff_t>(t * k));
      std::copy_n(by_gate.weights.begin() + static_cast<std::ptrdiff_t>(i * k), k,
                  routes.weights.begin() + static_cast<std::ptrdiff_t>(t * k));
      routes.flags[t] = by_gate.flags[i];
      if (extra_per_token_ > 0) {
        std::copy_n(extra.begin() + static_cast<std::ptrdiff_t>(i * extra_per_token_), extra_per_token_,
                    extra_.begin() + static_cast<std::ptrdiff_t>(t * extra_per_token_));
      }
    }
    routes.failed_tokens += by_gate.failed_tokens;
  }
  outcome.refused_slots += routes.refused_slots;
  outcome.failed_tokens += routes.failed_tokens;
  return routes;
}

Result<std::vector<std::uint32_t>> PassRunner::exchange_counts(ExchangeTag tag, AllToAll& exchange,
                                                               const std::vector<std::uint32_t>& mine,
                                                               PassOutcome& outcome) {
  const Timed timed(outcome.all_to_all_ns);
  const std::uint32_t ranks = exchange.ranks();
  const std::size_t bytes = mine.size() * sizeof(std::uint32_t);
  const std::vector<SendBlock> sends(ranks, SendBlock{std::as_bytes(std::span(mine)), 0, {}});
  const std::vector<std::size_t> recv_bytes(ranks, bytes);
  auto received = exchange.exchange(tag, sends, recv_bytes, steady_clock::now() + options_.exchange_timeout);
  if (!received) return tl::unexpected(received.error());
  std::vector<std::uint32_t> counts(ranks * mine.size());
  for (std::uint32_t r = 0; r < ranks; ++r) {
    if (bytes > 0) std::memcpy(counts.data() + r * mine.size(), (*received)[r].data(), bytes);
  }
  return counts;
}

Result<void> PassRunner::run_step(StepId step, const LayerSites& sites, AllToAll& exchange, PassTokens& tokens,
                                  PassOutcome& outcome) {
  const std::size_t row_bytes = shape_.row_bytes();
  const std::uint32_t ranks = exchange.ranks();
  const Rank self = exchange.rank();

  normed_.resize(tokens.tokens * row_bytes);
  device_.rms_norm(tokens.tokens, tokens.hidden, normed_);
  auto routed = route(step.layer, tokens, outcome);
  if (!routed) return tl::unexpected(routed.error());
  scheduling::Routes& routes = *routed;

  scheduling::Demand demand = scheduling::choose_sites(routes, sites, tokens.first_token_number);
  auto counts = exchange_counts({step, kCounts}, exchange, demand.counts, outcome);
  if (!counts) return tl::unexpected(counts.error());
  if (options_.capacity.tokens_per_replica > 0 && moves_rows(options_.capacity.overflow)) {
    outcome.dropped +=
        scheduling::settle_overflow(sites, *counts, self, options_.capacity, extra_, extra_per_token_, routes, demand)
            .dropped;
    counts = exchange_counts({step, kCountsSettled}, exchange, demand.counts, outcome);
    if (!counts) return tl::unexpected(counts.error());
  }
  auto plan = scheduling::plan_step(sites, *counts, self, demand, options_.capacity, options_.max_rows_per_round);
  if (!plan) return tl::unexpected(plan.error());

  for (const std::uint32_t row : plan->dropped) routes.flags[demand.rows[row].token] |= messages::kTokenDropped;
  outcome.dropped += plan->dropped.size();
  for (std::uint32_t t = 0; t < tokens.tokens; ++t)
    outcome.flags[t] = static_cast<std::uint8_t>(outcome.flags[t] | routes.flags[t]);
  // Heat counts what the tokens asked for and got: padding, refused and failed slots are -1 by now.
  std::uint32_t* const heat = outcome.routed.data() + std::size_t{step.layer} * shape_.experts;
  for (const auto& row : demand.rows) ++heat[sites.sites[row.site].expert];

  const std::vector<std::uint32_t>& my_sites = sites.on_rank[self.value];
  std::vector<const std::byte*> parts(std::size_t{tokens.tokens} * shape_.top_k, nullptr);
  const bool several = plan->rounds.size() > 1;
  if (several) returned_.resize(demand.rows.size() * row_bytes);

  std::vector<SendBlock> sends(ranks);
  std::vector<std::size_t> recv_bytes(ranks);
  std::vector<std::vector<std::uint32_t>> send_rows(ranks);
  std::vector<std::vector<std::uint32_t>> back_rows(ranks);
  for (std::uint32_t r = 0; r < plan->rounds.size(); ++r) {
    const scheduling::Round& round = plan->rounds[r];
    // Dispatch. Rows from each rank come grouped by my sites.
    std::size_t rows_here = 0;
    for (std::uint32_t peer = 0; peer < ranks; ++peer) {
      send_rows[peer].clear();
      for (const std::uint32_t row : round.send[peer]) send_rows[peer].push_back(demand.rows[row].token);
      sends[peer] = SendBlock{normed_, row_bytes, send_rows[peer]};
      std::size_t rows = 0;
      for (std::size_t s = 0; s < my_sites.size(); ++s) rows += round.recv_counts[peer * my_sites.size() + s];
      recv_bytes[peer] = rows * row_bytes;
      rows_here += rows;
    }
    {
      expert_in_.resize(rows_here * row_bytes);
      expert_out_.resize(rows_here * row_bytes);
      const Timed timed(outcome.all_to_all_ns);
      auto received = exchange.exchange({step, kFirstRound + 2 * r}, sends, recv_bytes,
                                        steady_clock::now() + options_.exchange_timeout);
      if (!received) return fail_in("dispatch", received.error());
      // Regroup: the rows of one site, from all ranks, side by side, so that its weights are read once.
      for (auto& rows : back_rows) rows.clear();
      std::vector<std::size_t> taken(ranks, 0);
      std::uint32_t at = 0;
      for (std::size_t s = 0; s < my_sites.size(); ++s) {
        for (std::uint32_t peer = 0; peer < ranks; ++peer) {
          const std::uint32_t rows = round.recv_counts[peer * my_sites.size() + s];
          if (rows == 0) continue;
          std::memcpy(expert_in_.data() + at * row_bytes, (*received)[peer].data() + taken[peer] * row_bytes,
                      rows * row_bytes);
          for (std::uint32_t i = 0; i < rows; ++i) back_rows[peer].push_back(at + i);
          taken[peer] += rows;
          at += rows;
        }
      }
    }
    // Grouped expert compute.
    std::vector<ExpertRows> groups;
    std::uint32_t first = 0;
    for (std::size_t s = 0; s < my_sites.size(); ++s) {
      std::uint32_t rows = 0;
      for (std::uint32_t peer = 0; peer < ranks; ++peer) rows += round.recv_counts[peer * my_sites.size() + s];
      if (rows == 0) continue;
      const std::uint32_t slot = sites.sites[my_sites[s]].slot;
      groups.push_back({step.layer * options_.slots_per_layer + slot, first, rows});
      outcome.computed[std::size_t{step.layer} * options_.slots_per_layer + slot] += rows;
      first += rows;
    }
    if (auto done = device_.run_experts(groups, expert_in_, expert_out_); !done) return tl::unexpected(done.error());
    // Combine: each row goes back to where it came from, in the order in which it came.
    for (std::uint32_t peer = 0; peer < ranks; ++peer) {
      sends[peer] = SendBlock{expert_out_, row_bytes, back_rows[peer]};
      recv_bytes[peer] = round.send[peer].size() * row_bytes;
    }
    const Timed timed(outcome.all_to_all_ns);
    auto received = exchange.exchange({step, kFirstRound + 2 * r + 1}, sends, recv_bytes,
                                      steady_clock::now() + options_.exchange_timeout);
    if (!received) return fail_in("combine", received.error());
    for (std::uint32_t peer = 0; peer < ranks; ++peer) {
      const std::byte* from = (*received)[peer].data();
      for (const std::uint32_t row : round.send[peer]) {
        const std::byte* part = from;
        if (several) {
          // The spans end with the next exchange; results of early rounds are kept until the sum.
          std::memcpy(returned_.data() + row * row_bytes, from, row_bytes);
          part = returned_.data() + row * row_bytes;
        }
        parts[std::size_t{demand.rows[row].token} * shape_.top_k + demand.rows[row].k] = part;
        from += row_bytes;
      }
    }
  }
  device_.combine(tokens.tokens, shape_.top_k, parts, routes.weights, tokens.hidden);
  return {};
}

}  // namespace troupe::gpu
