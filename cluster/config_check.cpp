#include "cluster/config_check.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace troupe::cluster {
namespace {

constexpr std::uint64_t kMostGpus = 4096;
// The wire's limit on a frame is 64 MiB; the envelope and msgpack's own bytes need the rest.
constexpr std::uint64_t kMostRequestBytes = std::uint64_t{60} << 20;

bool is_host(std::string_view host) {
  // A host goes into an ssh command line: nothing that a shell or an option parser would take for more than a name.
  static constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:";
  return !host.empty() && host.size() <= 253 && host.front() != '-' &&
         host.find_first_not_of(kAllowed) == std::string_view::npos;
}

std::string number(std::uint64_t value) {
  return std::to_string(value);
}

class Checker {
 public:
  Checker(const Config& config, const ConfigSource& source, Problems& problems)
      : c_(config), source_(source), problems_(problems) {}

  void run() {
    check_effect();
    check_names();
    check_model();
    check_hosts();
    check_ports();
    check_slots();
    check_capacity();
    check_features();
    check_limits();
    check_workload();
  }

 private:
  bool sound(std::initializer_list<std::pair<std::string_view, std::string_view>> keys) const {
    return std::none_of(keys.begin(), keys.end(), [&](const auto& k) { return problems_.spoilt(k.first, k.second); });
  }
  bool given(std::string_view table, std::string_view name) const { return source_.find(table, name) != nullptr; }
  void problem(std::string_view table, std::string_view name, std::string text) {
    problems_.add(source_.place(table, name), std::move(text));
  }
  void node_problem(std::size_t node, std::string_view name, std::string text) {
    problems_.add(source_.place("nodes", name, node),
                  "nodes." + number(node) + "." + std::string(name) + std::move(text));
  }
  static std::string quote(std::string_view text) { return to_text(ConfigValue{std::string(text)}); }

  // A key that was written although nothing reads it here (C38).
  void check_effect() {
    for (const ConfigEntry& entry : source_.entries) {
      const ConfigKey* key = find_key(entry.table, entry.name);
      if (key == nullptr || key->condition.holds == nullptr || key->condition.holds(c_)) continue;
      // The key on which it depends may be the one that is misspelt.
      if (!sound({{"model", "gate"},
                  {"model", "preset"},
                  {"capacity", "tokens_per_replica"},
                  {"capacity", "factor"},
                  {"transport", "bulk"},
                  {"security", "curve"},
                  {"workload", "kind"},
                  {"workload", "arrivals"}})) {
        continue;
      }
      problems_.add(entry.place,
                    entry.shown() + " has no effect " + std::string(key->condition.otherwise) + "; remove it");
    }
  }

  void check_names() {
    const std::string rule = "; use 1 to 64 letters, digits, '_', '-' or '.'";
    if (sound({{"cluster", "name"}}) && !is_plain_name(c_.name)) {
      problem("cluster", "name", "cluster.name = " + quote(c_.name) + " is no plain name" + rule);
    }
    std::map<std::string_view, std::size_t> seen;
    for (std::size_t i = 0; i < c_.nodes.size(); ++i) {
      const std::string& name = c_.nodes[i].name;
      if (!is_plain_name(name)) {
        node_problem(i, "name",
                     " = " + quote(name) + " is no plain name" + rule + ", and neither coordinator nor client");
      }
      const auto [first, fresh] = seen.emplace(name, i);
      if (!fresh) {
        node_problem(
            i, "name",
            " = " + quote(name) + " is the name of nodes." + number(first->second) + " too; give every node its own");
      }
    }
  }

