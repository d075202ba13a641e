#include "gpu/cpu/shm_meeting.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "gpu/cpu/inbox_channel.hpp"

namespace troupe::gpu::cpu {
namespace {

// Roles of proofs: none can stand for another.
constexpr const char* kChallengeRole = "troupe shm challenge";
constexpr const char* kIntroduceRole = "troupe shm introduce";
constexpr const char* kWelcomeRole = "troupe shm welcome";
constexpr std::size_t kMaxEarly = kMaxRanks;

Error about(Rank rank, const Error& error) {
  return Error{error.code, "rank " + std::to_string(rank.value) + ": " + error.message};
}

}  // namespace

Result<std::unique_ptr<ShmDoor>> ShmDoor::open(const std::string& secret) {
  std::string name;
  auto listener = ShmSocket::listen(name);
  if (!listener) return tl::unexpected(listener.error());
  return std::unique_ptr<ShmDoor>(new ShmDoor(std::move(*listener), std::move(name), secret));
}

ShmMeeting::ShmMeeting(ShmDoor& door, Plan plan) : door_(door), plan_(std::move(plan)) {
  for (const auto& [rank, name] : plan_.peers) {
    Peer peer;
    peer.rank = rank;
    peer.name = name;
    peers_.push_back(std::move(peer));
  }
}

Proof ShmMeeting::prove(const char* role, Packet packet, const Nonce& caller, const Nonce& answerer) const {
  packet.proof = {};
  std::array<std::byte, 2 * sizeof(Nonce) + sizeof(Packet)> bytes;
  std::memcpy(bytes.data(), caller.data(), sizeof(Nonce));
  std::memcpy(bytes.data() + sizeof(Nonce), answerer.data(), sizeof(Nonce));
  std::memcpy(bytes.data() + 2 * sizeof(Nonce), &packet, sizeof packet);
  return door_.secret_.prove(role, bytes);
}

Packet ShmMeeting::introduction(PacketKind kind, const Peer& peer, const Nonce& caller, const Nonce& answerer) const {
  Packet packet;
  packet.kind = kind;
  packet.set(plan_.agreement, plan_.self, peer.rank);
  packet.proof = prove(kind == PacketKind::kIntroduce ? kIntroduceRole : kWelcomeRole, packet, caller, answerer);
  return packet;
}

Result<void> ShmMeeting::step() {
  if (auto ok = answer_callers(); !ok) return ok;
  for (Peer& peer : peers_) {
    if (auto ok = step_peer(peer); !ok) return tl::unexpected(about(peer.rank, ok.error()));
  }
  return {};
}

Result<void> ShmMeeting::answer_callers() {
  for (auto waiting = std::exchange(door_.early_, {}); !waiting.empty(); waiting.pop_front()) {
    EarlyCaller& early = waiting.front();
    auto ok = introduced(std::move(early.socket), std::move(early.introduction), early.theirs, early.ours);
    if (!ok) return ok;
  }
  for (;;) {
    auto caller = door_.listener_.accept();
    if (!caller) return tl::unexpected(caller.error());
    if (!caller->has_value()) break;
    // Strangers may keep calling; the oldest that has said nothing useful makes room. A real peer calls again.
    if (callers_.size() >= 2 * std::size_t{plan_.agreement.ranks} + 64) callers_.pop_front();
    callers_.push_back(Caller{std::move(**caller)});
  }
  for (auto caller = callers_.begin(); caller != callers_.end();) {
    auto keep = answer(*caller);
    if (!keep) return tl::unexpected(keep.error());
    caller = *keep ? std::next(caller) : callers_.erase(caller);
  }
  return {};
}

Result<bool> ShmMeeting::answer(Caller& caller) {
  for (;;) {
    auto received = caller.socket.receive();
    if (!received) return false;  // noise, or gone
    if (!received->has_value()) return true;
    Packet& packet = (*received)->packet;
    if (!caller.greeted) {
      if (packet.kind != PacketKind::kHello) return false;
      caller.greeted = true;
      caller.theirs = packet.nonce;
      caller.ours = make_nonce();
      Packet challenge;
      challenge.kind = PacketKind::kChallenge;
      challenge.nonce = caller.ours;
      challenge.set_text(door_.name_);
      challenge.proof = prove(kChallengeRole, challenge, caller.theirs, caller.ours);
      if (!caller.socket.send(challenge)) return false;
      continue;
    }
    if (packet.kind != PacketKind::kIntroduce ||
        !Secret::equal(packet.proof, prove(kIntroduceRole, packet, caller.theirs, caller.ours)))
      return false;
    auto ok = introduced(std::move(caller.socket), std::move(**received), caller.theirs, caller.ours);
    if (!ok) return tl::unexpected(ok.error());
    return false;
  }
}

void ShmMeeting::refuse(const ShmSocket& socket, ErrorCode code, const std::string& why) const {
  Packet packet;
  packet.kind = PacketKind::kRefuse;
  packet.code = static_cast<std::uint16_t>(code);
  packet.set_text(why);
  socket.send(packet);
}

// The caller has proved that it belongs to the cluster, so what it says about views and sizes is true, if perhaps old.
Result<void> ShmMeeting::introduced(ShmSocket socket, Received introduction, const Nonce& theirs, const Nonce& ours) {
  const Packet& packet = introduction.packet;
  const Agreement agreement = packet.agreement();
  const Rank from(packet.from);
  if (agreement.view < plan_.agreement.view) {
    refuse(socket, ErrorCode::kStale, disagreement(from, plan_.self, agreement, plan_.agreement).message);
    return {};
  }
  if (agreement.view > plan_.agreement.view) {
    Error error = disagreement(plan_.self, from, plan_.agreement, agreement);
    if (door_.early_.size() < kMaxEarly)
      door_.early_.push_back({std::move(socket), std::move(introduction), theirs, ours});
    return tl::unexpected(std::move(error));
  }
  if (agreement != plan_.agreement) {
    Error error = disagreement(plan_.self, from, plan_.agreement, agreement);
    refuse(socket, error.code, error.message);
    return tl::unexpected(std::move(error));
  }
  const auto peer = std::find_if(peers_.begin(), peers_.end(), [&](const Peer& p) { return p.rank == from; });
  if (peer == peers_.end() || from < plan_.self || packet.to != plan_.self.value || peer->link) {
    refuse(socket, ErrorCode::kBadInput,
           "rank " + std::to_string(plan_.self.value) + " does not expect a call from rank " +
               std::to_string(from.value) + " to rank " + std::to_string(packet.to));
    return {};
  }
  if (auto ok = adopt(*peer, introduction); !ok) return tl::unexpected(about(from, ok.error()));
  const Packet welcome = this->introduction(PacketKind::kWelcome, *peer, theirs, ours);
  // One that has waited here may have given up meanwhile; if it is alive it calls again.
  if (!socket.send(welcome, {plan_.inbox->fd(), plan_.bell->fd()})) return {};
  peer->known = true;
  peer->link = std::move(socket);
  peer->probe.reset();
  return {};
}

Result<void> ShmMeeting::adopt(Peer& peer, Received& received) const {
  if (received.fds.size() != 2)
    return fail(ErrorCode::kBadMessage, std::to_string(received.fds.size()) + " descriptors came with it, not 2");
  auto inbox = Inbox::open(std::move(received.fds[0]), plan_.inbox->shape());
  if (!inbox) return tl::unexpected(inbox.error());
  auto bell = Doorbell::adopt(std::move(received.fds[1]));
  if (!bell) return tl::unexpected(bell.error());
  peer.inbox = std::move(*inbox);
  peer.bell = std::make_shared<const Doorbell>(std::move(*bell));
  return {};
}

Result<void> ShmMeeting::step_peer(Peer& peer) {
  const bool we_call = peer.rank < plan_.self;
  if (!peer.link) {
    std::optional<ShmSocket>& line = we_call ? peer.link : peer.probe;
    if (!line) {
      if (auto ok = call(peer); !ok) return ok;
    }
    if (we_call || !peer.probe) return {};
    // Nothing is ever said on a probe. Its end means that the peer is gone, or that a connect of it is over: call again
    // and see.
    if (!peer.probe->receive()) peer.probe.reset();
    return {};
  }
  for (;;) {
    auto received = peer.link->receive();
    if (!received && !peer.known && received.error().code == ErrorCode::kUnavailable) {
      // It has not answered yet: it was not in this connect, or is gone. The next call will tell.
      peer.link.reset();
      peer.challenged = false;
      return {};
    }
    // An end after ready is an end of what comes later, not of this connect.
    if (!received && peer.ready) return {};
    if (!received) return tl::unexpected(received.error());
    if (!received->has_value()) return {};
    if (auto ok = hear(peer, std::move(**received)); !ok) return ok;
  }
}

Result<void> ShmMeeting::call(Peer& peer) {
  auto socket = ShmSocket::connect(peer.name);
  if (!socket && socket.error().code == ErrorCode::kDeadline) return {};  // its queue is full: later
  if (!socket) return tl::unexpected(socket.error());
  if (plan_.self < peer.rank) {
    peer.probe = std::move(*socket);
    return {};
  }
  Packet hello;
  hello.kind = PacketKind::kHello;
  hello.nonce = peer.nonce = make_nonce();
  if (socket->send(hello)) peer.link = std::move(*socket);
  return {};
}

Result<void> ShmMeeting::hear(Peer& peer, Received received) {
  const Packet& packet = received.packet;
  if (!peer.known && !peer.challenged) {
    if (packet.kind != PacketKind::kChallenge)
      return fail(ErrorCode::kBadMessage, "it answers a hello with something else than a challenge");
    if (!Secret::equal(packet.proof, prove(kChallengeRole, packet, peer.nonce, packet.nonce)) ||
        packet.read_text() != peer.name)
      return fail(ErrorCode::kRefused, "it does not know the cluster's secret; start all nodes with the same one");
    peer.challenged = true;
    peer.their_nonce = packet.nonce;
    peer.link->send(introduction(PacketKind::kIntroduce, peer, peer.nonce, peer.their_nonce),
                    {plan_.inbox->fd(), plan_.bell->fd()});
    return {};
  }
  if (!peer.known) {
    if (packet.kind == PacketKind::kRefuse)
      return fail(packet.code == static_cast<std::uint16_t>(ErrorCode::kStale)      ? ErrorCode::kStale
                  : packet.code == static_cast<std::uint16_t>(ErrorCode::kMismatch) ? ErrorCode::kMismatch
                                                                                    : ErrorCode::kRefused,
                  "it refuses: " + packet.read_text());
    if (packet.kind != PacketKind::kWelcome || packet.from != peer.rank.value || packet.to != plan_.self.value ||
        packet.agreement() != plan_.agreement ||
        !Secret::equal(packet.proof, prove(kWelcomeRole, packet, peer.nonce, peer.their_nonce)))
      return fail(ErrorCode::kBadMessage, "its welcome is not one for this view");
    if (auto ok = adopt(peer, received); !ok) return ok;
    peer.known = true;
    return {};
  }
  if (packet.kind != PacketKind::kReady || peer.ready)
    return fail(ErrorCode::kBadMessage, "it says something else than ready");
  peer.ready = true;
  return {};
}

bool ShmMeeting::watch(std::vector<pollfd>& fds) {
  fds.push_back({door_.listener_.fd(), POLLIN, 0});
  for (const Caller& caller : callers_) fds.push_back({caller.socket.fd(), POLLIN, 0});
  for (const Peer& peer : peers_) {
    if (peer.link && !peer.ready) fds.push_back({peer.link->fd(), POLLIN, 0});
    if (peer.probe) fds.push_back({peer.probe->fd(), POLLIN, 0});
  }
  return true;
}

bool ShmMeeting::impatient() const {
  return std::any_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return !peer.link && !peer.probe; });
}

void ShmMeeting::say_ready() {
  Packet packet;
  packet.kind = PacketKind::kReady;
  for (Peer& peer : peers_) peer.link->send(packet);
}

void ShmMeeting::missing(bool ready, std::vector<std::uint32_t>& ranks) const {
  for (const Peer& peer : peers_)
    if (!(ready ? peer.ready : peer.known)) ranks.push_back(peer.rank.value);
}

void ShmMeeting::hand_over(std::vector<std::unique_ptr<Channel>>& channels) {
  for (Peer& peer : peers_)
    channels[peer.rank.value] = std::make_unique<InboxChannel>(
        plan_.self, peer.rank, plan_.inbox, std::move(peer.inbox), std::move(peer.bell), peer.link->take());
}

}  // namespace troupe::gpu::cpu
