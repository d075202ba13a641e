#include <nlohmann/json.hpp>

#include "cluster/config_keys.hpp"
#include "cluster/plan_facts.hpp"

/// The plan for a program to read. Numbers are plain; sizes are in bytes.
namespace troupe::cluster {
namespace {

using Json = nlohmann::ordered_json;

Json model_json(const Config& config, const PlanFacts& facts) {
  const scheduling::ModelShape& m = config.model;
  Json changes = Json::array();
  for (const auto& change : facts.preset_changes) {
    changes.push_back({{"key", change.key}, {"value", change.value}, {"in_preset", change.in_preset}});
  }
  return {{"name", m.name},
          {"preset_changes", changes},
          {"layers", m.layers},
          {"experts", m.experts},
          {"top_k", m.top_k},
          {"d_model", m.d_model},
          {"d_ff", m.d_ff},
          {"weights", name_of(m.weights)},
          {"transport", name_of(m.transport)},
          {"gate", name_of(m.gate)},
          {"groups", m.groups},
          {"top_groups", m.top_groups},
          {"routed_scale", m.routed_scale},
          {"seed", m.seed},
          {"expert_parameters", m.expert_parameters()},
          {"expert_bytes", m.expert_bytes()},
          {"all_experts_bytes", std::uint64_t{m.layers} * m.experts * m.expert_bytes()}};
}

Json nodes_json(const Config& config, const PlanFacts& facts) {
  const auto gpus = config.gpu_slots();
  std::size_t first = 0;
  Json nodes = Json::array();
  for (std::size_t n = 0; n < config.nodes.size(); ++n) {
    const NodeConfig& node = config.nodes[n];
    const PlanFacts::GpuMemory& memory = facts.node_memory[n];
    nodes.push_back({{"name", node.name},
                     {"host", node.host},
                     {"control_port", node.control_port},
                     {"door_port", node.door_port},
                     {"gpus", node.gpus},
                     {"device", name_of(node.device)},
                     {"slots_per_gpu", gpus[first].slots_per_layer},
                     {"memory_per_gpu",
                      {{"bytes", memory.bytes()},
                       {"arena_bytes", memory.arena.bytes},
                       {"slots", memory.arena.slots},
                       {"slot_bytes", memory.arena.slot_bytes},
                       {"gate_bytes", memory.arena.gate_bytes},
                       {"scratch_bytes", memory.arena.scratch_bytes},
                       {"inbox_bytes", memory.inbox_bytes}}}});
    first += node.gpus;
  }
  return nodes;
}

Json hosts_json(const Config& config, const PlanFacts& facts) {
  Json hosts = Json::array();
  for (const PlanFacts::Host& host : facts.hosts) {
    Json names = Json::array();
    for (const std::size_t n : host.nodes) names.push_back(config.nodes[n].name);
    hosts.push_back({{"host", host.host},
                     {"nodes", names},
                     {"bytes", host.bytes},
                     {"memory_bytes", host.memory_bytes ? Json(*host.memory_bytes) : Json(nullptr)},
                     {"fits", host.fits()}});
  }
  return hosts;
}

Json placement_json(const Config& config, const PlanFacts& facts) {
  Json groups = Json::array();
  for (const PlanFacts::LayerGroup& group : facts.groups) {
    Json layers = Json::array();
    for (const auto& [first, last] : group.layers) layers.push_back({{"first", first}, {"last", last}});
    Json replicas = Json::array();
    for (const scheduling::Replica& replica : group.replicas) {
      replicas.push_back({{"expert", replica.expert.expert},
                          {"node", config.nodes[replica.gpu.node.value].name},
                          {"gpu", replica.gpu.gpu},
                          {"slot", replica.slot},
                          {"share", replica.share}});
    }
    groups.push_back({{"layers", layers}, {"replicas", replicas}});
  }
  return {
      {"strategy", name_of(config.placement.strategy)}, {"order", name_of(config.placement.order)}, {"groups", groups}};
}

Json transport_json(const Config& config, const PlanFacts& facts) {
  Json pairs = Json::array();
  for (const PlanFacts::PairKind& kind : facts.pairs) {
    pairs.push_back({{"between", kind.between}, {"pairs", kind.pairs}, {"transport", kind.transport}});
  }
  return {{"bulk", name_of(config.transport.bulk)},
          {"inbox_bytes", config.transport.inbox_bytes},
          {"ucx_tls", config.transport.ucx_tls},
          {"pairs", pairs},
          {"curve", config.security.curve}};
}

Json limits_json(const LimitsConfig& l) {
  return {{"max_tokens_per_pass", l.max_tokens_per_pass}, {"max_rows_per_round", l.max_rows_per_round},
          {"max_queued_tokens", l.max_queued_tokens},     {"max_request_tokens", l.max_request_tokens},
          {"exchange_timeout_ms", l.exchange_timeout_ms}, {"request_timeout_ms", l.request_timeout_ms},
          {"join_timeout_ms", l.join_timeout_ms},         {"heartbeat_interval_ms", l.heartbeat_interval_ms},
          {"heartbeat_limit_ms", l.heartbeat_limit_ms},   {"shutdown_timeout_ms", l.shutdown_timeout_ms}};
}

Json workload_json(const Config& config, const PlanFacts& facts) {
  const WorkloadConfig& w = config.workload;
  return {{"kind", name_of(w.kind)},
          {"file", w.file.string()},
          {"domains", w.domains},
          {"tokens", w.tokens},
          {"streams", w.streams},
          {"requests", facts.workload_requests},
          {"tokens_per_request", w.tokens_per_request},
          {"in_flight", w.in_flight},
          {"zipf_exponent", w.zipf_exponent},
          {"zipf_drift", w.zipf_drift},
          {"arrivals", w.arrivals.string()},
          {"arrivals_speed", w.arrivals_speed},
          {"seed", w.seed},
          {"route_offsets", w.route_offsets},
          {"route_weights", w.route_weights}};
}

}  // namespace

std::string plan_as_json(const Config& config, const PlanFacts& facts) {
  const Json plan = {
      {"cluster", config.name},
      {"file", config.file.string()},
      {"plan_digest", plan_digest(config)},
      {"model", model_json(config, facts)},
      {"coordinator",
       {{"host", config.coordinator_host}, {"port", config.coordinator_port}, {"ledger", config.ledger.string()}}},
      {"launch_command", config.launch.command},
      {"nodes", nodes_json(config, facts)},
      {"hosts", hosts_json(config, facts)},
      {"placement", placement_json(config, facts)},
      {"transport", transport_json(config, facts)},
      {"capacity",
       {{"tokens_per_replica", config.capacity.tokens_per_replica}, {"overflow", name_of(config.capacity.overflow)}}},
      {"heat",
       {{"window_passes", config.heat.window_passes},
        {"half_life_windows", config.heat.half_life_windows},
        {"imbalance_threshold", config.heat.imbalance_threshold}}},
      {"migration", config.migration.enabled},
      {"limits", limits_json(config.limits)},
      {"workload", workload_json(config, facts)},
      {"off", facts.off}};
  // A path may hold bytes that are no UTF-8: they are replaced, never thrown about.
  return plan.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace troupe::cluster