  void check_model() {
    const scheduling::ModelShape& m = c_.model;
    if (!sound({{"model", "experts"}, {"model", "preset"}})) return;
    if (sound({{"model", "top_k"}}) && m.top_k > m.experts) {
      problem("model", given("model", "top_k") ? "top_k" : "experts",
              "model.top_k = " + number(m.top_k) + " of " + number(m.experts) + " experts; set at most " +
                  number(m.experts));
    }
    if (m.gate != scheduling::GateKind::kSigmoidGroup || !sound({{"model", "groups"}, {"model", "top_groups"}})) return;
    if (m.experts % m.groups != 0) {
      std::uint32_t nearest_divisor = std::min(m.groups, m.experts);
      while (m.experts % nearest_divisor != 0) --nearest_divisor;
      problem("model", given("model", "groups") ? "groups" : "experts",
              "model.groups = " + number(m.groups) + " does not divide " + number(m.experts) + " experts; set " +
                  number(nearest_divisor) + ", say");
      return;
    }
    const std::uint32_t per_group = m.experts / m.groups;
    const std::string_view at = given("model", "top_groups") ? "top_groups" : "groups";
    if (m.top_groups > m.groups) {
      problem("model", at,
              "model.top_groups = " + number(m.top_groups) + " of " + number(m.groups) + " groups; set at most " +
                  number(m.groups));
    } else if (m.top_k <= m.experts && std::uint64_t{m.top_groups} * per_group < m.top_k) {
      problem("model", at,
              "model.top_groups = " + number(m.top_groups) + " leaves " + number(m.top_groups * per_group) +
                  " experts to choose " + number(m.top_k) + " from; set at least " +
                  number((m.top_k + per_group - 1) / per_group));
    }
  }

  void check_hosts() {
    const auto check = [&](const std::string& host, auto report) {
      if (!is_host(host)) {
        report(" = " + quote(host) + " is no host name or address");
      } else if (host == "0.0.0.0" || host == "::") {
        report(" = " + quote(host) + " is no address that peers can reach; write the host's own");
      } else if (!c_.security.curve && sound({{"security", "curve"}}) && !is_loopback(host)) {
        report(" = " + quote(host) +
               " is not on loopback, and security.curve = false would leave the wire open to anyone; "
               "remove security.curve or use 127.0.0.1");
      } else if (c_.transport.bulk == gpu::BulkTransport::kShm && c_.nodes.size() > 1 &&
                 canonical_host(host) != canonical_host(c_.nodes[0].host)) {
        report(" = " + quote(host) + " is another host than " + c_.nodes[0].host +
               ", which transport.bulk = \"shm\" cannot reach; set \"auto\" or \"ucx\"");
      }
    };
    for (std::size_t i = 0; i < c_.nodes.size(); ++i) {
      check(c_.nodes[i].host, [&](const std::string& text) { node_problem(i, "host", text); });
    }
    if (!is_host(c_.coordinator_host) || c_.coordinator_host == "0.0.0.0" || c_.coordinator_host == "::" ||
        (!c_.security.curve && sound({{"security", "curve"}}) && !is_loopback(c_.coordinator_host))) {
      const std::string& host = c_.coordinator_host;
      problem("coordinator", "host",
              "coordinator.host = " + quote(host) +
                  (is_host(host) && host != "0.0.0.0" && host != "::"
                       ? " is not on loopback, and security.curve = false would leave the wire open to anyone; remove "
                         "security.curve or use 127.0.0.1"
                       : " is no address that nodes can reach; write the host's own"));
    }
  }

  void check_ports() {
    std::map<std::pair<std::string_view, std::uint16_t>, std::string> taken;
    if (c_.coordinator_port != 0)
      taken[{canonical_host(c_.coordinator_host), c_.coordinator_port}] = "coordinator.port";
    for (std::size_t i = 0; i < c_.nodes.size(); ++i) {
      const NodeConfig& node = c_.nodes[i];
      for (const auto& [key, port] : {std::pair<std::string_view, std::uint16_t>{"control_port", node.control_port},
                                      std::pair<std::string_view, std::uint16_t>{"door_port", node.door_port}}) {
        if (port == 0) continue;
        const std::string self = "nodes." + number(i) + "." + std::string(key);
        const auto [first, fresh] = taken.emplace(std::pair{canonical_host(node.host), port}, self);
        if (!fresh) {
          node_problem(i, key,
                       " = " + number(port) + " on " + node.host + " is taken by " + first->second +
                           "; set another, or 0 for any free port");
        }
      }
    }
  }

