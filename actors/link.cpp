#include "actors/link.hpp"

#include <chrono>
#include <deque>
#include <utility>
#include <variant>

#include <caf/event_based_actor.hpp>
#include <caf/send.hpp>
#include <caf/stateful_actor.hpp>

#include "actors/local_messages.hpp"
#include "actors/unexpected.hpp"

namespace troupe::actors {
namespace {

struct LinkState {
  static constexpr const char* name = "troupe.link";
  /// Frames kept while the wire is full. Beyond it the peer is as good as gone; membership will say so.
  static constexpr std::size_t kMaxKept = 4096;
  static constexpr std::chrono::milliseconds kRetryAfter{2};

  caf::event_based_actor* self;
  std::string peer;
  SendFrame send;
  std::shared_ptr<const Identity> identity;
  Log log;
  std::deque<Outbound> kept;
  bool retry_set = false;
  std::uint64_t lost = 0;

  explicit LinkState(caf::event_based_actor* s) : self(s) {}

  Result<void> try_send(const Outbound& m) {
    messages::Frame frame;
    frame.envelope.from = identity->node;
    frame.envelope.to = m.to;
    frame.envelope.incarnation = Incarnation{identity->incarnation.load()};
    frame.envelope.view = View{identity->view.load()};
    frame.envelope.epoch = Epoch{identity->epoch.load()};
    frame.payload = m.payload;
    return send(peer, std::move(frame), std::holds_alternative<messages::HeatReport>(m.payload));
  }

  void on_outbound(Outbound& m) {
    // Order within the link: nothing overtakes what is kept.
    if (kept.empty()) {
      auto sent = try_send(m);
      if (sent || std::holds_alternative<messages::HeatReport>(m.payload)) return;
    } else if (std::holds_alternative<messages::HeatReport>(m.payload)) {
      return;
    }
    if (kept.size() >= kMaxKept) {
      if (++lost == 1 && log) {
        log(LogLevel::kError, "link to " + peer + ": " + std::to_string(kMaxKept) +
                                  " messages wait, more are lost; the peer does not read");
      }
      return;
    }
    kept.push_back(std::move(m));
    set_retry();
  }

  void set_retry() {
    if (retry_set) return;
    retry_set = true;
    self->delayed_send(self, kRetryAfter, RetryTick{});
  }

  void on_retry() {
    retry_set = false;
    while (!kept.empty() && try_send(kept.front())) kept.pop_front();
    if (!kept.empty()) set_retry();
  }

  caf::behavior make_behavior() {
    self->set_default_handler(count_unexpected);
    return {
        [this](Outbound& m) { on_outbound(m); },
        [this](const RetryTick&) { on_retry(); },
    };
  }
};

/// What may be sent to a remote actor: every control message. Client messages stay between a door and its clients.
struct ProxyState {
  static constexpr const char* name = "troupe.proxy";
  caf::event_based_actor* self;
  caf::actor link;
  std::string to;

  explicit ProxyState(caf::event_based_actor* s) : self(s) {}

  template <class Message>
  auto forward() {
    return [this](const Message& m) { self->send(link, Outbound{to, m}); };
  }

  caf::behavior make_behavior() {
    self->set_default_handler(count_unexpected);
    return {forward<messages::Join>(),       forward<messages::JoinAccepted>(),   forward<messages::Reject>(),
            forward<messages::Leave>(),      forward<messages::ViewPublished>(),  forward<messages::EpochPublished>(),
            forward<messages::NodeReady>(),  forward<messages::ServingStarted>(), forward<messages::PassOpened>(),
            forward<messages::HeatReport>(), forward<messages::Shutdown>(),       forward<messages::Ping>(),
            forward<messages::Pong>()};
  }
};

}  // namespace

caf::actor spawn_link(caf::actor_system& system, std::string peer, SendFrame send,
                      std::shared_ptr<const Identity> identity, Log log) {
  return system.spawn([=](caf::stateful_actor<LinkState>* self) {
    LinkState& state = self->state;
    state.peer = peer;
    state.send = send;
    state.identity = identity;
    state.log = log;
    return state.make_behavior();
  });
}

caf::actor spawn_proxy(caf::actor_system& system, const caf::actor& link, std::string name) {
  return system.spawn([link, name](caf::stateful_actor<ProxyState>* self) {
    self->state.link = link;
    self->state.to = name;
    return self->state.make_behavior();
  });
}

Result<void> deliver(Directory& directory, const std::string& here, messages::Frame frame,
                     std::uint64_t known_incarnation) {
  const messages::Envelope& envelope = frame.envelope;
  if (known_incarnation != 0 && envelope.incarnation.value != 0 && envelope.incarnation.value < known_incarnation) {
    return fail(ErrorCode::kStale, "frame of " + envelope.from + ", incarnation " +
                                       std::to_string(envelope.incarnation.value) + ": incarnation " +
                                       std::to_string(known_incarnation) + " is known");
  }
  const caf::actor actor = directory.find_local(here, envelope.to);
  if (!actor)
    return fail(ErrorCode::kUnavailable,
                "frame of " + envelope.from + " for \"" + envelope.to + "\": no such actor here");
  std::visit([&](auto& payload) { caf::anon_send(actor, std::move(payload)); }, frame.payload);
  return {};
}

}  // namespace troupe::actors
