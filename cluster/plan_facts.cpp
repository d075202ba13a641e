#include "cluster/plan_facts.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <set>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <unistd.h>

#include "cluster/config_keys.hpp"
#include "cluster/workload.hpp"

namespace troupe::cluster {
namespace {

std::uint64_t add_saturating(std::uint64_t a, std::uint64_t b) {
  return a > std::numeric_limits<std::uint64_t>::max() - b ? std::numeric_limits<std::uint64_t>::max() : a + b;
}

std::vector<PlanFacts::PresetChange> preset_changes(const Config& config) {
  std::vector<PlanFacts::PresetChange> changes;
  const scheduling::ModelShape* preset = find_preset(config.model.name);
  if (preset == nullptr) return changes;
  Config plain = config;
  plain.model = *preset;
  for (const ConfigKey& key : config_keys()) {
    if (key.table != "model" || key.name == "seed") continue;
    const auto now = key.get(config, 0);
    const auto then = key.get(plain, 0);
    if (now && then && *now != *then) changes.push_back({std::string(key.name), to_text(*now), to_text(*then)});
  }
  return changes;
}

/// Layers of equal placement together, in the order of their first layer.
std::vector<PlanFacts::LayerGroup> group_layers(const Config& config, const scheduling::Placement& placement) {
  std::vector<std::vector<scheduling::Replica>> layers(config.model.layers);
  for (const scheduling::Replica& replica : placement.replicas) layers[replica.expert.layer].push_back(replica);
  const auto place = [](const scheduling::Replica& r) { return std::tuple(r.gpu, r.slot, r.expert.expert, r.share); };
  const auto before = [&](const auto& a, const auto& b) { return place(a) < place(b); };
  const auto same = [&](const auto& a, const auto& b) { return place(a) == place(b); };
  std::vector<PlanFacts::LayerGroup> groups;
  for (std::uint32_t layer = 0; layer < layers.size(); ++layer) {
    auto& replicas = layers[layer];
    std::sort(replicas.begin(), replicas.end(), before);
    const auto group = std::find_if(groups.begin(), groups.end(), [&](const PlanFacts::LayerGroup& g) {
      return std::equal(g.replicas.begin(), g.replicas.end(), replicas.begin(), replicas.end(), same);
    });
    if (group == groups.end()) {
      groups.push_back({{{layer, layer}}, std::move(replicas)});
    } else if (group->layers.back().second + 1 == layer) {
      group->layers.back().second = layer;
    } else {
      group->layers.emplace_back(layer, layer);
    }
  }
  return groups;
}

/// Names and addresses by which this machine goes.
std::set<std::string> own_hosts() {
  std::set<std::string> hosts;
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) == 0) hosts.insert(name.data());
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return hosts;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, &freeifaddrs);
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr) continue;
    std::array<char, INET6_ADDRSTRLEN> text{};
    const void* address = nullptr;
    if (each->ifa_addr->sa_family == AF_INET) {
      address = &reinterpret_cast<const sockaddr_in*>(each->ifa_addr)->sin_addr;
    } else if (each->ifa_addr->sa_family == AF_INET6) {
      address = &reinterpret_cast<const sockaddr_in6*>(each->ifa_addr)->sin6_addr;
    }
    if (address != nullptr && inet_ntop(each->ifa_addr->sa_family, address, text.data(), text.size()) != nullptr) {
      hosts.insert(text.data());
    }
  }
  return hosts;
}

/// One name for all addresses of this machine's loopback: they are one host.
std::string host_of(const NodeConfig& node) {
  return is_loopback(node.host) ? "127.0.0.1" : node.host;
}

