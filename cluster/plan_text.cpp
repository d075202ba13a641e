#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "cluster/config_keys.hpp"
#include "cluster/plan_facts.hpp"

/// The plan for a person to read.
namespace troupe::cluster {
namespace {

std::string bytes_text(std::uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  std::size_t unit = 0;
  double value = static_cast<double>(bytes);
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  char text[64];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

std::string count_text(std::uint64_t count) {
  std::string digits = std::to_string(count);
  for (std::size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, 1, ',');
  return digits;
}

std::string numbered(std::uint64_t count, std::string_view thing) {
  std::string text = count_text(count);
  return text.append(" ").append(thing).append(count == 1 ? "" : "s");
}

std::string range(std::uint32_t first, std::uint32_t last) {
  std::string text = std::to_string(first);
  if (last != first) text.append("-").append(std::to_string(last));
  return text;
}

/// 0, 1, 2, 5 as "0-2, 5".
std::string ranges(const std::vector<std::uint32_t>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t j = i;
    while (j + 1 < numbers.size() && numbers[j + 1] == numbers[j] + 1) ++j;
    text.append(text.empty() ? "" : ", ").append(range(numbers[i], numbers[j]));
    i = j + 1;
  }
  return text;
}

std::string port_text(std::uint16_t port) {
  return port == 0 ? "any" : std::to_string(port);
}

/// Rows of cells, as columns of equal width.
class Columns {
 public:
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  void write(std::string& out, std::string_view indent) const {
    std::vector<std::size_t> widths;
    for (const auto& cells : rows_) {
      widths.resize(std::max(widths.size(), cells.size()));
      for (std::size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], cells[i].size());
    }
    for (const auto& cells : rows_) {
      out += indent;
      for (std::size_t i = 0; i < cells.size(); ++i) {
        out += cells[i];
        if (i + 1 < cells.size()) out.append(widths[i] - cells[i].size() + 2, ' ');
      }
      out += '\n';
    }
  }

 private:
  std::vector<std::vector<std::string>> rows_;
};

class Writer {
 public:
  Writer(const Config& config, const PlanFacts& facts) : c_(config), f_(facts) {}

  std::string write() {
    char digest[24];
    std::snprintf(digest, sizeof digest, "%016llx", static_cast<unsigned long long>(plan_digest(c_)));
    line(std::string("cluster ") + c_.name +
         (c_.file.empty() ? std::string() : std::string(", from ") + c_.file.string()) + ", plan " + digest);
    write_model();
    write_nodes();
    write_placement();
    write_memory();
    write_transport();
    write_policies();
    write_workload();
    heading("off");
    for (const std::string& each : f_.off) line("  " + each);
    out_.pop_back();  // the caller ends the last line
    return std::move(out_);
  }

 private:
  void line(std::string_view text) { out_.append(text).append("\n"); }
  void heading(std::string_view text) { out_.append("\n").append(text).append("\n"); }

  void write_model() {
    const scheduling::ModelShape& m = c_.model;
    heading(std::string("model ") + m.name);
    line("  " + numbered(m.layers, "layer") + " of " + numbered(m.experts, "expert") + ", top-" +
         std::to_string(m.top_k) + ", d_model " + std::to_string(m.d_model) + ", d_ff " + std::to_string(m.d_ff));
    for (const PlanFacts::PresetChange& change : f_.preset_changes) {
      line("  " + change.key + " = " + change.value + " overrides the preset's " + change.in_preset);
    }
    std::string gate(name_of(m.gate));
    if (m.gate == scheduling::GateKind::kSigmoidGroup) {
      gate += ", the best " + std::to_string(m.top_groups) + " of " + numbered(m.groups, "group");
    }
    line("  gate " + gate + ", weights times " + to_text(ConfigValue{shortest_double(m.routed_scale)}));
    line("  weights " + std::string(name_of(m.weights)) + ", synthetic from seed " + std::to_string(m.seed) +
         "; hidden states travel as " + std::string(name_of(m.transport)));
    const std::uint64_t all = std::uint64_t{m.layers} * m.experts;
    line("  an expert: " + count_text(m.expert_parameters()) + " parameters, " + bytes_text(m.expert_bytes()) +
         "; all " + count_text(all) + ": " + count_text(all * m.expert_parameters()) + ", " +
         bytes_text(all * m.expert_bytes()));
  }

