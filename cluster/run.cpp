#include "cluster/run.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "cluster/answer_book.hpp"
#include "cluster/client.hpp"
#include "cluster/launcher.hpp"
#include "cluster/workload.hpp"
#include "gpu/reference.hpp"
#include "scheduling/dispatch.hpp"

namespace troupe::cluster {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

double seconds_since(steady_clock::time_point start) {
  return std::chrono::duration<double>(steady_clock::now() - start).count();
}

/// Answers on their way from the client's thread to the driver.
class AnswerQueue {
 public:
  void push(messages::Answer answer) {
    {
      const std::lock_guard lock(mutex_);
      answers_.push_back(std::move(answer));
    }
    come_.notify_one();
  }
  /// All that are there; waits at most `wait` for the first.
  std::deque<messages::Answer> take(milliseconds wait) {
    std::unique_lock lock(mutex_);
    come_.wait_for(lock, wait, [this] { return !answers_.empty(); });
    return std::exchange(answers_, {});
  }

 private:
  std::mutex mutex_;
  std::condition_variable come_;
  std::deque<messages::Answer> answers_;  // bounded by the requests in flight
};

class Driver {
 public:
  Driver(const Config& config, const RunOptions& options, Progress& progress, const Workload& workload,
         RunningCluster& cluster)
      : config_(config),
        options_(options),
        progress_(progress),
        workload_(workload),
        cluster_(cluster),
        book_(config.model.d_model) {}

  Result<void> drive();
  void collect(RunReport& report);
  AnswerBook& book() { return book_; }

 private:
  Result<void> submit_what_is_due();
  Result<void> take_answers();

