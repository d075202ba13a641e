#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cluster/config.hpp"
#include "gpu/device.hpp"
#include "messages/error.hpp"
#include "scheduling/placement.hpp"

/// What `troupe check` says, as values: the text and the JSON are two ways to write it down. Internal.
namespace troupe::cluster {

struct PlanFacts {
  /// One key of a preset that the config overrides, and both values as TOML.
  struct PresetChange {
    std::string key;
    std::string value;
    std::string in_preset;
  };
  std::vector<PresetChange> preset_changes;

  scheduling::Placement placement;
  /// Layers in which every expert sits in the same place, as ranges, first and last included.
  struct LayerGroup {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> layers;
    std::vector<scheduling::Replica> replicas;  ///< of one of them, sorted by (gpu, slot)
  };
  std::vector<LayerGroup> groups;

  /// Memory of one GPU. Equal for all GPUs of a node.
  struct GpuMemory {
    gpu::ArenaUse arena;
    std::uint64_t inbox_bytes = 0;  ///< room for what other ranks send: taken as it is used, at most this
    std::uint64_t bytes() const { return arena.bytes + inbox_bytes; }
  };
  std::vector<GpuMemory> node_memory;  ///< [nodes]

  struct Host {
    std::string host;
    std::vector<std::size_t> nodes;
    std::uint64_t bytes = 0;                    ///< of all their GPUs
    std::optional<std::uint64_t> memory_bytes;  ///< what the host has; known of this machine only
    bool fits() const { return !memory_bytes || bytes <= *memory_bytes; }
  };
  std::vector<Host> hosts;

  /// Pairs of GPUs by what lies between them, and what carries their hidden states.
  struct PairKind {
    std::string between;  ///< "GPUs of a node", "nodes of a host", "hosts"
    std::uint64_t pairs = 0;
    std::string transport;  ///< "shm" or "ucx"
  };
  std::vector<PairKind> pairs;

  std::uint64_t workload_requests = 0;
  std::vector<std::string> off;  ///< what is not on, and how to turn it on
};

/// Errors: those of the planner; kBadConfig (the workload cannot be made: file and line).
Result<PlanFacts> plan_facts(const Config& config);

std::string plan_as_text(const Config& config, const PlanFacts& facts);
std::string plan_as_json(const Config& config, const PlanFacts& facts);

}  // namespace troupe::cluster