  void write_nodes() {
    heading("nodes");
    Columns columns;
    columns.row({"name", "host", "control port", "door port", "GPUs", "device", "slots per GPU and layer"});
    columns.row({"coordinator", c_.coordinator_host, port_text(c_.coordinator_port), "-", "-", "-", "-"});
    const auto gpus = c_.gpu_slots();
    std::size_t first = 0;
    for (const NodeConfig& node : c_.nodes) {
      columns.row({node.name, node.host, port_text(node.control_port), port_text(node.door_port),
                   std::to_string(node.gpus), std::string(name_of(node.device)),
                   std::to_string(gpus[first].slots_per_layer)});
      first += node.gpus;
    }
    columns.write(out_, "  ");
    if (!c_.launch.command.empty()) line("  started on other hosts by: " + c_.launch.command);
    if (!c_.ledger.empty()) line("  ledger: " + c_.ledger.string());
  }

  void write_placement() {
    heading(std::string("placement ") + std::string(name_of(c_.placement.strategy)) + ", " +
            std::string(name_of(c_.placement.order)));
    const auto gpus = c_.gpu_slots();
    for (const PlanFacts::LayerGroup& group : f_.groups) {
      std::string layers;
      for (const auto& [first, last] : group.layers)
        layers.append(layers.empty() ? "" : ", ").append(range(first, last));
      line("  layer " + layers);
      Columns columns;
      columns.row({"GPU", "experts", "in slots"});
      auto replica = group.replicas.begin();
      for (const scheduling::GpuSlots& gpu : gpus) {
        std::vector<std::uint32_t> experts;
        std::vector<std::uint32_t> slots;
        for (; replica != group.replicas.end() && replica->gpu == gpu.gpu; ++replica) {
          experts.push_back(replica->expert.expert);
          slots.push_back(replica->slot);
        }
        const std::string free = numbered(gpu.slots_per_layer - slots.size(), "slot");
        columns.row({gpu_name(gpu.gpu), experts.empty() ? std::string("none") : ranges(experts),
                     ranges(slots) + (slots.size() < gpu.slots_per_layer ? " (" + free + " free)" : std::string())});
      }
      columns.write(out_, "    ");
    }
  }

  std::string gpu_name(const GpuId& gpu) const { return c_.nodes[gpu.node.value].name + "/" + std::to_string(gpu.gpu); }

  void write_memory() {
    heading("memory");
    Columns columns;
    columns.row({"node", "per GPU", "experts", "gates", "scratch", "inboxes, at most"});
    for (std::size_t n = 0; n < c_.nodes.size(); ++n) {
      const PlanFacts::GpuMemory& memory = f_.node_memory[n];
      columns.row({c_.nodes[n].name, bytes_text(memory.bytes()),
                   numbered(memory.arena.slots, "slot") + " of " + bytes_text(memory.arena.slot_bytes),
                   bytes_text(memory.arena.gate_bytes), bytes_text(memory.arena.scratch_bytes),
                   bytes_text(memory.inbox_bytes)});
    }
    columns.write(out_, "  ");
    for (const PlanFacts::Host& host : f_.hosts) {
      std::string text =
          "  host " + host.host + ": " + bytes_text(host.bytes) + " for " + numbered(host.nodes.size(), "node");
      if (host.memory_bytes) text += ", of " + bytes_text(*host.memory_bytes) + " that it has";
      if (!host.fits()) text += ": TOO MUCH; use fewer layers, smaller inboxes or more hosts";
      line(text);
    }
  }