  static constexpr milliseconds kTurn{20};
  const Config& config_;
  const RunOptions& options_;
  Progress& progress_;
  const Workload& workload_;
  RunningCluster& cluster_;
  AnswerBook book_;
  AnswerQueue answers_;
  std::unique_ptr<Client> client_;
  std::uint64_t next_ = 0;
  std::unique_ptr<WorkItem> held_;  ///< made, but not yet due or not yet taken by the wire
  steady_clock::time_point start_;
  steady_clock::time_point last_answer_;
  double seconds_ = 0;
};

Result<void> Driver::submit_what_is_due() {
  while (book_.open_requests() < config_.workload.in_flight && (held_ || next_ < workload_.total_requests())) {
    if (!held_) held_ = std::make_unique<WorkItem>(workload_.item(next_++));
    const auto due = start_ + std::chrono::nanoseconds(held_->at_ns);
    if (steady_clock::now() < due) return {};
    // Copied, since the wire may have no room: then the item is kept and tried again after the next answers.
    const auto door = static_cast<std::uint32_t>(held_->submit.stream % cluster_.doors().size());
    if (auto sent = client_->submit(door, held_->submit); !sent) {
      if (sent.error().code == ErrorCode::kLimit) return {};
      return sent;
    }
    book_.submitted(held_->submit);
    held_.reset();
  }
  return {};
}

Result<void> Driver::take_answers() {
  for (const messages::Answer& answer : answers_.take(kTurn)) {
    last_answer_ = steady_clock::now();
    if (auto done = book_.answered(answer); !done) return done;
  }
  return {};
}

Result<void> Driver::drive() {
  ClientOptions options;
  options.doors = cluster_.doors();
  options.keys = cluster_.client_keys();
  options.on_answer = [this](std::uint32_t, messages::Answer answer) { answers_.push(std::move(answer)); };
  auto client = Client::connect(std::move(options));
  if (!client) return tl::unexpected(client.error());
  client_ = std::move(*client);

  progress_.phase("serving");
  start_ = last_answer_ = steady_clock::now();
  // The nodes answer a request within its deadline, if only with an error; a little more means that the door itself is
  // gone.
  const milliseconds patience{config_.limits.request_timeout_ms + 2000};
  Result<void> how{};
  while (held_ || next_ < workload_.total_requests() || book_.open_requests() > 0) {
    if (how = submit_what_is_due(); !how) break;
    if (how = take_answers(); !how) break;
    if (book_.open_requests() == 0) last_answer_ = steady_clock::now();  // waiting for an arrival, not for an answer
    if (how = cluster_.health(); !how) break;
    if (options_.cancelled && options_.cancelled()) return fail(ErrorCode::kAborted, "interrupted");
    if (steady_clock::now() - last_answer_ > patience) {
      how = fail(ErrorCode::kDeadline, fmt::format("no answer for {} ms", patience.count()));
      break;
    }
    progress_.update(book_.tokens_completed(), workload_.total_tokens(),
                     fmt::format("{} of {} tokens", book_.tokens_completed(), workload_.total_tokens()));
  }
  seconds_ = seconds_since(start_);
  if (!how) book_.close(how.error().message);
  return how;
}

void Driver::collect(RunReport& r) {
  r.seconds = seconds_;
  r.tokens_submitted = book_.tokens_submitted();
  r.tokens_completed = book_.tokens_completed();
  r.tokens_lost = book_.tokens_lost();
  r.tokens_duplicated = book_.tokens_duplicated();
  r.order_violations = book_.order_violations();
  r.tokens_dropped = book_.flagged(messages::kTokenDropped);
  r.tokens_rerouted = book_.flagged(messages::kTokenRerouted);
  r.tokens_failed = book_.flagged(messages::kTokenFailed);
  r.tokens_bad_route = book_.flagged(messages::kTokenBadRoute);
  r.tokens_per_second = seconds_ > 0 ? static_cast<double>(r.tokens_completed) / seconds_ : 0;
  r.output_digest = book_.digest();
  const std::size_t layers = config_.model.layers;
  const std::size_t experts = config_.model.experts;
  r.tokens_per_expert.assign(layers, std::vector<std::uint64_t>(experts, 0));
  std::vector<std::vector<std::uint64_t>> per_layer(layers);  // [layers][GPUs]
  std::vector<std::uint64_t> step_times;
  std::uint64_t all_to_all_ns = 0;
  std::uint64_t step_ns = 0;
  for (std::uint32_t door = 0; client_ && door < cluster_.doors().size(); ++door) {
    constexpr milliseconds kStatusTimeout{5000};
    auto status = client_->status(door, kStatusTimeout);
    if (!status) {
      r.reasons.push_back(status.error().message);
      continue;
    }
    const std::size_t gpus = config_.nodes[door].gpus;
    if (status->tokens_per_gpu.size() != gpus || status->tokens_per_gpu_layer.size() != gpus * layers ||
        status->tokens_per_expert.size() != layers * experts) {
      r.reasons.push_back(fmt::format("node {}: its status has figures of another shape", config_.nodes[door].name));
      continue;
    }
    r.passes = std::max(r.passes, status->passes);
    r.all_to_all_bytes += status->all_to_all_bytes;
    r.refused_frames += status->refused_frames;
    all_to_all_ns += status->all_to_all_ns;
    step_ns += status->step_ns;
    step_times.insert(step_times.end(), status->step_time_ns.begin(), status->step_time_ns.end());
    r.tokens_per_gpu.insert(r.tokens_per_gpu.end(), status->tokens_per_gpu.begin(), status->tokens_per_gpu.end());
    r.arena_bytes.insert(r.arena_bytes.end(), status->arena_bytes.begin(), status->arena_bytes.end());
    r.arena_used_bytes.insert(r.arena_used_bytes.end(), status->arena_used_bytes.begin(),
                              status->arena_used_bytes.end());
    for (std::size_t layer = 0; layer < layers; ++layer) {
      for (std::size_t g = 0; g < gpus; ++g)
        per_layer[layer].push_back(status->tokens_per_gpu_layer[g * layers + layer]);
      for (std::size_t e = 0; e < experts; ++e)
        r.tokens_per_expert[layer][e] += status->tokens_per_expert[layer * experts + e];
    }
  }
  r.steps = r.passes * layers;
  r.all_to_all_share = step_ns > 0 ? static_cast<double>(all_to_all_ns) / static_cast<double>(step_ns) : 0;
  std::sort(step_times.begin(), step_times.end());
  const auto percentile = [&](double p) {
    if (step_times.empty()) return 0.0;
    const auto at = static_cast<std::size_t>(p * static_cast<double>(step_times.size() - 1) + 0.5);
    return static_cast<double>(step_times[at]) / 1e6;
  };
  r.step_ms_p50 = percentile(0.50);
  r.step_ms_p99 = percentile(0.99);
  double sum = 0;
  for (const auto& loads : per_layer) {
    const double imbalance = scheduling::check_load(loads, config_.heat.imbalance_threshold).imbalance;
    sum += imbalance;
    r.worst_imbalance = std::max(r.worst_imbalance, imbalance);
  }
  r.imbalance = per_layer.empty() ? 1.0 : sum / static_cast<double>(per_layer.size());
  for (const std::string& error : book_.first_errors()) r.reasons.push_back(error);
}

/// Requests whose reference is computed at once: enough rows per expert for the kernels to be fast, few enough for
/// memory.
constexpr std::uint64_t kReferenceBlock = 16384;

Result<std::map<std::uint64_t, AnswerBook::Stream>> compute_reference(const Config& config, const Workload& workload,
                                                                      const RunOptions& options, Progress& progress) {
  const scheduling::ModelShape& shape = config.model;
  const auto weights = gpu::make_synthetic_weights(shape);
  // The book takes the reference as it took the answers, so that both digests are made by the same code.
  AnswerBook book(shape.d_model);
  std::uint64_t next = 0;
  std::uint64_t done = 0;
  const std::uint64_t all = workload.total_tokens();
  progress.phase("reference");
  while (next < workload.total_requests()) {
    std::vector<messages::Submit> block;
    std::uint32_t tokens = 0;
    while (next < workload.total_requests() && (tokens == 0 || tokens < kReferenceBlock)) {
      block.push_back(workload.item(next++).submit);
      tokens += block.back().tokens;
    }
    gpu::PassTokens pass;
    pass.tokens = tokens;
    pass.hidden.resize(std::size_t{tokens} * shape.d_model);
    pass.client_routed.assign(tokens, 0);
    pass.route_ids.assign(std::size_t{shape.layers} * tokens * shape.top_k, -1);
    pass.route_weights.assign(pass.route_ids.size(), 0.0F);
    std::size_t at = 0;
    for (const messages::Submit& submit : block) {
      std::memcpy(pass.hidden.data() + at * shape.d_model, submit.hidden.data(), submit.hidden.size());
      if (!submit.route_ids.empty()) {
        std::fill_n(pass.client_routed.begin() + static_cast<std::ptrdiff_t>(at), submit.tokens, std::uint8_t{1});
        const std::size_t n = std::size_t{submit.tokens} * shape.top_k;
        for (std::size_t layer = 0; layer < shape.layers; ++layer) {
          const auto from = static_cast<std::ptrdiff_t>(layer * n);
          const auto to = static_cast<std::ptrdiff_t>((layer * tokens + at) * shape.top_k);
          std::copy_n(submit.route_ids.begin() + from, n, pass.route_ids.begin() + to);
          std::copy_n(submit.route_weights.begin() + from, n, pass.route_weights.begin() + to);
        }
      }
      at += submit.tokens;
    }
    gpu::ReferenceOptions reference;
    reference.cancelled = options.cancelled;
    reference.progress = [&](double share) {
      const auto now = done + static_cast<std::uint64_t>(share * tokens);
      progress.update(now, all, fmt::format("{} of {} tokens", now, all));
    };
    auto flags = gpu::run_reference(shape, *weights, pass, reference);
    if (!flags) return tl::unexpected(flags.error());
    at = 0;
    for (const messages::Submit& submit : block) {
      book.submitted(submit);
      messages::Answer answer;
      answer.request = submit.request;
      answer.tokens = submit.tokens;
      const auto* from = reinterpret_cast<const std::byte*>(pass.hidden.data() + at * shape.d_model);
      answer.hidden.assign(from, from + std::size_t{submit.tokens} * shape.d_model * sizeof(float));
      answer.flags.assign(flags->begin() + static_cast<std::ptrdiff_t>(at),
                          flags->begin() + static_cast<std::ptrdiff_t>(at + submit.tokens));
      if (auto taken = book.answered(answer); !taken) return tl::unexpected(taken.error());
      at += submit.tokens;
    }
    done += tokens;
  }
  return book.streams();
}

/// Tokens whose bits are not the reference's, leaving out those that a policy changed by design.
std::uint64_t count_differing(const std::map<std::uint64_t, AnswerBook::Stream>& got,
                              const std::map<std::uint64_t, AnswerBook::Stream>& want, std::size_t d_model) {
  constexpr std::uint8_t kByDesign = messages::kTokenDropped | messages::kTokenRerouted;
  std::uint64_t differing = 0;
  for (const auto& [number, stream] : got) {
    const auto found = want.find(number);
    for (std::size_t t = 0; t < stream.have.size(); ++t) {
      if (stream.have[t] == 0 || (stream.flags[t] & kByDesign) != 0) continue;
      const bool same = found != want.end() && t < found->second.have.size() &&
                        std::memcmp(stream.hidden.data() + t * d_model, found->second.hidden.data() + t * d_model,
                                    d_model * sizeof(float)) == 0;
      if (!same) ++differing;
    }
  }
  return differing;
}

void judge(RunReport& r) {
  const auto must_be_zero = [&](std::uint64_t count, const char* what) {
    if (count > 0) r.reasons.push_back(fmt::format("{} {}", count, what));
  };
  must_be_zero(r.tokens_lost, "tokens lost");
  must_be_zero(r.tokens_duplicated, "tokens answered twice");
  must_be_zero(r.order_violations, "answers out of their stream's order");
  must_be_zero(r.tokens_differing, "tokens whose bits differ from the reference's");
  if (r.tokens_completed + r.tokens_lost < r.tokens_submitted)
    r.reasons.push_back("fewer tokens were answered than submitted");
  const bool by_design = r.tokens_dropped + r.tokens_rerouted > 0;
  if (r.reference_checked && !by_design && r.output_digest != r.reference_digest)
    r.reasons.push_back("the output digest is not the reference's");
  r.pass = r.reasons.empty();
}

}  // namespace