  void check_slots() {
    if (!sound({{"model", "experts"},
                {"model", "preset"},
                {"placement", "slots_per_gpu"},
                {"nodes", "gpus"},
                {"nodes", "slots_per_gpu"}})) {
      return;
    }
    const std::uint32_t experts = c_.model.experts;
    if (std::uint64_t{experts} * c_.model.layers > scheduling::kMaxReplicas) {
      problem("model", "experts",
              "model.layers = " + number(c_.model.layers) + " of " + number(experts) +
                  " experts each are more than the " + number(scheduling::kMaxReplicas) +
                  " replicas of a placement; set at most " +
                  number(std::max<std::uint64_t>(1, scheduling::kMaxReplicas / experts)) + " layers");
    }
    const std::uint64_t gpus = c_.total_gpus();
    if (gpus > kMostGpus) {
      problems_.add({source_.file, 0}, number(gpus) + " GPUs in all; at most " + number(kMostGpus) + " are supported");
      return;
    }
    std::uint64_t held = 0;
    std::uint64_t open = 0;  // GPUs without a number of their own
    for (std::size_t i = 0; i < c_.nodes.size(); ++i) {
      const NodeConfig& node = c_.nodes[i];
      if (!node.slots_per_gpu) {
        open += node.gpus;
        continue;
      }
      held += std::uint64_t{*node.slots_per_gpu} * node.gpus;
      if (*node.slots_per_gpu > experts) {
        node_problem(i, "slots_per_gpu",
                     " = " + number(*node.slots_per_gpu) + " is more than the " + number(experts) +
                         " experts of a layer, and a GPU never holds one twice; set at most " + number(experts));
      }
    }
    const std::uint32_t slots = c_.placement.slots_per_gpu;
    if (slots > experts) {
      problem("placement", "slots_per_gpu",
              "placement.slots_per_gpu = " + number(slots) + " is more than the " + number(experts) +
                  " experts of a layer, and a GPU never holds one twice; set at most " + number(experts));
      return;
    }
    if (open == 0 && given("placement", "slots_per_gpu") && slots != 0) {
      problem("placement", "slots_per_gpu",
              "placement.slots_per_gpu = " + number(slots) +
                  " has no effect: every node has slots_per_gpu of its own; remove it");
    }
    if (open == 0 && held < experts) {
      problem("nodes", "slots_per_gpu",
              "the nodes' slots_per_gpu hold " + number(held) + " of " + number(experts) +
                  " experts; set nodes.0.slots_per_gpu to at least " + number(least_for_first(experts - held)));
    } else if (slots > 0 && held + slots * open < experts) {
      problem("placement", "slots_per_gpu",
              "placement.slots_per_gpu = " + number(slots) + " holds " + number(held + slots * open) + " of " +
                  number(experts) + " experts; set at least " + number((experts - held + open - 1) / open));
    }
  }
  std::uint64_t least_for_first(std::uint64_t missing) const {
    const NodeConfig& node = c_.nodes[0];
    return *node.slots_per_gpu + (missing + node.gpus - 1) / node.gpus;
  }

  void check_capacity() {
    if (given("capacity", "factor") && given("capacity", "tokens_per_replica")) {
      problem("capacity", "factor",
              "capacity.factor and capacity.tokens_per_replica say the same thing twice; keep one");
    }
    if (c_.capacity.tokens_per_replica == 0 || !sound({{"capacity", "overflow"}, {"workload", "kind"}})) return;
    if (c_.capacity.overflow == scheduling::Overflow::kNext && c_.workload.kind != WorkloadKind::kGate) {
      problem("capacity", "overflow",
              "capacity.overflow = \"next\" goes to the gate's next choice, but workload.kind = " +
                  quote(name_of(c_.workload.kind)) +
                  " sends its own routes, which have none; set \"wait\" or \"drop\", or "
                  "workload.kind = \"gate\"");
    }
    if (c_.capacity.overflow == scheduling::Overflow::kReplica &&
        c_.placement.strategy == PlacementStrategy::kUniform) {
      problem("capacity", "overflow",
              "capacity.overflow = \"replica\" goes to another copy of the expert, but placement.strategy = "
              "\"uniform\" makes "
              "one of each; set \"wait\"");
    }
  }

