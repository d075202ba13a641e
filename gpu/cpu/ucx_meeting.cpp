#include "gpu/cpu/ucx_meeting.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace troupe::gpu::cpu {
namespace {

constexpr const char* kSessionRole = "troupe ucx session";
// A link of an earlier view may have died unnoticed, and a peer that drops its end of such a one can take a fresh one
// with it.
constexpr int kMaxAttempts = 4;

}  // namespace

UcxMeeting::UcxMeeting(std::shared_ptr<UcxWorker> worker, Plan plan)
    : worker_(std::move(worker)), plan_(std::move(plan)) {
  std::vector<std::string> addresses;
  for (const auto& [rank, address] : plan_.peers) {
    Peer peer;
    peer.rank = rank;
    peer.address = address;
    peer.channel = std::make_unique<UcxChannel>(plan_.self, rank, worker_, plan_.window_bytes);
    peer.nonce = make_nonce();
    peers_.push_back(std::move(peer));
    addresses.push_back(address);
  }
  const std::lock_guard lock(worker_->mutex());
  if (auto ok = worker_->expect_peers(addresses); !ok) failure_ = ok.error();
  worker_->expect_hellos(plan_.agreement.view, this);
}

UcxMeeting::~UcxMeeting() {
  {
    const std::lock_guard lock(worker_->mutex());
    worker_->expect_hellos(plan_.agreement.view, nullptr);
  }
  // What was not handed over has failed: the peers need not wait for their deadline.
  for (Peer& peer : peers_)
    if (peer.channel && peer.their_nonce) peer.channel->leave(Farewell::kClosed, "it has given up connecting");
}

Result<void> UcxMeeting::connect(Peer& peer) {
  auto link = worker_->link(peer.address);
  if (!link) return tl::unexpected(link.error());
  peer.channel->use(*link);
  UcxHello hello;
  hello.view = plan_.agreement.view.value;
  hello.inbox_bytes = plan_.agreement.inbox_bytes;
  hello.addresses = plan_.agreement.addresses;
  hello.ranks = plan_.agreement.ranks;
  hello.from = plan_.self.value;
  hello.to = peer.rank.value;
  hello.nonce = peer.nonce;
  worker_->sign(hello);
  worker_->send_control(**link, UcxHeader(), std::as_bytes(std::span(&hello, 1)));
  if (said_ready_) peer.channel->say_ready();
  return {};
}

UcxChannel::Session UcxMeeting::session_with(const Peer& peer) const {
  const bool lower = plan_.self < peer.rank;
  struct {
    Nonce low;
    Nonce high;
    std::uint64_t view;
  } both{lower ? peer.nonce : *peer.their_nonce, lower ? *peer.their_nonce : peer.nonce, plan_.agreement.view.value};
  const Proof proof = worker_->secret().prove(kSessionRole, std::as_bytes(std::span(&both, 1)));
  std::uint64_t from_low = 0;
  std::uint64_t from_high = 0;
  std::memcpy(&from_low, proof.data(), 8);
  std::memcpy(&from_high, proof.data() + 8, 8);
  return lower ? UcxChannel::Session{from_low, from_high} : UcxChannel::Session{from_high, from_low};
}

void UcxMeeting::on_hello(const UcxHello& hello) {
  const Agreement agreement = hello.agreement();
  if (agreement.view < plan_.agreement.view || failure_) return;
  const Rank from(hello.from);
  if (agreement != plan_.agreement) {
    failure_ = disagreement(plan_.self, from, plan_.agreement, agreement);
    return;
  }
  const auto peer = std::find_if(peers_.begin(), peers_.end(), [&](const Peer& p) { return p.rank == from; });
  if (peer == peers_.end() || hello.to != plan_.self.value || peer->their_nonce == hello.nonce) return;
  // A second hello with another nonce: the peer has started over before it knew us.
  peer->their_nonce = hello.nonce;
  peer->channel->open(session_with(*peer));
  peer->ready_is_due = said_ready_;
}

Result<void> UcxMeeting::step() {
  while (worker_->poll()) {
  }
  const std::lock_guard lock(worker_->mutex());
  if (failure_) return tl::unexpected(*failure_);
  for (Peer& peer : peers_) {
    const std::string who = "rank " + std::to_string(peer.rank.value);
    if (peer.channel->link() == nullptr || (peer.channel->link()->failed && !peer.channel->heard_ready())) {
      if (++peer.attempts > kMaxAttempts)
        return fail(ErrorCode::kUnavailable, who + ": it cannot be reached: " + peer.channel->link()->why);
      if (auto ok = connect(peer); !ok) return fail_in(who, ok.error());
    }
    if (std::exchange(peer.ready_is_due, false)) peer.channel->say_ready();
    const PeerEnd end = peer.channel->end();
    if (end.how != Farewell::kNone && !peer.channel->heard_ready() && !peer.channel->link()->failed)
      return fail(end.how == Farewell::kAborted ? ErrorCode::kAborted : ErrorCode::kUnavailable,
                  who + ": " + end.reason);
  }
  return {};
}

bool UcxMeeting::watch(std::vector<pollfd>& fds) {
  fds.push_back({worker_->fd(), POLLIN, 0});
  return worker_->arm();
}

void UcxMeeting::say_ready() {
  const std::lock_guard lock(worker_->mutex());
  said_ready_ = true;
  for (Peer& peer : peers_) peer.channel->say_ready();
}

void UcxMeeting::missing(bool ready, std::vector<std::uint32_t>& ranks) const {
  const std::lock_guard lock(worker_->mutex());
  for (const Peer& peer : peers_)
    if (!(ready ? peer.channel->heard_ready() : peer.their_nonce.has_value())) ranks.push_back(peer.rank.value);
}

void UcxMeeting::hand_over(std::vector<std::unique_ptr<Channel>>& channels) {
  for (Peer& peer : peers_) channels[peer.rank.value] = std::move(peer.channel);
}

}  // namespace troupe::gpu::cpu
