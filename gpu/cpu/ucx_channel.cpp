#include "gpu/cpu/ucx_channel.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "gpu/cpu/all_to_all_copy.hpp"

namespace troupe::gpu::cpu {
namespace {

using namespace std::chrono_literals;

// How long an abort or an end waits for its words to be out. They fit the socket's buffer unless the peer reads no
// more.
constexpr auto kLastWords = 5ms;

std::uint64_t chunks_of(std::uint64_t bytes) {
  return std::max<std::uint64_t>(1, (bytes + kUcxChunkBytes - 1) / kUcxChunkBytes);
}

std::uint64_t bytes_in(std::uint64_t total, std::uint64_t chunk) {
  return std::min<std::uint64_t>(kUcxChunkBytes, total - chunk * kUcxChunkBytes);
}

}  // namespace

UcxChannel::UcxChannel(Rank self, Rank peer, std::shared_ptr<UcxWorker> worker, std::size_t window_bytes)
    : self_(self),
      peer_(peer),
      worker_(std::move(worker)),
      window_(std::max<std::uint64_t>(4, window_bytes / kUcxChunkBytes)) {}

UcxChannel::~UcxChannel() {
  const std::lock_guard lock(worker_->mutex());
  worker_->dismiss(session_.in);
}

void UcxChannel::open(const Session& session) {
  worker_->dismiss(session_.in);
  session_ = session;
  worker_->enlist(session_.in, this);
}

UcxHeader UcxChannel::header(UcxKind kind) const {
  UcxHeader header;
  header.kind = kind;
  header.session = session_.out;
  header.exchange = round_.number;
  return header;
}

void UcxChannel::say_ready() {
  worker_->send_control(*link_, header(UcxKind::kReady), {});
}

Result<void> UcxChannel::begin(const ExchangeRound& round, const SendBlock& send, std::size_t recv_bytes) {
  const std::lock_guard lock(worker_->mutex());
  round_ = round;
  send_ = send;
  send_bytes_ = send.bytes();
  chunks_out_ = chunks_of(send_bytes_);
  next_out_ = 0;
  taken_by_peer_ = 0;
  recv_bytes_ = recv_bytes;
  said_taken_ = 0;
  received_ = false;
  return {};
}

Result<bool> UcxChannel::progress() {
  const std::lock_guard lock(worker_->mutex());
  if (damage_) return tl::unexpected(*damage_);
  const Incoming& in = incoming();
  if (in.exchange == round_.number && (in.total != recv_bytes_ || in.tag != round_.tag))
    return tl::unexpected(mismatch(self_, peer_, round_.tag, recv_bytes_, in.tag, in.total));
  bool moved = acknowledge();
  if (!received_ && in.exchange == round_.number && in.got == in.chunks) received_ = moved = true;
  auto some = send_some();
  if (some && moved) *some = true;
  return some;
}

Result<bool> UcxChannel::send_some() {
  bool moved = false;
  while (!sent() && !link_->failed && next_out_ < taken_by_peer_ + window_) {
    auto slot = worker_->free_slot(*link_);
    if (!slot) return tl::unexpected(slot.error());
    if (*slot == nullptr) break;
    UcxLink::Slot& out = **slot;
    out.header = header(UcxKind::kBlock);
    out.header.chunk = next_out_;
    out.header.total = send_bytes_;
    out.header.pass = round_.tag.step.pass.value;
    out.header.layer = round_.tag.step.layer;
    out.header.phase = round_.tag.phase;
    const std::uint64_t bytes = bytes_in(send_bytes_, next_out_);
    copy_block(out.data.get(), send_, next_out_ * kUcxChunkBytes, bytes);
    worker_->send_slot(out, bytes);
    ++next_out_;
    moved = true;
  }
  return moved;
}

// A block within the window needs no word back.
bool UcxChannel::acknowledge() {
  const Incoming& in = incoming();
  if (in.exchange != round_.number || in.chunks <= window_ || in.got == in.chunks) return false;
  if (in.got - said_taken_ < window_ / 2) return false;
  said_taken_ = in.got;
  UcxHeader taken = header(UcxKind::kTaken);
  taken.chunk = in.got;
  worker_->send_control(*link_, taken, {});
  return true;
}

std::span<const std::byte> UcxChannel::block() const {
  return {incoming().memory, recv_bytes_};
}

void UcxChannel::damage(const std::string& what) {
  if (damage_) return;
  damage_ =
      Error{ErrorCode::kMismatch, "rank " + std::to_string(peer_.value) + " sends " + what + " to rank " +
                                      std::to_string(self_.value) + " in exchange " + std::to_string(round_.number) +
                                      ", " + describe(round_.tag) + ": abort, and leave it out of the next view"};
}

void UcxChannel::on_message(const UcxHeader& header, std::span<const std::byte> data) {
  switch (header.kind) {
    case UcxKind::kReady:
      heard_ready_ = true;
      break;
    case UcxKind::kBlock:
      on_block(header, data);
      break;
    case UcxKind::kTaken:
      if (header.exchange != round_.number) break;  // of a round that is over
      if (header.chunk > next_out_) return damage("an impossible count of chunks taken");
      taken_by_peer_ = std::max(taken_by_peer_, header.chunk);
      break;
    case UcxKind::kLeave: {
      if (peer_end_.how != Farewell::kNone) break;
      std::string reason(reinterpret_cast<const char*>(data.data()), std::min(data.size(), kReasonBytes));
      for (char& c : reason)
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
      const bool aborted = header.chunk == static_cast<std::uint64_t>(Farewell::kAborted);
      peer_end_ = {aborted ? Farewell::kAborted : Farewell::kClosed, std::move(reason)};
      break;
    }
    case UcxKind::kHello:
      break;
  }
}

// The peer can be one exchange ahead, as in an InboxChannel: what it sends then lands in the other buffer.
void UcxChannel::on_block(const UcxHeader& header, std::span<const std::byte> data) {
  ExchangeTag tag;
  tag.step = {PassNumber(header.pass), header.layer};
  tag.phase = header.phase;
  if (header.exchange != round_.number && header.exchange != round_.number + 1)
    return damage("a block of exchange " + std::to_string(header.exchange));
  Incoming& in = incoming_[header.exchange & 1];
  if (in.exchange != header.exchange) {
    if (header.total > kMaxBlockBytes) return damage("a block of " + std::to_string(header.total) + " bytes");
    auto room = in.buffer.room(header.total);
    if (!room) {
      if (!damage_) damage_ = room.error();
      return;
    }
    in.memory = *room;
    in.exchange = header.exchange;
    in.tag = tag;
    in.total = header.total;
    in.chunks = chunks_of(header.total);
    in.got = 0;
    in.seen.assign(in.chunks, false);
  }
  if (header.total != in.total || tag != in.tag || header.chunk >= in.chunks || in.seen[header.chunk] ||
      data.size() != bytes_in(in.total, header.chunk))
    return damage("chunk " + std::to_string(header.chunk) + " with " + std::to_string(data.size()) +
                  " bytes, which is not part of its block of " + std::to_string(in.total) + " bytes");
  if (!data.empty()) std::memcpy(in.memory + header.chunk * kUcxChunkBytes, data.data(), data.size());
  in.seen[header.chunk] = true;
  ++in.got;
}

PeerEnd UcxChannel::end() const {
  if (peer_end_.how != Farewell::kNone) return peer_end_;
  if (link_ && link_->failed) return {Farewell::kClosed, "its connection is lost: " + link_->why};
  return {};
}

PeerEnd UcxChannel::peer_end() const {
  const std::lock_guard lock(worker_->mutex());
  return end();
}

void UcxChannel::leave(Farewell how, std::string_view reason) {
  const std::lock_guard lock(worker_->mutex());
  if (std::exchange(left_, true) || !link_ || link_->failed) return;
  UcxHeader last = header(UcxKind::kLeave);
  last.chunk = static_cast<std::uint64_t>(how);
  worker_->send_control(*link_, last, std::as_bytes(std::span(reason.substr(0, kReasonBytes))));
  worker_->drain(*link_, kLastWords);
}

}  // namespace troupe::gpu::cpu
