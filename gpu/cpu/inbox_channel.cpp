#include "gpu/cpu/inbox_channel.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include <sys/socket.h>

#include "gpu/cpu/all_to_all_copy.hpp"

namespace troupe::gpu::cpu {
namespace {

// A block that fits its buffer is one chunk, be it empty; a larger one is cut into pieces.
std::uint64_t chunks_of(const InboxShape& shape, std::size_t bytes) {
  if (bytes <= shape.inbox_bytes) return 1;
  return (bytes + shape.piece_bytes() - 1) / shape.piece_bytes();
}

static_assert(kMaxBlockBytes / (kMinInboxBytes / kPieces) < (std::uint64_t{1} << kChunkBits),
              "the chunks of the longest block must be countable in a commit word");

}  // namespace

InboxChannel::InboxChannel(Rank self, Rank peer, std::shared_ptr<Inbox> own, std::shared_ptr<Inbox> theirs,
                           std::shared_ptr<const Doorbell> their_bell, Fd liveness)
    : self_(self),
      peer_(peer),
      own_(std::move(own)),
      theirs_(std::move(theirs)),
      their_bell_(std::move(their_bell)),
      liveness_(std::move(liveness)),
      in_(own_->lane(peer.value)),
      out_(theirs_->lane(self.value)) {}

Result<void> InboxChannel::begin(const ExchangeRound& round, const SendBlock& send, std::size_t recv_bytes) {
  round_ = round;
  send_ = send;
  send_bytes_ = send.bytes();
  chunks_out_ = chunks_of(theirs_->shape(), send_bytes_);
  next_out_ = 0;
  recv_bytes_ = recv_bytes;
  chunks_in_ = chunks_of(own_->shape(), recv_bytes);
  next_in_ = 0;
  block_ = {};
  assembled_ = nullptr;
  if (chunks_in_ > 1) {
    auto room = assembly_.room(recv_bytes);
    if (!room) return tl::unexpected(room.error());
    assembled_ = *room;
  }
  return {};
}

Result<bool> InboxChannel::progress() {
  bool moved = false;
  if (!sent()) {
    auto some = send_some();
    if (!some) return some;
    moved |= *some;
  }
  if (!received()) {
    auto some = receive_some();
    if (!some) return some;
    moved |= *some;
  }
  return moved;
}

Result<bool> InboxChannel::send_some() {
  const InboxShape& shape = theirs_->shape();
  const std::size_t piece = next_out_ % kPieces;
  if (next_out_ >= kPieces) {
    const std::uint64_t taken = in_.taken.load();
    if (taken > make_commit(round_.number, next_out_))
      return tl::unexpected(garbage("has taken an impossible number of chunks", taken));
    if (taken < make_commit(round_.number, next_out_ - kPieces + 1)) return false;
  }
  const std::size_t stride = chunks_out_ == 1 ? 0 : shape.piece_bytes();
  const std::size_t offset = next_out_ * stride;
  const std::size_t bytes = chunks_out_ == 1 ? send_bytes_ : std::min(stride, send_bytes_ - offset);
  copy_block(theirs_->buffer(self_.value, round_.number) + piece * stride, send_, offset, bytes);

  ChunkHeader& header = out_.headers[round_.number & 1][piece];
  header.total.store(send_bytes_, std::memory_order_relaxed);
  header.pass.store(round_.tag.step.pass.value, std::memory_order_relaxed);
  header.layer_phase.store(std::uint64_t{round_.tag.step.layer} << 32 | round_.tag.phase, std::memory_order_relaxed);
  header.commit.store(make_commit(round_.number, next_out_));
  ++next_out_;
  wake_peer();
  return true;
}

Result<bool> InboxChannel::receive_some() {
  const InboxShape& shape = own_->shape();
  const std::size_t piece = next_in_ % kPieces;
  const ChunkHeader& header = in_.headers[round_.number & 1][piece];
  const std::uint64_t commit = header.commit.load();
  const std::uint64_t wanted = make_commit(round_.number, next_in_);
  if (commit < wanted) return false;
  if (commit > wanted) return tl::unexpected(garbage("has committed an impossible chunk", commit));

  // The words are read once: the peer could change them between a check and a use.
  const std::uint64_t total = header.total.load(std::memory_order_relaxed);
  const std::uint64_t layer_phase = header.layer_phase.load(std::memory_order_relaxed);
  ExchangeTag tag;
  tag.step.pass = PassNumber(header.pass.load(std::memory_order_relaxed));
  tag.step.layer = static_cast<std::uint32_t>(layer_phase >> 32);
  tag.phase = static_cast<std::uint32_t>(layer_phase);
  if (total != recv_bytes_ || tag != round_.tag)
    return tl::unexpected(mismatch(self_, peer_, round_.tag, recv_bytes_, tag, total));

  const std::byte* buffer = own_->buffer(peer_.value, round_.number);
  if (chunks_in_ == 1) {
    block_ = {buffer, recv_bytes_};
    ++next_in_;
    return true;
  }
  const std::size_t offset = next_in_ * shape.piece_bytes();
  const std::size_t bytes = std::min(shape.piece_bytes(), recv_bytes_ - offset);
  std::memcpy(assembled_ + offset, buffer + piece * shape.piece_bytes(), bytes);
  ++next_in_;
  out_.taken.store(make_commit(round_.number, next_in_));
  wake_peer();
  if (next_in_ == chunks_in_) block_ = {assembled_, recv_bytes_};
  return true;
}

// The store before this and the peer's "I sleep" are sequentially consistent, as are the loads after each: either we
// see that it sleeps, or it sees what we stored.
void InboxChannel::wake_peer() {
  std::atomic<std::uint32_t>& sleeping = theirs_->head().sleeping;
  if (sleeping.load() != 0 && sleeping.exchange(0) != 0) their_bell_->ring();
}

Error InboxChannel::garbage(const char* what, std::uint64_t value) const {
  return Error{ErrorCode::kMismatch, "rank " + std::to_string(peer_.value) + " " + what + " (exchange " +
                                         std::to_string(value >> kChunkBits) + " chunk " +
                                         std::to_string(value & ((std::uint64_t{1} << kChunkBits) - 1)) +
                                         ") as seen by rank " + std::to_string(self_.value) + " in exchange " +
                                         std::to_string(round_.number) + ", " + describe(round_.tag) +
                                         "; its inbox lane is damaged: abort, and leave it out of the next view"};
}

PeerEnd InboxChannel::peer_end() const {
  const Farewell how = in_.read_farewell();
  if (how != Farewell::kNone) return {how, in_.read_reason()};
  if (peer_is_gone_) return {Farewell::kClosed, "its process has ended"};
  return {};
}

void InboxChannel::look_at_fd() {
  char byte = 0;
  const auto got = ::recv(liveness_.get(), &byte, 1, MSG_DONTWAIT | MSG_TRUNC);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  // After the handshake nothing is ever sent on it: bytes are as wrong as an end.
  peer_is_gone_ = true;
}

void InboxChannel::leave(Farewell how, std::string_view reason) {
  out_.leave(how, reason);
  their_bell_->ring();
}

}  // namespace troupe::gpu::cpu
