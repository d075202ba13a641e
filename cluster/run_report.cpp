#include "cluster/run_report.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace troupe::cluster {
namespace {

std::string bytes_text(double bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t u = 0;
  while (bytes >= 1024 && u + 1 < std::size(units)) {
    bytes /= 1024;
    ++u;
  }
  return fmt::format("{:.{}f} {}", bytes, u == 0 ? 0 : 1, units[u]);
}

std::string bar(double share, std::size_t width) {
  const auto filled = static_cast<std::size_t>(std::clamp(share, 0.0, 1.0) * static_cast<double>(width) + 0.5);
  return std::string(filled, '#') + std::string(width - filled, '.');
}

/// At most this many experts get a column of their own; beyond it a line per layer says what stands out.
constexpr std::size_t kMaxExpertColumns = 16;
constexpr std::size_t kMaxLayersShown = 16;

void expert_table(std::string& out, const RunReport& r) {
  if (r.tokens_per_expert.empty()) return;
  const std::size_t experts = r.tokens_per_expert.front().size();
  out += "\nToken visits per expert\n";
  if (experts <= kMaxExpertColumns) {
    out += fmt::format("{:>7}", "layer");
    for (std::size_t e = 0; e < experts; ++e) out += fmt::format("{:>9}", fmt::format("e{}", e));
    out += fmt::format("{:>12}\n", "hottest");
  } else {
    out += fmt::format("{:>7}{:>12}{:>12}{:>12}{:>12}\n", "layer", "mean", "hottest", "coldest", "hot/mean");
  }
  for (std::size_t layer = 0; layer < std::min(r.tokens_per_expert.size(), kMaxLayersShown); ++layer) {
    const auto& row = r.tokens_per_expert[layer];
    const double mean =
        static_cast<double>(std::accumulate(row.begin(), row.end(), std::uint64_t{0})) / static_cast<double>(experts);
    const auto [low, high] = std::minmax_element(row.begin(), row.end());
    const double hot = mean > 0 ? static_cast<double>(*high) / mean : 1.0;
    out += fmt::format("{:>7}", layer);
    if (experts <= kMaxExpertColumns) {
      for (const std::uint64_t n : row) out += fmt::format("{:>9}", n);
      out += fmt::format("{:>12}\n", fmt::format("{:.2f} x mean", hot));
    } else {
      out += fmt::format("{:>12.1f}{:>12}{:>12}{:>12.2f}\n", mean, fmt::format("e{}: {}", high - row.begin(), *high),
                         fmt::format("e{}: {}", low - row.begin(), *low), hot);
    }
  }
  if (r.tokens_per_expert.size() > kMaxLayersShown)
    out += fmt::format("  and {} more layers\n", r.tokens_per_expert.size() - kMaxLayersShown);
}

}  // namespace