  void write_transport() {
    heading("transport");
    if (f_.pairs.empty()) line("  one GPU: nothing travels");
    for (const PlanFacts::PairKind& kind : f_.pairs) {
      line("  between " + kind.between + ": " + (kind.transport == "shm" ? "shared memory" : "UCX") + " (" +
           numbered(kind.pairs, "pair") + " of GPUs)");
    }
    const bool ucx = std::any_of(f_.pairs.begin(), f_.pairs.end(), [](const auto& k) { return k.transport == "ucx"; });
    if (ucx)
      line("  UCX transports: " +
           (c_.transport.ucx_tls.empty() ? std::string("as UCX chooses") : c_.transport.ucx_tls));
    line(std::string("  between processes: ZeroMQ, ") + (c_.security.curve ? "CURVE" : "plain, on loopback only"));
  }

  void write_policies() {
    heading("limits");
    const LimitsConfig& l = c_.limits;
    if (c_.capacity.tokens_per_replica > 0) {
      line("  capacity: " + numbered(c_.capacity.tokens_per_replica, "token") +
           " per replica and round; overflow: " + std::string(name_of(c_.capacity.overflow)));
    }
    line("  a pass takes " + numbered(l.max_tokens_per_pass, "token") + " per GPU, a round " +
         numbered(l.max_rows_per_round, "row"));
    line("  a request has at most " + numbered(l.max_request_tokens, "token") + ", a door queues " +
         numbered(l.max_queued_tokens, "token"));
    line("  deadlines: joining " + std::to_string(l.join_timeout_ms) + " ms, all-to-all " +
         std::to_string(l.exchange_timeout_ms) + " ms, request " + std::to_string(l.request_timeout_ms) +
         " ms, shutdown " + std::to_string(l.shutdown_timeout_ms) + " ms");
    line("  a node is suspected after " + std::to_string(l.heartbeat_limit_ms) + " ms without a heartbeat (one every " +
         std::to_string(l.heartbeat_interval_ms) + " ms)");
    line("  a layer counts as overloaded from " + to_text(ConfigValue{c_.heat.imbalance_threshold}) +
         " times the mean load; heat windows of " + count_text(c_.heat.window_passes) + " passes, half-life " +
         to_text(ConfigValue{c_.heat.half_life_windows}) + " windows");
  }

  void write_workload() {
    const WorkloadConfig& w = c_.workload;
    heading(std::string("workload ") + std::string(name_of(w.kind)));
    line("  " + numbered(w.tokens, "token") + " in " + numbered(w.streams, "stream") + ", " +
         numbered(f_.workload_requests, "request") + " of at most " + numbered(w.tokens_per_request, "token") + ", " +
         count_text(w.in_flight) + " in flight; seed " + std::to_string(w.seed));
    if (!w.file.empty()) line("  from " + w.file.string());
    std::string domains;
    for (const std::string& domain : w.domains) domains.append(domains.empty() ? "" : ", then ").append(domain);
    if (!domains.empty()) line("  domains: " + domains);
    if (!w.arrivals.empty()) {
      line("  arrivals of " + w.arrivals.string() + ", " + to_text(ConfigValue{w.arrivals_speed}) + " times as fast");
    }
    if (w.kind == WorkloadKind::kZipf) {
      line("  exponent " + to_text(ConfigValue{w.zipf_exponent}) + ", drift " + to_text(ConfigValue{w.zipf_drift}) +
           " ranks per 1000 tokens");
    }
    for (std::size_t j = 0; j < w.route_offsets.size(); ++j) {
      line("  token i to expert (i + " + std::to_string(w.route_offsets[j]) + ") mod " +
           std::to_string(c_.model.experts) +
           (j < w.route_weights.size() ? ", weight " + to_text(ConfigValue{shortest_double(w.route_weights[j])})
                                       : std::string()));
    }
  }

  const Config& c_;
  const PlanFacts& f_;
  std::string out_;
};

}  // namespace

std::string plan_as_text(const Config& config, const PlanFacts& facts) {
  return Writer(config, facts).write();
}

}  // namespace troupe::cluster
