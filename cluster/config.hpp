#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/all_to_all.hpp"
#include "messages/error.hpp"
#include "scheduling/dispatch.hpp"
#include "scheduling/model_shape.hpp"
#include "scheduling/placement.hpp"

/// One TOML file says all about a cluster. This is the only place that reads it. docs/config.md lists every key.
namespace troupe::cluster {

enum class DeviceKind { kCpu, kCuda };

struct NodeConfig {
  std::string name;
  std::string host = "127.0.0.1";  ///< where the node runs and listens
  std::uint16_t control_port = 0;  ///< 0: any free port
  std::uint16_t door_port = 0;     ///< 0: any free port
  std::uint32_t gpus = 1;
  DeviceKind device = DeviceKind::kCpu;
  std::optional<std::uint32_t> slots_per_gpu;  ///< per layer; else placement.slots_per_gpu
  friend bool operator==(const NodeConfig&, const NodeConfig&) = default;
};

enum class PlacementStrategy { kUniform };

struct PlacementConfig {
  PlacementStrategy strategy = PlacementStrategy::kUniform;
  scheduling::UniformOrder order = scheduling::UniformOrder::kContiguous;
  std::uint32_t slots_per_gpu = 0;  ///< per layer; 0: the least that holds all experts
  friend bool operator==(const PlacementConfig&, const PlacementConfig&) = default;
};

struct HeatConfig {
  std::uint32_t window_passes = 16;  ///< passes per heat window
  double half_life_windows = 8.0;
  double imbalance_threshold = 1.5;  ///< load check: busiest over mean
  friend bool operator==(const HeatConfig&, const HeatConfig&) = default;
};

struct MigrationConfig {
  bool enabled = false;  ///< experts move while the cluster serves; needs more than one GPU
  friend bool operator==(const MigrationConfig&, const MigrationConfig&) = default;
};

struct SecurityConfig {
  bool curve = true;           ///< false: the plain wire, loopback hosts only
  std::filesystem::path keys;  ///< folder of the cluster's keys; empty: the user's state folder
  friend bool operator==(const SecurityConfig&, const SecurityConfig&) = default;
};

struct TransportConfig {
  gpu::BulkTransport bulk = gpu::BulkTransport::kAuto;
  std::size_t inbox_bytes = std::size_t{4} << 20;
  std::string ucx_tls;
  friend bool operator==(const TransportConfig&, const TransportConfig&) = default;
};

struct LimitsConfig {
  std::uint32_t max_tokens_per_pass = 256;  ///< per rank; more wait for the next pass
  std::uint32_t max_rows_per_round = 4096;  ///< per rank; a step with more is split into rounds
  std::uint32_t max_queued_tokens = 65536;  ///< per door; beyond it a Submit is refused with kLimit
  std::uint32_t max_request_tokens = 16384;
  std::uint32_t exchange_timeout_ms = 20000;  ///< deadline of one all-to-all
  std::uint32_t request_timeout_ms = 60000;   ///< deadline of one client request
  std::uint32_t join_timeout_ms = 120000;     ///< all nodes must have joined and loaded by then
  std::uint32_t heartbeat_interval_ms = 200;
  std::uint32_t heartbeat_limit_ms = 5000;    ///< silence after which a node is suspected
  std::uint32_t shutdown_timeout_ms = 10000;  ///< then processes are killed
  friend bool operator==(const LimitsConfig&, const LimitsConfig&) = default;
};

struct TelemetryConfig {
  std::string log_level = "info";  ///< trace, debug, info, warn, error
  friend bool operator==(const TelemetryConfig&, const TelemetryConfig&) = default;
};

struct LaunchConfig {
  std::string command;  ///< template for nodes on other hosts, with {host}, {name} and {command}; empty: local exec
  friend bool operator==(const LaunchConfig&, const LaunchConfig&) = default;
};

/// Where a run's tokens get their experts from. All but kGate send routes along; kGate leaves them to the model's gate.
enum class WorkloadKind { kExplicit, kStatistics, kZipf, kGate };

struct WorkloadConfig {
  WorkloadKind kind = WorkloadKind::kGate;
  std::filesystem::path file;  ///< kStatistics: table of expert frequencies; kExplicit: routes
  std::vector<std::string>
      domains;  ///< kStatistics: domains in the order they come, each an equal part of the run; empty: all
  std::uint64_t tokens = 20000;
  std::uint32_t streams = 16;
  std::uint32_t tokens_per_request = 32;
  std::uint32_t in_flight = 64;  ///< requests under way at once, over all streams
  double zipf_exponent = 1.0;
  double zipf_drift = 0.0;         ///< ranks by which the hot set moves per 1000 tokens
  std::filesystem::path arrivals;  ///< CSV of times and token counts; empty: as fast as answers come
  double arrivals_speed = 1.0;     ///< replay that much faster
  std::uint64_t seed = 1;
  /// kExplicit without a file: routes written as a formula over token number i: expert = (i + offset[j]) mod experts.
  std::vector<std::uint32_t> route_offsets;
  std::vector<float> route_weights;
  friend bool operator==(const WorkloadConfig&, const WorkloadConfig&) = default;
};

/// The effective config: every key with its value, defaults filled in, overrides applied, checked.
struct Config {
  std::filesystem::path file;
  std::string name = "troupe";
  scheduling::ModelShape model;
  std::vector<NodeConfig> nodes;
  std::string coordinator_host = "127.0.0.1";
  std::uint16_t coordinator_port = 0;
  std::filesystem::path ledger;  ///< empty: in the run's own temporary folder
  TransportConfig transport;
  PlacementConfig placement;
  scheduling::Capacity capacity;
  HeatConfig heat;
  MigrationConfig migration;
  SecurityConfig security;
  LimitsConfig limits;
  TelemetryConfig telemetry;
  LaunchConfig launch;
  WorkloadConfig workload;