Result<RunReport> run_cluster(const Config& config, const RunOptions& options, Progress& progress) {
  auto workload = make_workload(config);
  if (!workload) return tl::unexpected(workload.error());

  progress.phase("launching");
  LaunchOptions launch;
  launch.cancelled = options.cancelled;
  launch.on_line = options.on_log;
  launch.on_progress = [&](std::uint32_t joined, std::uint32_t nodes) {
    progress.update(joined, nodes, fmt::format("{} of {} nodes joined", joined, nodes));
  };
  auto cluster = RunningCluster::launch(config, std::move(launch));
  if (!cluster) return tl::unexpected(cluster.error());

  RunReport report;
  report.nodes = static_cast<std::uint32_t>(config.nodes.size());
  report.gpus = config.total_gpus();
  Driver driver(config, options, progress, **workload, **cluster);
  const Result<void> driven = driver.drive();
  if (!driven && driven.error().code == ErrorCode::kAborted) return tl::unexpected(driven.error());
  driver.collect(report);
  if (!driven) report.reasons.push_back(driven.error().message);
  progress.phase("stopping");
  if (auto stopped = (*cluster)->stop(); !stopped) report.reasons.push_back(stopped.error().message);

  if (options.check_reference) {
    const auto start = steady_clock::now();
    auto reference = compute_reference(config, **workload, options, progress);
    if (!reference) return tl::unexpected(reference.error());
    report.reference_seconds = seconds_since(start);
    report.reference_checked = true;
    report.reference_digest = digest_streams(*reference);
    report.tokens_differing = count_differing(driver.book().streams(), *reference, config.model.d_model);
  }
  progress.clear();
  judge(report);
  return report;
}

}  // namespace troupe::cluster
