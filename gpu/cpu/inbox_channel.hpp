#pragma once

#include <atomic>
#include <memory>

#include "gpu/cpu/all_to_all_channel.hpp"

namespace troupe::gpu::cpu {

/// The way between two ranks that share memory, of one process or of two: each writes straight into the other's inbox.
///
/// Why two buffers per source, used in turn by the number of the exchange, need no flow control. A rank writes into a
/// peer's buffer of exchange x again in x+2. It begins x+2 only after it has received the peer's block of x+1, and the
/// peer sent that after it had begun x+1, when the spans it was given in x were no longer valid. This holds because
/// every rank sends to every peer in every exchange, if only a header that says 0 bytes. For the same reason a peer's
/// commit word can be of this exchange or of an earlier one, never of a later one.
///
/// A block larger than the buffer goes through its pieces in turn. The receiver copies each out and says in the
/// sender's inbox how many it has taken; the sender is at most kPieces ahead.
class InboxChannel final : public Channel {
 public:
  /// own: this rank's inbox; theirs: the peer's. liveness: a connected socket that the peer holds until it dies or
  /// closes its end; none within one process.
  InboxChannel(Rank self, Rank peer, std::shared_ptr<Inbox> own, std::shared_ptr<Inbox> theirs,
               std::shared_ptr<const Doorbell> their_bell, Fd liveness);

  Result<void> begin(const ExchangeRound& round, const SendBlock& send, std::size_t recv_bytes) override;
  Result<bool> progress() override;
  bool sent() const override { return next_out_ == chunks_out_; }
  bool received() const override { return next_in_ == chunks_in_; }
  std::span<const std::byte> block() const override { return block_; }
  PeerEnd peer_end() const override;
  int watched_fd() const override { return liveness_.get(); }
  void look_at_fd() override;
  void leave(Farewell how, std::string_view reason) override;

 private:
  Result<bool> send_some();
  Result<bool> receive_some();
  Error garbage(const char* what, std::uint64_t value) const;
  void wake_peer();

  const Rank self_;
  const Rank peer_;
  const std::shared_ptr<Inbox> own_;
  const std::shared_ptr<Inbox> theirs_;
  const std::shared_ptr<const Doorbell> their_bell_;
  const Fd liveness_;
  Lane& in_;   ///< the peer's lane in our inbox: it writes, we read
  Lane& out_;  ///< our lane in the peer's inbox
  bool peer_is_gone_ = false;

  ExchangeRound round_;
  SendBlock send_;
  std::uint64_t send_bytes_ = 0;
  std::uint64_t chunks_out_ = 0;
  std::uint64_t next_out_ = 0;
  std::size_t recv_bytes_ = 0;
  std::uint64_t chunks_in_ = 0;
  std::uint64_t next_in_ = 0;
  std::byte* assembled_ = nullptr;  ///< where the chunks of a block larger than the buffer go
  GrowingBuffer assembly_;
  std::span<const std::byte> block_;
};

}  // namespace troupe::gpu::cpu
