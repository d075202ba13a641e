#include "actors/membership.hpp"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include <caf/event_based_actor.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>
#include <caf/stateful_actor.hpp>

#include "actors/local_messages.hpp"
#include "actors/unexpected.hpp"
#include "scheduling/join_machine.hpp"

namespace troupe::actors {
namespace {

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

struct MembershipState {
  static constexpr const char* name = "troupe.membership";
  caf::event_based_actor* self;
  MembershipOptions options;
  std::unique_ptr<scheduling::JoinMachine> machine;
  std::unique_ptr<scheduling::BeatWatch> beats;
  std::set<std::string> connected;
  std::uint64_t started_ns = 0;
  Incarnation last_incarnation;
  bool over = false;

  explicit MembershipState(caf::event_based_actor* s) : self(s) {}

  void log(LogLevel level, const std::string& text) const {
    if (options.log) options.log(level, text);
  }

  void tell(ClusterEvent event) {
    if (options.on_event) options.on_event(std::move(event));
  }

  caf::actor node_actor(const std::string& node) const { return options.directory->find(node, kNode); }

  void fail_cluster(Error error) {
    if (over) return;
    over = true;
    log(LogLevel::kError, error.message);
    for (const std::string& node : connected) self->send(node_actor(node), messages::Shutdown{error.message});
    tell(ClusterFailed{std::move(error)});
  }

  void on_join(const messages::Join& m) {
    if (over) return;
    // Only names of the config get this far over the wire, each under its own key; still, never connect to a stranger.
    if (std::find(options.nodes.begin(), options.nodes.end(), m.node) == options.nodes.end()) {
      log(LogLevel::kWarn, "a node named \"" + m.node + "\" wants to join; the config has none of that name");
      return;
    }
    if (options.connect) {
      if (auto done = options.connect(m.node, m.control_endpoint, m.control_key); !done) {
        log(LogLevel::kWarn, "node " + m.node + " wants to join, but cannot be reached at " + m.control_endpoint +
                                 ": " + done.error().message);
        return;
      }
    }
    connected.insert(m.node);
    carry_out(machine->on_join(m));
  }

  void on_ready(const messages::NodeReady& m) { carry_out(machine->on_ready(m)); }
  void on_leave(const messages::Leave& m) {
    if (!over) carry_out(machine->on_leave(m));
  }

  void carry_out(std::vector<scheduling::JoinDecision> decisions) {
    for (scheduling::JoinDecision& decision : decisions) {
      std::visit([this](auto& d) { act(d); }, decision);
      if (over) return;
    }
  }

  void act(scheduling::SendTo& d) {
    if (const auto* accepted = std::get_if<messages::JoinAccepted>(&d.message)) {
      // In the ledger before the node hears of it: an incarnation is never issued twice.
      if (accepted->incarnation > last_incarnation) {
        last_incarnation = accepted->incarnation;
        if (auto done = options.ledger->write_incarnation(accepted->node, accepted->incarnation); !done)
          return fail_cluster(done.error());
        log(LogLevel::kInfo,
            "node " + accepted->node + " joined, incarnation " + std::to_string(accepted->incarnation.value));
        tell(NodeJoined{accepted->node, accepted->incarnation});
      }
      beats->on_beat(accepted->node, accepted->incarnation, now_ns());
    } else if (const auto* reject = std::get_if<messages::Reject>(&d.message)) {
      log(LogLevel::kWarn, "node " + d.node + ": " + reject->about + " refused: " + reject->message);
    }
    const caf::actor node = node_actor(d.node);
    if (!node) return;
    std::visit([&](auto& message) { self->send(node, std::move(message)); }, d.message);
  }

  void act(scheduling::IssueView& d) {
    if (auto done = options.ledger->write_view(d.view); !done) return fail_cluster(done.error());
    options.identity->view = d.view.view.value;
    std::string names;
    for (const messages::Member& member : d.view.members) {
      names += (names.empty() ? "" : ", ") + member.node;
      self->send(node_actor(member.node), d.view);
    }
    log(LogLevel::kInfo, "view " + std::to_string(d.view.view.value) + ": " + names);
    if (const caf::actor manager = options.directory->find_local(kCoordinator, kPlacement))
      self->send(manager, PlanForView{d.view});
  }

  void act(scheduling::StartServing& d) {
    for (const messages::Member& member : machine->view().members) self->send(node_actor(member.node), d.message);
    log(LogLevel::kInfo, "all nodes are ready: serving view " + std::to_string(d.message.view.value) + ", epoch " +
                             std::to_string(d.message.epoch.value));
    tell(ClusterServes{machine->view(), d.message.epoch});
  }

  void act(scheduling::GiveUp& d) { fail_cluster(d.error); }

  void on_tick() {
    if (over) return;
    if (options.heartbeat_limit.count() > 0) {
      for (const auto& silent : beats->silent(now_ns()))
        carry_out(machine->on_silent(silent.node, silent.silent_ns / 1'000'000));
    }
    const auto limit =
        static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(options.join_timeout).count());
    if (!over && !machine->serving() && now_ns() - started_ns > limit) {
      std::string names;
      for (const std::string& node : machine->missing()) names += (names.empty() ? "" : ", ") + node;
      fail_cluster({ErrorCode::kDeadline, "not joined and ready within limits.join_timeout_ms = " +
                                              std::to_string(options.join_timeout.count()) + ": " + names});
    }
    if (!over) self->delayed_send(self, kTick, BeatTick{});
  }

  void on_stop(const StopCluster& m) {
    if (over) return;
    over = true;
    for (const std::string& node : connected) self->send(node_actor(node), messages::Shutdown{m.reason});
    tell(ClusterStopped{});
  }

  caf::behavior make_behavior(MembershipOptions opts) {
    options = std::move(opts);
    self->set_default_handler(count_unexpected);
    auto last = options.ledger->last();
    if (!last) {
      fail_cluster(last.error());
      last = Ledger::Last{};
    }
    last_incarnation = last->incarnation;
    machine = std::make_unique<scheduling::JoinMachine>(options.nodes, options.plan_digest, options.max_tokens_per_pass,
                                                        last->view, last->incarnation);
    beats = std::make_unique<scheduling::BeatWatch>(static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(options.heartbeat_limit).count()));
    started_ns = now_ns();
    self->delayed_send(self, kTick, BeatTick{});
    return {
        [this](const messages::Join& m) { on_join(m); },
        [this](const messages::NodeReady& m) { on_ready(m); },
        [this](const messages::Leave& m) { on_leave(m); },
        [this](const messages::Heartbeat& m) { beats->on_beat(m.node, m.incarnation, now_ns()); },
        [this](const EpochIssued& m) {
          if (!m.ok) fail_cluster(m.error);
        },
        [this](const BeatTick&) { on_tick(); },
        [this](const StopCluster& m) { on_stop(m); },
        [this](const messages::Ping& m) { return messages::Pong{m.cookie}; },
    };
  }

  static constexpr std::chrono::milliseconds kTick{100};
};

}  // namespace

void stop_cluster(caf::actor_system& system, const caf::actor& membership, const std::string& reason) {
  constexpr std::chrono::seconds kDeadline{2};
  caf::scoped_actor self{system, true};
  self->request(membership, kDeadline, StopCluster{reason}).receive([] {}, [](const caf::error&) {});
}

caf::actor spawn_membership(caf::actor_system& system, MembershipOptions options) {
  return system.spawn(
      [options](caf::stateful_actor<MembershipState>* self) { return self->state.make_behavior(options); });
}

}  // namespace troupe::actors
