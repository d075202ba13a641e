#include <algorithm>
#include <random>
#include <utility>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "actors/asker.hpp"
#include "actors/node.hpp"
#include "cluster/logger.hpp"
#include "cluster/process.hpp"
#include "cluster/stop_signal.hpp"

namespace troupe::cluster {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBootstrapDeadline{30000};
constexpr milliseconds kFlush{500};

/// The door's own wire: clients in, answers out.
class DoorWire {
 public:
  DoorWire(std::string node, milliseconds timeout) : node_(std::move(node)), timeout_(timeout) {}

  Result<void> start(WireOptions options) {
    auto wire = Wire::start(std::move(options), [this](messages::Frame frame, const PeerHandle& from) {
      on_frame(std::move(frame), from);
    });
    if (!wire) return tl::unexpected(wire.error());
    wire_ = std::move(*wire);
    return {};
  }
  Wire& wire() { return *wire_; }
  /// From now on questions go to this door.
  void open(actors::System& system, const caf::actor& door) {
    const std::lock_guard lock(mutex_);
    asker_ = std::make_unique<actors::Asker>(system.caf(), door);
  }
  void close() {
    std::unique_ptr<actors::Asker> asker;
    {
      const std::lock_guard lock(mutex_);
      asker = std::move(asker_);
    }
  }
  void stop(milliseconds linger) {
    close();
    if (wire_) wire_->stop(linger);
  }

 private:
  void on_frame(messages::Frame frame, const PeerHandle& from) {
    if (const auto* ping = std::get_if<messages::Ping>(&frame.payload))
      return reply(from, messages::Pong{ping->cookie});
    const std::lock_guard lock(mutex_);
    const std::string_view name = messages::payload_name(frame.payload);
    if (auto* submit = std::get_if<messages::Submit>(&frame.payload); submit != nullptr && asker_) {
      asker_->ask(std::move(*submit), timeout_,
                  [this, from](messages::Answer answer) { reply(from, std::move(answer)); });
    } else if (const auto* asked = std::get_if<messages::DoorStatusAsked>(&frame.payload); asked != nullptr && asker_) {
      asker_->ask_status(asked->cookie, timeout_, [this, from](Result<messages::DoorStatus> status) {
        if (status) return reply(from, std::move(*status));
        refuse(from, messages::DoorStatusAsked::kName, status.error().code, status.error().message);
      });
    } else if (name == messages::Submit::kName || name == messages::DoorStatusAsked::kName) {
      refuse(from, name, ErrorCode::kUnavailable, "the node is starting or stopping");
    } else {
      refuse(from, name, ErrorCode::kBadInput, "a door takes Submit, DoorStatusAsked and Ping");
    }
  }

  void refuse(const PeerHandle& to, std::string_view about, ErrorCode code, const std::string& why) {
    reply(to,
          messages::Reject{std::string(about), static_cast<std::uint16_t>(code), "door of node " + node_ + ": " + why});
  }

  void reply(const PeerHandle& to, messages::Payload payload) {
    messages::Frame frame;
    frame.envelope.from = node_;
    frame.envelope.to = "client";
    frame.payload = std::move(payload);
    // A client that has gone, or does not read, loses its answer: it has the request's id to ask again with.
    (void)wire_->reply(to, std::move(frame));
  }

  std::string node_;
  milliseconds timeout_;
  std::unique_ptr<Wire> wire_;
  std::mutex mutex_;
  std::unique_ptr<actors::Asker> asker_;
};

std::uint64_t random_nonce() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32U) ^ device() ^ static_cast<std::uint64_t>(::getpid());
}

struct NodeProcess {
  Bootstrap bootstrap;
  Config config;
  NodeConfig self;
  std::uint32_t index = 0;
  actors::Log log;

  Result<void> run();
  Result<actors::NodeOptions> make_options(const Wire& control, const Wire& door);
  WireOptions wire_options(std::uint16_t port) const;
};

WireOptions NodeProcess::wire_options(std::uint16_t port) const {
  WireOptions options;
  options.self = self.name;
  options.bind_host = bind_address(self.host);
  options.port = port;
  options.keys = bootstrap.keys;
  options.allowed_keys = bootstrap.allowed;
  options.log = [log = log](std::string_view text) { log(actors::LogLevel::kWarn, text); };
  return options;
}

/// Where others reach a socket that is bound to all interfaces: under the configured host name.
std::string advertised(const std::string& endpoint, const std::string& host) {
  if (bind_address(host) != "0.0.0.0" || host == "0.0.0.0") return endpoint;
  return "tcp://" + host + endpoint.substr(endpoint.rfind(':'));
}

