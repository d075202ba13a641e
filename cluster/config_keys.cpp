#include "cluster/config_keys.hpp"

#include "cluster/config_access.hpp"

namespace troupe::cluster {
namespace {

using access::row;
using access::special;
using scheduling::Capacity;
using scheduling::ModelShape;

constexpr std::int64_t kMostMs = 86'400'000;  // a day: a deadline beyond it is a typing error
constexpr std::int64_t kMostPort = 65535;
constexpr std::int64_t kMostSeed = INT64_MAX;  // TOML's own largest integer

bool groups_count(const Config& c) {
  return c.model.gate == scheduling::GateKind::kSigmoidGroup;
}
bool has_limit(const Config& c) {
  return c.capacity.tokens_per_replica > 0;
}
bool ucx_may_run(const Config& c) {
  return c.transport.bulk != gpu::BulkTransport::kShm;
}
bool curve_is_on(const Config& c) {
  return c.security.curve;
}
bool reads_file(const Config& c) {
  return c.workload.kind == WorkloadKind::kStatistics || c.workload.kind == WorkloadKind::kExplicit;
}
bool has_domains(const Config& c) {
  return c.workload.kind == WorkloadKind::kStatistics;
}
bool is_zipf(const Config& c) {
  return c.workload.kind == WorkloadKind::kZipf;
}
bool is_explicit(const Config& c) {
  return c.workload.kind == WorkloadKind::kExplicit;
}
bool has_arrivals(const Config& c) {
  return !c.workload.arrivals.empty();
}

constexpr KeyCondition kWithGroups{groups_count, R"(unless model.gate = "sigmoid_group")"};
constexpr KeyCondition kWithLimit{has_limit, "without capacity.tokens_per_replica or capacity.factor"};
constexpr KeyCondition kWithUcx{ucx_may_run, R"(while transport.bulk = "shm")"};
constexpr KeyCondition kWithCurve{curve_is_on, "while security.curve = false"};
constexpr KeyCondition kWithFile{reads_file, R"(unless workload.kind = "statistics" or "explicit")"};
constexpr KeyCondition kWithDomains{has_domains, R"(unless workload.kind = "statistics")"};
constexpr KeyCondition kWithZipf{is_zipf, R"(unless workload.kind = "zipf")"};
constexpr KeyCondition kWithRoutes{is_explicit, R"(unless workload.kind = "explicit")"};
constexpr KeyCondition kWithArrivals{has_arrivals, "without workload.arrivals"};

void add_cluster(std::vector<ConfigKey>& keys) {
  keys.push_back(
      row<&Config::name>("cluster", "name", "Name of the cluster: letters, digits, '_', '-', '.'.").agreed().key);
  keys.push_back(row<&Config::ledger>("cluster", "ledger",
                                      "SQLite file in which the coordinator keeps views, epochs and incarnations.")
                     .by_default("in the run's own temporary folder")
                     .key);
}

void add_model(std::vector<ConfigKey>& keys) {
  auto preset = special("model", "preset", KeyType::kChoice, KeyUse::kSpecial,
                        "Shape of a published model. Other keys of this table override single numbers of it.")
                    .by_default("none: then layers, experts, top_k, d_model and d_ff must be given")
                    .agreed();
  preset.key.choices.assign(preset_names().begin(), preset_names().end());
  preset.key.get = [](const Config& c, std::size_t) -> std::optional<ConfigValue> {
    if (find_preset(c.model.name) == nullptr) return std::nullopt;
    return ConfigValue{c.model.name};
  };
  keys.push_back(preset.key);
  const auto add = [&](access::Row&& r) { keys.push_back(std::move(r).by_default("the preset's").agreed().key); };
  add(row<&Config::model, &ModelShape::layers>("model", "layers", "MoE layers.").range(1, 512));
  add(row<&Config::model, &ModelShape::experts>("model", "experts", "Experts per layer.").range(1, 4096));
  add(row<&Config::model, &ModelShape::top_k>("model", "top_k", "Experts per token and layer.").range(1, 64));
  add(row<&Config::model, &ModelShape::d_model>("model", "d_model", "Width of a hidden state.").range(1, 65536));
  add(row<&Config::model, &ModelShape::d_ff>("model", "d_ff", "Inner width of an expert.").range(1, 262144));
  const auto add_plain = [&](access::Row&& r) { keys.push_back(std::move(r).agreed().key); };
  add_plain(row<&Config::model, &ModelShape::weights>("model", "weights", "Type in which weights are held."));
  add_plain(row<&Config::model, &ModelShape::transport>(
      "model", "transport", "Type to which hidden states are rounded, whether they travel or stay."));
  add_plain(row<&Config::model, &ModelShape::gate>("model", "gate", "How scores become experts and weights.")
                .by_default("the preset's, else \"softmax_topk_renorm\""));
  add_plain(row<&Config::model, &ModelShape::groups>("model", "groups", "Groups of experts; must divide experts.")
                .range(1, 4096)
                .when(kWithGroups)
                .by_default("the preset's, else 1"));
  add_plain(row<&Config::model, &ModelShape::top_groups>("model", "top_groups",
                                                         "Experts are chosen from the best so many groups.")
                .range(1, 4096)
                .when(kWithGroups)
                .by_default("the preset's, else 1"));
  add_plain(row<&Config::model, &ModelShape::routed_scale>("model", "routed_scale", "Factor on the gate's weights.")
                .numbers(1e-6, 1e6)
                .by_default("the preset's, else 1.0"));
  add_plain(
      row<&Config::model, &ModelShape::seed>("model", "seed", "Seed of the synthetic weights.").range(0, kMostSeed));
  keys.push_back(special("model", "checkpoint", KeyType::kPath, KeyUse::kRefused,
                         "only synthetic weights, made from model.seed, are available")
                     .key);
}

void add_nodes(std::vector<ConfigKey>& keys) {
  keys.push_back(row<&Config::coordinator_host>("coordinator", "host", "Where the coordinator runs and listens.").key);
  keys.push_back(row<&Config::coordinator_port>("coordinator", "port", "Its control port; 0: any free port.")
                     .range(0, kMostPort)
                     .key);
  keys.push_back(row<&NodeConfig::name>("nodes", "name", "Name of the node: letters, digits, '_', '-', '.'; unique.")
                     .by_default("n0, n1, ... by place")
                     .agreed()
                     .key);
  keys.push_back(
      row<&NodeConfig::host>("nodes", "host", "Where the node runs, and the address by which peers reach it.").key);
  keys.push_back(row<&NodeConfig::control_port>("nodes", "control_port", "Port for its peers; 0: any free port.")
                     .range(0, kMostPort)
                     .key);
  keys.push_back(
      row<&NodeConfig::door_port>("nodes", "door_port", "Port for clients; 0: any free port.").range(0, kMostPort).key);
  keys.push_back(row<&NodeConfig::gpus>("nodes", "gpus", "GPUs that the node hosts.").range(1, 64).agreed().key);
  keys.push_back(
      row<&NodeConfig::device>("nodes", "device", "What a GPU of the node is: \"cpu\" computes on the processor.")
          .agreed()
          .key);
  keys.push_back(
      row<&NodeConfig::slots_per_gpu>("nodes", "slots_per_gpu", "Expert slots per layer on each GPU of this node.")
          .range(1, 4096)
          .by_default("placement.slots_per_gpu")
          .agreed()
          .key);
}

void add_traffic(std::vector<ConfigKey>& keys) {
  const auto add = [&](access::Row&& r) { keys.push_back(std::move(r).agreed().key); };
  add(row<&Config::transport, &TransportConfig::bulk>(
      "transport", "bulk", "How hidden states travel. auto: shared memory within a host, UCX between hosts."));
  add(row<&Config::transport, &TransportConfig::inbox_bytes>(
          "transport", "inbox_bytes", "Room in an inbox per sender and buffer; more goes in chunks.")
          .range(4096, std::int64_t{1} << 30, "bytes"));
  add(row<&Config::transport, &TransportConfig::ucx_tls>(
          "transport", "ucx_tls", "UCX transports to use, as in UCX_TLS (\"tcp\"); empty: UCX chooses.")
          .when(kWithUcx));
  add(row<&Config::placement, &PlacementConfig::strategy>("placement", "strategy",
                                                          "uniform: each expert once, equal numbers per GPU."));
  add(row<&Config::placement, &PlacementConfig::order>(
      "placement", "order",
      "contiguous: GPU g of G gets experts g*E/G to (g+1)*E/G; round_robin: expert e goes to GPU e mod G."));
  add(row<&Config::placement, &PlacementConfig::slots_per_gpu>(
          "placement", "slots_per_gpu", "Expert slots per layer on each GPU; 0: the least that holds all.")
          .range(0, 4096));
  auto limit = row<&Config::capacity, &Capacity::tokens_per_replica>(
                   "capacity", "tokens_per_replica", "Most tokens a replica takes in a round; 0: no limit.")
                   .range(0, 1 << 24, "tokens");
  add(std::move(limit));
  keys.push_back(
      special("capacity", "factor", KeyType::kNumber, KeyUse::kSpecial,
              "tokens_per_replica as a multiple of an even share: ceil(factor x max_tokens_per_pass x GPUs x top_k / "
              "experts).")
          .numbers(1e-3, 1e3)
          .by_default("none")
          .key);
  add(row<&Config::capacity, &Capacity::overflow>("capacity", "overflow",
                                                  "What is beyond the limit: wait (a later round, exact), drop, next "
                                                  "(the gate's next choice), replica (another copy).")
          .when(kWithLimit));
}

void add_heat(std::vector<ConfigKey>& keys) {
  const auto add = [&](access::Row&& r) { keys.push_back(std::move(r).agreed().key); };
  add(row<&Config::heat, &HeatConfig::window_passes>("heat", "window_passes", "Passes per heat window.")
          .range(1, 1'000'000, "passes"));
  add(row<&Config::heat, &HeatConfig::half_life_windows>("heat", "half_life_windows",
                                                         "After so many windows a load counts half.")
          .numbers(0.01, 1e6, "windows"));
  add(row<&Config::heat, &HeatConfig::imbalance_threshold>(
          "heat", "imbalance_threshold", "Busiest GPU over the mean from which a layer counts as overloaded.")
          .numbers(1.0, 1e3));
  add(row<&Config::migration, &MigrationConfig::enabled>("migration", "enabled",
                                                         "Experts move while the cluster serves."));
}

void add_limits(std::vector<ConfigKey>& keys) {
  keys.push_back(row<&Config::security, &SecurityConfig::curve>(
                     "security", "curve", "CURVE between nodes. false: the plain wire, for loopback hosts only.")
                     .agreed()
                     .key);
  keys.push_back(row<&Config::security, &SecurityConfig::keys>("security", "keys", "Folder of the cluster's keys.")
                     .when(kWithCurve)
                     .by_default("the user's state folder")
                     .key);
  const auto add = [&](access::Row&& r) { keys.push_back(std::move(r).agreed().key); };
  add(row<&Config::limits, &LimitsConfig::max_tokens_per_pass>("limits", "max_tokens_per_pass",
                                                               "Per rank; more wait for the next pass.")
          .range(1, 65536, "tokens"));
  add(row<&Config::limits, &LimitsConfig::max_rows_per_round>(
          "limits", "max_rows_per_round", "Rows that a rank computes at once; a step with more has more rounds.")
          .range(1, 1 << 20, "rows"));
  add(row<&Config::limits, &LimitsConfig::max_queued_tokens>("limits", "max_queued_tokens",
                                                             "Per door; what comes beyond is refused.")
          .range(1, 1 << 24, "tokens"));
  add(row<&Config::limits, &LimitsConfig::max_request_tokens>("limits", "max_request_tokens",
                                                              "Most tokens of one request.")
          .range(1, 1 << 20, "tokens"));
  add(row<&Config::limits, &LimitsConfig::exchange_timeout_ms>("limits", "exchange_timeout_ms",
                                                               "Deadline of one all-to-all.")
          .range(1, kMostMs, "ms"));
  add(row<&Config::limits, &LimitsConfig::request_timeout_ms>("limits", "request_timeout_ms",
                                                              "Deadline of one client request.")
          .range(1, kMostMs, "ms"));
  add(row<&Config::limits, &LimitsConfig::join_timeout_ms>("limits", "join_timeout_ms",
                                                           "All nodes must have joined and loaded by then.")
          .range(1, kMostMs, "ms"));
  add(row<&Config::limits, &LimitsConfig::heartbeat_interval_ms>("limits", "heartbeat_interval_ms",
                                                                 "Time between heartbeats.")
          .range(1, 60'000, "ms"));
  add(row<&Config::limits, &LimitsConfig::heartbeat_limit_ms>("limits", "heartbeat_limit_ms",
                                                              "Silence after which a node is suspected.")
          .range(2, kMostMs, "ms"));
  add(row<&Config::limits, &LimitsConfig::shutdown_timeout_ms>("limits", "shutdown_timeout_ms",
                                                               "Time to finish; then processes are killed.")
          .range(1, kMostMs, "ms"));
  keys.push_back(
      row<&Config::telemetry, &TelemetryConfig::log_level>("telemetry", "log_level", "Least level that is logged.")
          .one_of({"trace", "debug", "info", "warn", "error"})
          .key);
  keys.push_back(
      row<&Config::launch, &LaunchConfig::command>(
          "launch", "command",
          "How to start a node on another host: a template with {host}, {name} and {command}; empty: here, directly.")
          .key);
}

void add_workload(std::vector<ConfigKey>& keys) {
  const auto add = [&](access::Row&& r) { keys.push_back(std::move(r).key); };
  using W = WorkloadConfig;
  add(row<&Config::workload, &W::kind>(
      "workload", "kind",
      "Where a token's experts come from: the model's gate, a table of recorded frequencies, a "
      "Zipf law, or routes written down."));
  add(row<&Config::workload, &W::file>("workload", "file",
                                       "statistics: table of expert frequencies; explicit: routes (CSV).")
          .when(kWithFile)
          .by_default("none"));
  add(row<&Config::workload, &W::domains>(
          "workload", "domains",
          "Domains of the table in the order they come, each an equal part of the run; empty: all.")
          .when(kWithDomains));
  add(row<&Config::workload, &W::tokens>("workload", "tokens", "Tokens of the run.").range(1, 1'000'000'000, "tokens"));
  add(row<&Config::workload, &W::streams>("workload", "streams", "Streams the tokens are dealt to, in turn.")
          .range(1, 1 << 20));
  add(row<&Config::workload, &W::tokens_per_request>("workload", "tokens_per_request", "Most tokens of one request.")
          .range(1, 1 << 20, "tokens"));
  add(row<&Config::workload, &W::in_flight>("workload", "in_flight", "Requests under way at once, over all streams.")
          .range(1, 1 << 20));
  add(row<&Config::workload, &W::zipf_exponent>("workload", "zipf_exponent",
                                                "An expert of rank r is chosen as 1 / r^exponent.")
          .numbers(0.0, 8.0)
          .when(kWithZipf));
  add(row<&Config::workload, &W::zipf_drift>("workload", "zipf_drift",
                                             "Ranks by which the hot set moves per 1000 tokens.")
          .numbers(0.0, 1e6, "ranks")
          .when(kWithZipf));
  add(row<&Config::workload, &W::arrivals>("workload", "arrivals", "CSV of arrival times and token counts to replay.")
          .by_default("none: as fast as answers come"));
  add(row<&Config::workload, &W::arrivals_speed>("workload", "arrivals_speed", "Replay so many times faster.")
          .numbers(1e-3, 1e6)
          .when(kWithArrivals));
  add(row<&Config::workload, &W::seed>("workload", "seed", "Seed of hidden states and routes.").range(0, kMostSeed));
  add(row<&Config::workload, &W::route_offsets>(
          "workload", "route_offsets",
          "Choice j of token i is expert (i + offset j) mod experts, in every layer; top_k "
          "distinct ones.")
          .range(0, 4095)
          .when(kWithRoutes));
  add(row<&Config::workload, &W::route_weights>("workload", "route_weights", "Their weights; empty: equal ones.")
          .numbers(-1e6, 1e6)
          .when(kWithRoutes));
}

const std::vector<ConfigKey>& all_keys() {
  static const std::vector<ConfigKey> keys = [] {
    std::vector<ConfigKey> list;
    add_cluster(list);
    add_model(list);
    add_nodes(list);
    add_traffic(list);
    add_heat(list);
    add_limits(list);
    add_workload(list);
    return list;
  }();
  return keys;
}

}  // namespace

std::span<const ConfigKey> config_keys() {
  return all_keys();
}

const ConfigKey* find_key(std::string_view table, std::string_view name) {
  for (const ConfigKey& key : all_keys()) {
    if (key.table == table && key.name == name) return &key;
  }
  return nullptr;
}

std::span<const std::string_view> config_tables() {
  static const std::vector<std::string_view> tables = [] {
    std::vector<std::string_view> list;
    for (const ConfigKey& key : all_keys()) {
      if (list.empty() || list.back() != key.table) list.push_back(key.table);
    }
    return list;
  }();
  return tables;
}

std::string_view name_of(DeviceKind value) {
  return access::word_of(value);
}
std::string_view name_of(PlacementStrategy value) {
  return access::word_of(value);
}
std::string_view name_of(WorkloadKind value) {
  return access::word_of(value);
}
std::string_view name_of(gpu::BulkTransport value) {
  return access::word_of(value);
}
std::string_view name_of(scheduling::UniformOrder value) {
  return access::word_of(value);
}
std::string_view name_of(scheduling::Overflow value) {
  return access::word_of(value);
}
std::string_view name_of(scheduling::WeightType value) {
  return access::word_of(value);
}
std::string_view name_of(scheduling::TransportType value) {
  return access::word_of(value);
}
std::string_view name_of(scheduling::GateKind value) {
  return access::word_of(value);
}

}  // namespace troupe::cluster