  std::uint32_t total_gpus() const;
  /// Slots per layer on each GPU, in node and GPU order; NodeId is the index of the node. A slots_per_gpu of 0 is
  /// resolved here: the least equal number that, beside the nodes with a number of their own, holds every expert once.
  std::vector<scheduling::GpuSlots> gpu_slots() const;
  friend bool operator==(const Config& a, const Config& b);
};

/// What the command line changes. Applied in this order: nodes, gpus, set; a later `set` of a key wins.
struct Overrides {
  std::optional<std::uint32_t>
      nodes;  ///< --nodes: the first so many, or more, made after the last one: names and ports count up
  std::optional<std::uint32_t> gpus;  ///< --gpus: per node
  /// --set key=value, as in "limits.max_tokens_per_pass=64" or "nodes.0.gpus=2". The value is TOML; what is no TOML
  /// value is taken as a string, so that device=cuda needs no quotes.
  std::vector<std::string> set;
};

/// Reads, overrides, checks. Errors (kBadConfig) name file, line, key, value and the nearest valid one; all that are
/// wrong are listed, one a line. Unknown, ineffective and contradictory keys are errors (C38).
Result<Config> load_config(const std::filesystem::path& file, const Overrides& overrides = {});
/// The same from text (a node gets its config so); `file` is for messages and for paths relative to it.
Result<Config> parse_config(std::string_view text, const std::filesystem::path& file, const Overrides& overrides = {});

/// The effective config as TOML, complete and canonical: parse_config of it gives an equal Config. Keys that have no
/// effect in this config (zipf_exponent of a workload of another kind) are left out, since the reader refuses them.
/// Paths are absolute.
std::string to_toml(const Config& config);
/// XXH3 (64 bits) of what nodes and coordinator must agree on and compare on joining: the cluster's name, the model,
/// every node's name, GPUs and slots, placement, capacity, transport and limits. Hosts, ports, paths and the workload
/// are not part of it.
std::uint64_t plan_digest(const Config& config);

/// Is this a name or address of the machine's own loopback: localhost, ::1, 127.x.y.z? Only there is the plain wire
/// allowed, and nodes there are started directly.
bool is_loopback(std::string_view host);

/// Can this build run nodes with device = "cuda"? If not, a config that asks for it is refused.
bool cuda_backend_available();
/// Can this build move experts while it serves? If not, migration.enabled = true is refused rather than ignored.
bool migration_available();

/// The table of docs/config.md: every key with type, range, default and meaning, in Markdown. A test holds the document
/// to it.
std::string config_reference();

/// What `troupe check` prints: nodes, GPUs and ports; which expert in which slot of which GPU; memory per GPU; what is
/// on and off. Text for a person, or JSON.
Result<std::string> describe_plan(const Config& config, bool json);

}  // namespace troupe::cluster
