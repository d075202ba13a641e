#include <utility>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "actors/membership.hpp"
#include "actors/node.hpp"
#include "cluster/logger.hpp"
#include "cluster/process.hpp"
#include "cluster/sqlite_ledger.hpp"
#include "cluster/stop_signal.hpp"

namespace troupe::cluster {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

constexpr milliseconds kBootstrapDeadline{30000};
constexpr milliseconds kFlush{500};

void say(const json& event) {
  write_event(event.dump(-1, ' ', false, json::error_handler_t::replace));
}

void say_event(const actors::ClusterEvent& event) {
  if (const auto* serves = std::get_if<actors::ClusterServes>(&event)) {
    json nodes = json::array();
    for (const messages::Member& member : serves->view.members) {
      nodes.push_back({{"node", member.node},
                       {"door", member.door_endpoint},
                       {"key", member.control_key},
                       {"gpus", member.gpus.size()}});
    }
    say({{"event", "serving"}, {"view", serves->view.view.value}, {"epoch", serves->epoch.value}, {"nodes", nodes}});
  } else if (const auto* joined = std::get_if<actors::NodeJoined>(&event)) {
    say({{"event", "joined"}, {"node", joined->node}, {"incarnation", joined->incarnation.value}});
  } else if (const auto* failed = std::get_if<actors::ClusterFailed>(&event)) {
    say({{"event", "failed"}, {"code", static_cast<int>(failed->error.code)}, {"message", failed->error.message}});
  }
}

Result<void> run(const Bootstrap& bootstrap, const Config& config, const actors::Log& log) {
  Once<Result<void>> ended;
  std::mutex membership_mutex;
  caf::actor membership;
  const StopWatch stop(true, [&](const std::string& why) {
    log(actors::LogLevel::kDebug, "stopping: " + why);
    ended.give({});
  });

  const std::filesystem::path file =
      config.ledger.empty() ? std::filesystem::path(bootstrap.run_folder) / "ledger.sqlite" : config.ledger;
  auto opened = open_ledger(file);
  if (!opened) return tl::unexpected(opened.error());
  const std::shared_ptr<actors::Ledger> ledger = std::move(*opened);

  actors::System system;
  auto directory = std::make_shared<actors::Directory>();
  auto identity = std::make_shared<actors::Identity>();
  identity->node = actors::kCoordinator;
  ControlPlane control(system, directory, identity, log);
  WireOptions wire;
  wire.self = actors::kCoordinator;
  wire.bind_host = bind_address(config.coordinator_host);
  wire.port = config.coordinator_port;
  wire.keys = bootstrap.keys;
  wire.allowed_keys = bootstrap.allowed;
  wire.log = [log](std::string_view text) { log(actors::LogLevel::kWarn, text); };
  if (auto done = control.start(wire); !done) return fail_in("coordinator port", done.error());

  actors::PlacementOptions placement;
  placement.shape = config.model;
  placement.slots = config.gpu_slots();
  placement.order = config.placement.order;
  placement.half_life_windows = config.heat.half_life_windows;
  placement.imbalance_threshold = config.heat.imbalance_threshold;
  placement.ledger = ledger;
  placement.directory = directory;
  placement.identity = identity;
  placement.log = log;
  caf::actor manager = actors::spawn_placement_manager(system.caf(), placement);
  directory->add(actors::kCoordinator, actors::kPlacement, manager);

  actors::MembershipOptions options;
  for (const NodeConfig& node : config.nodes) options.nodes.push_back(node.name);
  options.plan_digest = plan_digest(config);
  options.max_tokens_per_pass = config.limits.max_tokens_per_pass;
  options.heartbeat_limit = milliseconds{config.limits.heartbeat_limit_ms};
  options.join_timeout = milliseconds{config.limits.join_timeout_ms};
  options.ledger = ledger;
  options.directory = directory;
  options.identity = identity;
  options.connect = [&](const std::string& name, const std::string& endpoint, const std::string& key) {
    return control.wire().connect(name, endpoint, key);
  };
  options.on_event = [&](const actors::ClusterEvent& event) {
    say_event(event);
    if (const auto* failed = std::get_if<actors::ClusterFailed>(&event)) ended.give(tl::unexpected(failed->error));
  };
  options.log = log;
  membership = actors::spawn_membership(system.caf(), options);
  directory->add(actors::kCoordinator, actors::kMembership, membership);

  std::string endpoint = control.wire().endpoint();
  if (bind_address(config.coordinator_host) == "0.0.0.0" && config.coordinator_host != "0.0.0.0") {
    endpoint = "tcp://" + config.coordinator_host + endpoint.substr(endpoint.rfind(':'));
  }
  log(actors::LogLevel::kInfo, "listening on " + endpoint + ", ledger " + file.string());
  say({{"event", "listening"}, {"endpoint", endpoint}});

  Result<void> how = ended.wait();
  actors::stop_cluster(system.caf(), membership, how ? "the cluster is stopping" : how.error().message);
  directory->remove(actors::kCoordinator, actors::kMembership);
  directory->remove(actors::kCoordinator, actors::kPlacement);
  if (auto done =
          actors::stop_actors(system.caf(), {std::exchange(membership, nullptr), std::exchange(manager, nullptr)},
                              milliseconds{config.limits.shutdown_timeout_ms});
      !done && how) {
    how = done;
  }
  control.stop(kFlush);
  return how;
}

}  // namespace

int run_coordinator_process() {
  block_stop_signals();
  auto bootstrap = read_bootstrap(STDIN_FILENO, kBootstrapDeadline);
  if (!bootstrap) {
    make_logger("error", "")(actors::LogLevel::kError, bootstrap.error().message);
    return 2;
  }
  auto config = parse_config(bootstrap->config_toml, bootstrap->config_file);
  if (!config) {
    make_logger("error", "")(actors::LogLevel::kError, config.error().message);
    return 2;
  }
  const actors::Log log = make_logger(config->telemetry.log_level, "");
  const auto done = run(*bootstrap, *config, log);
  if (done) return 0;
  say({{"event", "failed"}, {"code", static_cast<int>(done.error().code)}, {"message", done.error().message}});
  log(actors::LogLevel::kError, done.error().message);
  return 1;
}

}  // namespace troupe::cluster
