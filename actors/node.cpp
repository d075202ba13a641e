#include "actors/node.hpp"

#include <optional>
#include <set>
#include <utility>

#include <caf/event_based_actor.hpp>
#include <caf/exit_reason.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>
#include <caf/stateful_actor.hpp>

#include "actors/door.hpp"
#include "actors/gpu.hpp"
#include "actors/heat_reporter.hpp"
#include "actors/local_messages.hpp"
#include "actors/unexpected.hpp"

namespace troupe::actors {
namespace {

struct JoinTick {};

}  // namespace
}  // namespace troupe::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::JoinTick)

namespace troupe::actors {
namespace {

struct NodeState {
  static constexpr const char* name = "troupe.node";
  /// A Join that finds no coordinator yet is said again; repeats are recognised by the start nonce.
  static constexpr std::chrono::milliseconds kJoinAgain{500};

  caf::event_based_actor* self;
  NodeOptions options;
  bool accepted = false;
  bool ended = false;
  NodeId id;
  Incarnation incarnation;
  std::optional<messages::ViewPublished> view;
  std::optional<messages::EpochPublished> epoch;
  std::set<std::uint32_t> ready;
  bool prepared = false;

  explicit NodeState(caf::event_based_actor* s) : self(s) {}

  const std::string& node() const { return options.join.node; }

  std::uint32_t gpu_count() const { return static_cast<std::uint32_t>(options.endpoints.size()); }
  caf::actor gpu(std::uint32_t number) const { return options.directory->find_local(node(), gpu_name(number)); }

  void log(LogLevel level, const std::string& text) const {
    if (options.log) options.log(level, text);
  }

  void end(Result<void> how) {
    if (ended) return;
    ended = true;
    if (const caf::actor door = options.directory->find_local(node(), kDoor)) {
      self->send(door, DoorClosed{how ? Error{ErrorCode::kAborted, "the cluster is stopping"} : how.error()});
    }
    if (options.ended) options.ended(std::move(how));
  }

  void say_join() {
    if (accepted || ended) return;
    if (const caf::actor membership = options.directory->find(kCoordinator, kMembership))
      self->send(membership, options.join);
    self->delayed_send(self, kJoinAgain, JoinTick{});
  }

  void on_accepted(const messages::JoinAccepted& m) {
    if (accepted || m.node != node() || m.start_nonce != options.join.start_nonce) return;
    accepted = true;
    id = m.node_id;
    incarnation = m.incarnation;
    options.identity->incarnation = m.incarnation.value;
    log(LogLevel::kInfo,
        "joined as node " + std::to_string(id.value) + ", incarnation " + std::to_string(incarnation.value));
    if (options.joined) options.joined(m.incarnation);
    if (const caf::actor heat = options.directory->find_local(node(), kHeat))
      self->send(heat, HeatIdentity{id, incarnation});
  }

  void on_view(const messages::ViewPublished& m) {
    if (view && m.view <= view->view) return;
    for (const messages::Member& member : m.members) {
      if (member.node == node() || !options.connect) continue;
      if (auto done = options.connect(member.node, member.control_endpoint, member.control_key); !done) {
        return leave(Error{done.error().code, "cannot reach node " + member.node + ": " + done.error().message});
      }
    }
    view = m;
    options.identity->view = m.view.value;
    if (options.view_known) options.view_known(m);
    prepare();
  }

  void on_epoch(const messages::EpochPublished& m) {
    if (epoch && m.epoch <= epoch->epoch) return;
    auto placement = scheduling::from_message(m);
    if (placement) {
      if (auto checked = scheduling::check_placement(options.shape, options.cluster_slots, *placement); !checked) {
        placement = tl::unexpected(checked.error());
      }
    }
    if (!placement)
      return leave(
          Error{placement.error().code, "epoch " + std::to_string(m.epoch.value) + ": " + placement.error().message});
    epoch = m;
    options.identity->epoch = m.epoch.value;
    prepare();
  }

  void prepare() {
    if (prepared || !view || !epoch) return;
    prepared = true;
    std::uint32_t rank = 0;
    for (const messages::Member& member : view->members) {
      for (std::uint32_t g = 0; g < member.gpus.size(); ++g, ++rank) {
        if (member.node == node() && g < gpu_count()) self->send(gpu(g), PrepareGpu{*view, Rank{rank}, *epoch});
      }
    }
  }

  void on_gpu_ready(const GpuReady& m) {
    ready.insert(m.gpu);
    if (ready.size() < gpu_count()) return;
    // The door opens before anyone can hear that the cluster serves: a client that has heard of it is never turned
    // away. What comes until the last node is ready waits in the gpu actors.
    if (const caf::actor door = options.directory->find_local(node(), kDoor))
      self->send(door, DoorOpened{m.view, m.epoch});
    log(LogLevel::kInfo, "all experts loaded, bulk channels up: ready");
    if (const caf::actor membership = options.directory->find(kCoordinator, kMembership)) {
      self->send(membership, messages::NodeReady{node(), m.view, m.epoch});
    }
  }

  void on_serving(const messages::ServingStarted& m) {
    for (std::uint32_t g = 0; g < gpu_count(); ++g) self->send(gpu(g), m);
  }