Result<actors::NodeOptions> NodeProcess::make_options(const Wire& control, const Wire& door) {
  actors::NodeOptions options;
  options.join.node = self.name;
  options.join.start_nonce = random_nonce();
  options.join.plan_digest = plan_digest(config);
  options.join.control_endpoint = advertised(control.endpoint(), self.host);
  options.join.control_key = bootstrap.keys.public_key;
  options.join.door_endpoint = advertised(door.endpoint(), self.host);
  options.join.max_tokens_per_pass = config.limits.max_tokens_per_pass;
  gpu::BulkOptions bulk;
  bulk.transport = config.transport.bulk;
  bulk.inbox_bytes = config.transport.inbox_bytes;
  bulk.ucx_tls = config.transport.ucx_tls;
  for (std::uint32_t g = 0; g < self.gpus; ++g) {
    auto endpoint = gpu::make_bulk_endpoint(bulk, bootstrap.bulk_secret);
    if (!endpoint) return fail_in("GPU " + std::to_string(g), endpoint.error());
    options.join.gpus.push_back((*endpoint)->address());
    options.endpoints.push_back(std::move(*endpoint));
  }
  options.shape = config.model;
  options.cluster_slots = config.gpu_slots();
  for (const scheduling::GpuSlots& slots : options.cluster_slots) {
    if (slots.gpu.node.value == index) options.runner.slots_per_layer = slots.slots_per_layer;
  }
  options.runner.capacity = config.capacity;
  options.runner.max_rows_per_round = config.limits.max_rows_per_round;
  options.runner.exchange_timeout = milliseconds{config.limits.exchange_timeout_ms};
  options.max_queued_tokens = config.limits.max_queued_tokens;
  options.max_request_tokens = config.limits.max_request_tokens;
  options.heat_window_passes = config.heat.window_passes;
  options.connect_timeout = milliseconds{config.limits.join_timeout_ms};
  options.weights = gpu::make_synthetic_weights(config.model);
  options.log = log;
  return options;
}

Result<void> NodeProcess::run() {
  Once<Result<void>> ended;
  const StopWatch stop(true, [&](const std::string& why) {
    log(actors::LogLevel::kDebug, "stopping: " + why);
    ended.give({});
  });
  actors::System system;
  auto directory = std::make_shared<actors::Directory>();
  auto identity = std::make_shared<actors::Identity>();
  identity->node = self.name;

  DoorWire door(self.name, milliseconds{config.limits.request_timeout_ms});
  std::unique_ptr<HeartbeatSender> heartbeat;
  std::mutex heartbeat_mutex;
  ControlPlane control(system, directory, identity, log);
  if (auto done = control.start(wire_options(self.control_port)); !done) return fail_in("control port", done.error());
  if (auto done = door.start(wire_options(self.door_port)); !done) return fail_in("door port", done.error());
  if (auto done =
          control.wire().connect(actors::kCoordinator, bootstrap.coordinator_endpoint, bootstrap.coordinator_key);
      !done) {
    return fail_in("coordinator", done.error());
  }

  auto options = make_options(control.wire(), door.wire());
  if (!options) return tl::unexpected(options.error());
  options->directory = directory;
  options->identity = identity;
  options->connect = [&](const std::string& name, const std::string& endpoint, const std::string& key) {
    return control.wire().connect(name, endpoint, key);
  };
  options->view_known = [&](const messages::ViewPublished& view) { control.set_view(view); };
  options->joined = [&](Incarnation incarnation) {
    auto sender =
        HeartbeatSender::start({self.name, incarnation, bootstrap.coordinator_endpoint, bootstrap.coordinator_key,
                                bootstrap.keys, milliseconds{config.limits.heartbeat_interval_ms}});
    if (!sender) return ended.give(tl::unexpected(sender.error()));
    const std::lock_guard lock(heartbeat_mutex);
    heartbeat = std::move(*sender);
  };
  options->ended = [&](Result<void> how) { ended.give(std::move(how)); };
  options->refused_frames = [&] {
    const WireStats a = control.wire().stats();
    const WireStats b = door.wire().stats();
    return a.refused_frames + a.refused_handshakes + b.refused_frames + b.refused_handshakes;
  };
  log(actors::LogLevel::kInfo, "control " + options->join.control_endpoint + ", door " + options->join.door_endpoint);

  actors::NodeActors node = actors::spawn_node(system.caf(), std::move(*options));
  door.open(system, node.door);
  Result<void> how = ended.wait();
  // In order: the door answers what waits, the actors end, then what they used.
  actors::close_door(system.caf(), node.door, how ? Error{ErrorCode::kAborted, "the node is stopping"} : how.error());
  door.close();
  if (auto done =
          actors::stop_node(system.caf(), node, *directory, self.name, milliseconds{config.limits.shutdown_timeout_ms});
      !done && how)
    how = done;
  door.stop(kFlush);
  {
    const std::lock_guard lock(heartbeat_mutex);
    heartbeat.reset();
  }
  control.stop(kFlush);
  return how;
}

}  // namespace

int run_node_process() {
  block_stop_signals();
  auto bootstrap = read_bootstrap(STDIN_FILENO, kBootstrapDeadline);
  if (!bootstrap) {
    make_logger("error", "")(actors::LogLevel::kError, bootstrap.error().message);
    return 2;
  }
  NodeProcess process;
  process.bootstrap = std::move(*bootstrap);
  auto config = parse_config(process.bootstrap.config_toml, process.bootstrap.config_file);
  if (!config) {
    make_logger("error", "")(actors::LogLevel::kError, config.error().message);
    return 2;
  }
  process.config = std::move(*config);
  process.log = make_logger(process.config.telemetry.log_level, "");
  const auto& nodes = process.config.nodes;
  const auto found =
      std::find_if(nodes.begin(), nodes.end(), [&](const NodeConfig& n) { return n.name == process.bootstrap.name; });
  if (found == nodes.end()) {
    process.log(actors::LogLevel::kError, "the config has no node \"" + process.bootstrap.name + "\"");
    return 2;
  }
  process.self = *found;
  process.index = static_cast<std::uint32_t>(found - nodes.begin());
  const auto done = process.run();
  if (done) return 0;
  process.log(actors::LogLevel::kError, done.error().message);
  return 1;
}

}  // namespace troupe::cluster