std::string to_json(const RunReport& r) {
  const nlohmann::ordered_json j{{"verdict", r.pass ? "pass" : "fail"},
                                 {"reasons", r.reasons},
                                 {"nodes", r.nodes},
                                 {"gpus", r.gpus},
                                 {"passes", r.passes},
                                 {"steps", r.steps},
                                 {"tokens_submitted", r.tokens_submitted},
                                 {"tokens_completed", r.tokens_completed},
                                 {"tokens_lost", r.tokens_lost},
                                 {"tokens_duplicated", r.tokens_duplicated},
                                 {"order_violations", r.order_violations},
                                 {"tokens_dropped", r.tokens_dropped},
                                 {"tokens_rerouted", r.tokens_rerouted},
                                 {"tokens_failed", r.tokens_failed},
                                 {"tokens_bad_route", r.tokens_bad_route},
                                 {"tokens_differing", r.tokens_differing},
                                 {"output_digest", r.output_digest},
                                 {"reference_digest", r.reference_digest},
                                 {"imbalance", r.imbalance},
                                 {"worst_imbalance", r.worst_imbalance},
                                 {"tokens_per_gpu", r.tokens_per_gpu},
                                 {"tokens_per_expert", r.tokens_per_expert},
                                 {"step_ms", {{"p50", r.step_ms_p50}, {"p99", r.step_ms_p99}}},
                                 {"all_to_all_bytes", r.all_to_all_bytes},
                                 {"all_to_all_share", r.all_to_all_share},
                                 {"seconds", r.seconds},
                                 {"tokens_per_second", r.tokens_per_second},
                                 {"reference_seconds", r.reference_seconds},
                                 {"arena_bytes", r.arena_bytes},
                                 {"arena_used_bytes", r.arena_used_bytes},
                                 {"refused_frames", r.refused_frames}};
  return j.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string to_text(const RunReport& r, const Config& config) {
  const scheduling::ModelShape& m = config.model;
  std::string out;
  out += fmt::format("\n{} on {} node{} x {} GPU{}: {} layer{}, {} experts, top-{}, d_model {}, d_ff {}\n", config.name,
                     r.nodes, r.nodes == 1 ? "" : "s", r.nodes == 0 ? 0 : r.gpus / r.nodes,
                     r.nodes != 0 && r.gpus / r.nodes == 1 ? "" : "s", m.layers, m.layers == 1 ? "" : "s", m.experts,
                     m.top_k, m.d_model, m.d_ff);
  out += fmt::format("{} tokens in {:.2f} s ({:.0f} tokens/s), {} passes, {} steps\n", r.tokens_completed, r.seconds,
                     r.tokens_per_second, r.passes, r.steps);

  out += "\nToken visits per GPU\n";
  const std::uint64_t most =
      r.tokens_per_gpu.empty() ? 0 : *std::max_element(r.tokens_per_gpu.begin(), r.tokens_per_gpu.end());
  std::size_t gpu = 0;
  for (const NodeConfig& node : config.nodes) {
    for (std::uint32_t g = 0; g < node.gpus && gpu < r.tokens_per_gpu.size(); ++g, ++gpu) {
      const std::uint64_t n = r.tokens_per_gpu[gpu];
      out +=
          fmt::format("{:>16} {:>10}  {}  arena {} of {} used\n", fmt::format("{}/{}", node.name, g), n,
                      bar(most == 0 ? 0.0 : static_cast<double>(n) / static_cast<double>(most), 24),
                      gpu < r.arena_used_bytes.size() ? bytes_text(static_cast<double>(r.arena_used_bytes[gpu])) : "?",
                      gpu < r.arena_bytes.size() ? bytes_text(static_cast<double>(r.arena_bytes[gpu])) : "?");
    }
  }
  expert_table(out, r);

  out += "\n";
  const auto row = [&](const char* name, const std::string& value) { out += fmt::format("  {:<22}{}\n", name, value); };
  row("imbalance", fmt::format("{:.3f} mean over layers, {:.3f} worst (busiest GPU / mean; 1.0 is perfect)",
                               r.imbalance, r.worst_imbalance));
  row("step time", fmt::format("p50 {:.3f} ms, p99 {:.3f} ms", r.step_ms_p50, r.step_ms_p99));
  row("all-to-all", fmt::format("{} between GPUs, {:.1f} % of step time (waiting for other ranks included)",
                                bytes_text(static_cast<double>(r.all_to_all_bytes)), r.all_to_all_share * 100));
  row("lost / duplicated", fmt::format("{} / {}", r.tokens_lost, r.tokens_duplicated));
  row("order violations", fmt::format("{}", r.order_violations));
  if (r.tokens_dropped + r.tokens_rerouted + r.tokens_failed + r.tokens_bad_route > 0) {
    row("flagged tokens", fmt::format("{} dropped, {} rerouted, {} failed, {} with a bad route", r.tokens_dropped,
                                      r.tokens_rerouted, r.tokens_failed, r.tokens_bad_route));
  }
  row("output digest", r.output_digest);
  row("reference digest", r.reference_checked
                              ? fmt::format("{} (one process, {:.2f} s)", r.reference_digest, r.reference_seconds)
                              : "not computed");
  out += fmt::format("\n{}\n", r.pass ? "PASS: every answer is the reference's, bit for bit" : "FAIL");
  for (const std::string& reason : r.reasons) out += "  " + reason + "\n";
  return out;
}

}  // namespace troupe::cluster