  void check_features() {
    for (std::size_t i = 0; i < c_.nodes.size(); ++i) {
      if (c_.nodes[i].device == DeviceKind::kCuda && !cuda_backend_available()) {
        node_problem(i, "device",
                     " = \"cuda\", but this build has no CUDA backend; set \"cpu\", or build with TROUPE_CUDA=ON");
      }
    }
    if (!c_.migration.enabled) return;
    if (sound({{"nodes", "gpus"}}) && c_.total_gpus() == 1) {
      problem(
          "migration", "enabled",
          "migration.enabled = true has no effect: there is one GPU, and nowhere to move to; set false or add GPUs");
    } else if (!migration_available()) {
      problem("migration", "enabled",
              "migration.enabled = true has no effect: this version leaves experts where they were placed; set false");
    }
  }

  void check_limits() {
    const LimitsConfig& l = c_.limits;
    if (sound({{"limits", "heartbeat_limit_ms"}, {"limits", "heartbeat_interval_ms"}}) &&
        l.heartbeat_limit_ms < 2 * l.heartbeat_interval_ms) {
      problem("limits", given("limits", "heartbeat_limit_ms") ? "heartbeat_limit_ms" : "heartbeat_interval_ms",
              "limits.heartbeat_limit_ms = " + number(l.heartbeat_limit_ms) + " is less than two heartbeats of " +
                  number(l.heartbeat_interval_ms) + " ms, so healthy nodes would be suspected; set at least " +
                  number(2 * l.heartbeat_interval_ms));
    }
    if (sound({{"limits", "max_request_tokens"}, {"limits", "max_queued_tokens"}}) &&
        l.max_request_tokens > l.max_queued_tokens) {
      problem("limits", given("limits", "max_request_tokens") ? "max_request_tokens" : "max_queued_tokens",
              "limits.max_request_tokens = " + number(l.max_request_tokens) +
                  " is more than a door may queue, "
                  "limits.max_queued_tokens = " +
                  number(l.max_queued_tokens) + "; set at most that");
    }
    if (sound({{"launch", "command"}})) check_command();
  }

  void check_command() {
    const std::string& command = c_.launch.command;
    if (command.empty()) return;
    if (sound({{"nodes", "host"}}) &&
        std::all_of(c_.nodes.begin(), c_.nodes.end(), [](const NodeConfig& node) { return is_loopback(node.host); })) {
      problem("launch", "command",
              "launch.command = " + quote(command) +
                  " has no effect: every node is on loopback and started directly; remove it");
    }
    std::set<std::string> used;
    for (std::size_t at = command.find('{'); at != std::string::npos; at = command.find('{', at + 1)) {
      const std::size_t end = command.find('}', at);
      if (end == std::string::npos) break;
      used.insert(command.substr(at, end - at + 1));
    }
    for (const std::string& each : used) {
      if (each != "{host}" && each != "{name}" && each != "{command}") {
        problem("launch", "command", "launch.command has " + quote(each) + "; there are {host}, {name} and {command}");
      }
    }
    if (!used.contains("{command}")) {
      problem("launch", "command",
              "launch.command = " + quote(command) +
                  " does not say where {command} goes, so nothing "
                  "would be started; for instance \"ssh {host} {command}\"");
    }
  }

  void check_workload() {
    const WorkloadConfig& w = c_.workload;
    if (!sound({{"workload", "kind"}, {"workload", "file"}})) return;
    if (w.kind == WorkloadKind::kStatistics && w.file.empty()) {
      problem("workload", "kind",
              "workload.kind = \"statistics\" needs workload.file, a table of expert frequencies; see docs/config.md");
    }
    if (w.kind == WorkloadKind::kExplicit) check_routes();
    const std::set<std::string> domains(w.domains.begin(), w.domains.end());
    if (domains.size() > w.tokens) {
      problem("workload", "domains",
              "workload.domains has " + number(domains.size()) + " domains for " + number(w.tokens) +
                  " tokens; give workload.tokens at least one each");
    }
    if (!sound({{"workload", "tokens"},
                {"workload", "streams"},
                {"workload", "tokens_per_request"},
                {"workload", "in_flight"},
                {"limits", "max_request_tokens"},
                {"limits", "max_queued_tokens"}})) {
      return;
    }
    if (w.streams > w.tokens) {
      problem("workload", given("workload", "streams") ? "streams" : "tokens",
              "workload.streams = " + number(w.streams) + " for " + number(w.tokens) + " tokens; set at most " +
                  number(w.tokens));
    }
    if (w.tokens_per_request > c_.limits.max_request_tokens) {
      problem("workload", "tokens_per_request",
              "workload.tokens_per_request = " + number(w.tokens_per_request) +
                  " is more than limits.max_request_tokens = " + number(c_.limits.max_request_tokens) +
                  "; set at most that");
    }
    const std::uint64_t waiting = std::uint64_t{w.in_flight} * w.tokens_per_request;
    const std::uint64_t room = std::uint64_t{c_.limits.max_queued_tokens} * c_.nodes.size();
    if (waiting > room) {
      problem("workload", given("workload", "in_flight") ? "in_flight" : "tokens_per_request",
              "workload.in_flight = " + number(w.in_flight) + " requests of " + number(w.tokens_per_request) +
                  " tokens are more than the doors queue (" + number(room) + " tokens); set at most " +
                  number(std::max<std::uint64_t>(1, room / w.tokens_per_request)));
    }
    check_request_bytes();
  }