  /// This node cannot go on: says so to the membership, then ends.
  void leave(Error error) {
    if (ended) return;
    log(LogLevel::kError, error.message);
    if (const caf::actor membership = options.directory->find(kCoordinator, kMembership)) {
      self->send(membership, messages::Leave{node(), error.message});
    }
    end(tl::unexpected(std::move(error)));
  }

  caf::behavior make_behavior() {
    self->set_default_handler(count_unexpected);
    return {
        [this](const JoinTick&) { say_join(); },
        [this](const messages::JoinAccepted& m) { on_accepted(m); },
        [this](const messages::Reject& m) {
          const auto code = static_cast<ErrorCode>(m.code);
          log(LogLevel::kError, m.about + " was refused: " + m.message);
          if (m.about == messages::Join::kName) end(fail(code, "the coordinator refused to let it join: " + m.message));
        },
        [this](const messages::ViewPublished& m) { on_view(m); },
        [this](const messages::EpochPublished& m) { on_epoch(m); },
        [this](const messages::ServingStarted& m) { on_serving(m); },
        [this](const GpuReady& m) { on_gpu_ready(m); },
        [this](const GpuFailed& m) { leave(m.error); },
        [this](const messages::Shutdown& m) {
          log(LogLevel::kDebug, "told to stop: " + m.reason);
          end({});
        },
        [this](const StopNode& m) {
          if (ended) return;
          if (const caf::actor membership = options.directory->find(kCoordinator, kMembership)) {
            self->send(membership, messages::Leave{node(), m.reason});
          }
          end({});
        },
        [this](const messages::Ping& m) { return messages::Pong{m.cookie}; },
    };
  }
};

}  // namespace

NodeActors spawn_node(caf::actor_system& system, NodeOptions options) {
  NodeActors actors;
  const std::string name = options.join.node;
  Directory& directory = *options.directory;
  const auto count = static_cast<std::uint32_t>(options.endpoints.size());
  const caf::actor node = system.spawn([options](caf::stateful_actor<NodeState>* self) {
    self->state.options = options;
    return self->state.make_behavior();
  });
  for (std::uint32_t g = 0; g < count; ++g) {
    GpuOptions gpu_options;
    gpu_options.node = name;
    gpu_options.gpu = g;
    gpu_options.shape = options.shape;
    gpu_options.runner = options.runner;
    gpu_options.max_tokens_per_pass = options.join.max_tokens_per_pass;
    gpu_options.connect_timeout = options.connect_timeout;
    gpu_options.endpoint = options.endpoints[g];
    gpu_options.weights = options.weights;
    gpu_options.directory = options.directory;
    gpu_options.log = options.log;
    actors.gpus.push_back(spawn_gpu(system, node, std::move(gpu_options)));
    directory.add(name, gpu_name(g), actors.gpus.back());
  }
  actors.heat = spawn_heat_reporter(system, name, count, options.heat_window_passes, options.shape, options.directory);
  directory.add(name, kHeat, actors.heat);
  actors.door = spawn_door(
      system, actors.gpus,
      DoorOptions{name, options.shape, options.max_queued_tokens, options.max_request_tokens, options.refused_frames});
  directory.add(name, kDoor, actors.door);
  actors.node = node;
  directory.add(name, kNode, node);
  // It joins only now, when all its actors can be found.
  caf::anon_send(node, JoinTick{});
  return actors;
}

Result<void> stop_actors(caf::actor_system& system, std::vector<caf::actor> actors,
                         std::chrono::milliseconds deadline) {
  caf::scoped_actor self{system, true};
  std::size_t left = 0;
  for (const caf::actor& actor : actors) {
    if (!actor) continue;
    self->monitor(actor);
    ++left;
    self->send_exit(actor, caf::exit_reason::user_shutdown);
  }
  actors.clear();
  const auto until = std::chrono::steady_clock::now() + deadline;
  while (left > 0) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= until)
      return fail(ErrorCode::kDeadline,
                  std::to_string(left) + " actors did not end in " + std::to_string(deadline.count()) + " ms");
    self->receive([&](const caf::down_msg&) { --left; },
                  caf::after(std::chrono::duration_cast<std::chrono::milliseconds>(until - now)) >> [] {});
  }
  return {};
}

void close_door(caf::actor_system& system, const caf::actor& door, const Error& why) {
  constexpr std::chrono::seconds kDeadline{2};
  caf::scoped_actor self{system, true};
  self->request(door, kDeadline, DoorClosed{why}).receive([] {}, [](const caf::error&) {});
}

Result<void> stop_node(caf::actor_system& system, NodeActors& actors, Directory& directory, const std::string& name,
                       std::chrono::milliseconds deadline) {
  for (const char* who : {kNode, kDoor, kHeat}) directory.remove(name, who);
  for (std::uint32_t g = 0; g < actors.gpus.size(); ++g) directory.remove(name, gpu_name(g));
  // The door first, so that no more work comes; the gpu actors take their experts with them.
  std::vector<caf::actor> all{std::exchange(actors.door, nullptr), std::exchange(actors.node, nullptr),
                              std::exchange(actors.heat, nullptr)};
  all.insert(all.end(), actors.gpus.begin(), actors.gpus.end());
  actors.gpus.clear();
  return stop_actors(system, std::move(all), deadline);
}

}  // namespace troupe::actors