void add_memory(const Config& config, PlanFacts& facts) {
  const std::vector<scheduling::GpuSlots> gpus = config.gpu_slots();
  const std::uint64_t ranks = gpus.size();
  std::size_t first_gpu = 0;
  std::optional<std::set<std::string>> own;
  for (std::size_t n = 0; n < config.nodes.size(); ++n) {
    PlanFacts::GpuMemory memory;
    const std::uint32_t slots = config.model.layers * gpus[first_gpu].slots_per_layer;
    memory.arena = gpu::plan_cpu_arena(config.model, {slots, config.limits.max_rows_per_round});
    // Two buffers per sending rank, used in turn.
    memory.inbox_bytes = 2 * ranks * config.transport.inbox_bytes;
    facts.node_memory.push_back(memory);
    first_gpu += config.nodes[n].gpus;

    const std::string name = host_of(config.nodes[n]);
    auto host = std::find_if(facts.hosts.begin(), facts.hosts.end(), [&](const auto& h) { return h.host == name; });
    if (host == facts.hosts.end()) {
      PlanFacts::Host fresh;
      fresh.host = name;
      if (!own) own = own_hosts();
      const long pages = sysconf(_SC_PHYS_PAGES);
      const long page = sysconf(_SC_PAGESIZE);
      if ((is_loopback(name) || own->contains(name)) && pages > 0 && page > 0) {
        fresh.memory_bytes = static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page);
      }
      host = facts.hosts.insert(facts.hosts.end(), std::move(fresh));
    }
    host->nodes.push_back(n);
    const std::uint64_t each = add_saturating(memory.arena.bytes, memory.inbox_bytes);
    for (std::uint32_t g = 0; g < config.nodes[n].gpus; ++g) host->bytes = add_saturating(host->bytes, each);
  }
}

void add_pairs(const Config& config, PlanFacts& facts) {
  std::uint64_t in_node = 0;
  std::uint64_t in_host = 0;
  std::uint64_t between = 0;
  for (std::size_t a = 0; a < config.nodes.size(); ++a) {
    const std::uint64_t gpus = config.nodes[a].gpus;
    in_node += gpus * (gpus - 1) / 2;
    for (std::size_t b = a + 1; b < config.nodes.size(); ++b) {
      (host_of(config.nodes[a]) == host_of(config.nodes[b]) ? in_host : between) += gpus * config.nodes[b].gpus;
    }
  }
  const bool ucx = config.transport.bulk == gpu::BulkTransport::kUcx;
  const std::string near = ucx ? "ucx" : "shm";
  if (in_node > 0) facts.pairs.push_back({"GPUs of a node", in_node, near});
  if (in_host > 0) facts.pairs.push_back({"nodes of a host", in_host, near});
  if (between > 0) facts.pairs.push_back({"hosts", between, "ucx"});
}

void add_off(const Config& config, PlanFacts& facts) {
  if (!config.migration.enabled) facts.off.emplace_back("migration: experts stay where they are placed");
  if (config.capacity.tokens_per_replica == 0) {
    facts.off.emplace_back("capacity limit: every expert takes all tokens routed to it (capacity.tokens_per_replica)");
  }
  if (!config.security.curve) {
    facts.off.emplace_back("encryption and key checks between nodes: the plain wire on loopback (security.curve)");
  }
  if (config.ledger.empty()) {
    facts.off.emplace_back("a lasting ledger: views and epochs are kept for this run only (cluster.ledger)");
  }
  if (config.workload.arrivals.empty()) {
    facts.off.emplace_back("arrival times: requests go out as fast as answers come (workload.arrivals)");
  }
}

}  // namespace

Result<PlanFacts> plan_facts(const Config& config) {
  PlanFacts facts;
  facts.preset_changes = preset_changes(config);
  const std::vector<scheduling::GpuSlots> gpus = config.gpu_slots();
  auto placement = scheduling::plan_uniform(config.model, gpus, config.placement.order, Epoch{1});
  if (!placement) return tl::unexpected<Error>(placement.error());
  facts.placement = std::move(*placement);
  facts.groups = group_layers(config, facts.placement);
  add_memory(config, facts);
  add_pairs(config, facts);
  auto workload = make_workload(config);
  if (!workload) return tl::unexpected<Error>(workload.error());
  facts.workload_requests = (*workload)->total_requests();
  add_off(config, facts);
  return facts;
}

Result<std::string> describe_plan(const Config& config, bool json) {
  auto facts = plan_facts(config);
  if (!facts) return tl::unexpected<Error>(facts.error());
  return json ? plan_as_json(config, *facts) : plan_as_text(config, *facts);
}

}  // namespace troupe::cluster