  void check_request_bytes() {
    const WorkloadConfig& w = c_.workload;
    if (!sound({{"model", "d_model"}, {"model", "layers"}, {"model", "top_k"}, {"model", "preset"}})) return;
    const bool routes = w.kind != WorkloadKind::kGate;
    // A route is an id and a weight; msgpack writes each with a byte of its own in front.
    const std::uint64_t per_token =
        std::uint64_t{4} * c_.model.d_model + (routes ? std::uint64_t{10} * c_.model.layers * c_.model.top_k : 0);
    if (per_token * w.tokens_per_request > kMostRequestBytes) {
      problem("workload", "tokens_per_request",
              "workload.tokens_per_request = " + number(w.tokens_per_request) + " tokens of " + number(per_token) +
                  " bytes do not fit a frame; set at most " +
                  number(std::max<std::uint64_t>(1, kMostRequestBytes / per_token)));
    }
  }

  void check_routes() {
    const WorkloadConfig& w = c_.workload;
    if (w.file.empty() && w.route_offsets.empty()) {
      problem("workload", "kind",
              "workload.kind = \"explicit\" needs routes: set workload.file or workload.route_offsets");
      return;
    }
    if (!w.file.empty() && (!w.route_offsets.empty() || !w.route_weights.empty())) {
      problem("workload", w.route_offsets.empty() ? "route_weights" : "route_offsets",
              "workload.file and workload.route_offsets both give routes; keep one");
      return;
    }
    if (!w.file.empty() || !sound({{"model", "top_k"}, {"model", "experts"}, {"model", "preset"}})) return;
    if (w.route_offsets.size() != c_.model.top_k) {
      problem("workload", "route_offsets",
              "workload.route_offsets has " + number(w.route_offsets.size()) +
                  " offsets for model.top_k = " + number(c_.model.top_k) + "; give that many");
    }
    std::set<std::uint32_t> distinct;
    for (const std::uint32_t offset : w.route_offsets) distinct.insert(offset % c_.model.experts);
    if (distinct.size() < w.route_offsets.size()) {
      problem("workload", "route_offsets",
              "workload.route_offsets names an expert twice for a token (offsets count modulo " +
                  number(c_.model.experts) + " experts); make them distinct");
    }
    if (!w.route_weights.empty() && w.route_weights.size() != w.route_offsets.size()) {
      problem("workload", "route_weights",
              "workload.route_weights has " + number(w.route_weights.size()) + " weights for " +
                  number(w.route_offsets.size()) + " offsets; give one each");
    }
  }

  const Config& c_;
  const ConfigSource& source_;
  Problems& problems_;
};

}  // namespace

bool is_plain_name(std::string_view name) {
  static constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
  if (name.empty() || name.size() > 64 || name.find_first_not_of(kAllowed) != std::string_view::npos) return false;
  // A name becomes part of file names and commands: neither a hidden file, nor "..", nor an option.
  if (name.front() == '.' || name.front() == '-') return false;
  return name != "coordinator" && name != "client";
}

void check_config(const Config& config, const ConfigSource& source, Problems& problems) {
  Checker(config, source, problems).run();
}

}  // namespace troupe::cluster
