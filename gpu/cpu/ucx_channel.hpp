#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpu/cpu/all_to_all_channel.hpp"
#include "gpu/cpu/ucx_worker.hpp"

namespace troupe::gpu::cpu {

/// The way between two ranks that UCX connects, in one view. A block goes in chunks, which land in the receiver's own
/// memory; two such buffers, used in turn, take what comes early, for the reason that two suffice in an InboxChannel. A
/// sender is at most inbox_bytes ahead of what the receiver has said it has taken, so a peer that is one exchange ahead
/// makes us hold no more.
class UcxChannel final : public Channel, private UcxReceiver {
 public:
  /// What the two ends have agreed on: the numbers that mark their messages, one per direction.
  struct Session {
    std::uint64_t out = 0;
    std::uint64_t in = 0;
    friend bool operator==(const Session&, const Session&) = default;
  };
  // Construction and destruction take the worker's mutex, as all calls but on_message do.
  UcxChannel(Rank self, Rank peer, std::shared_ptr<UcxWorker> worker, std::size_t window_bytes);
  ~UcxChannel() override;

  // While connecting, with the worker's mutex held:
  void use(std::shared_ptr<UcxLink> link) { link_ = std::move(link); }
  void open(const Session& session);
  void say_ready();
  bool heard_ready() const { return heard_ready_; }
  const UcxLink* link() const { return link_.get(); }
  PeerEnd end() const;

  Result<void> begin(const ExchangeRound& round, const SendBlock& send, std::size_t recv_bytes) override;
  Result<bool> progress() override;
  bool sent() const override { return next_out_ == chunks_out_; }
  bool received() const override { return received_; }
  std::span<const std::byte> block() const override;
  PeerEnd peer_end() const override;
  void leave(Farewell how, std::string_view reason) override;

 private:
  /// A block that comes in, of this exchange or of the next.
  struct Incoming {
    std::uint64_t exchange = 0;
    ExchangeTag tag;
    std::uint64_t total = 0;
    std::uint64_t chunks = 0;
    std::uint64_t got = 0;
    std::vector<bool> seen;
    std::byte* memory = nullptr;
    GrowingBuffer buffer;
  };

  void on_message(const UcxHeader& header, std::span<const std::byte> data) override;
  void on_block(const UcxHeader& header, std::span<const std::byte> data);
  void damage(const std::string& what);
  UcxHeader header(UcxKind kind) const;
  Result<bool> send_some();
  bool acknowledge();
  const Incoming& incoming() const { return incoming_[round_.number & 1]; }

  const Rank self_;
  const Rank peer_;
  const std::shared_ptr<UcxWorker> worker_;
  const std::uint64_t window_;  ///< chunks
  std::shared_ptr<UcxLink> link_;
  Session session_;
  bool heard_ready_ = false;
  bool left_ = false;
  PeerEnd peer_end_;
  std::optional<Error> damage_;  ///< the peer has broken the rules

  ExchangeRound round_;
  SendBlock send_;
  std::uint64_t send_bytes_ = 0;
  std::uint64_t chunks_out_ = 0;
  std::uint64_t next_out_ = 0;
  std::uint64_t taken_by_peer_ = 0;
  std::size_t recv_bytes_ = 0;
  std::uint64_t said_taken_ = 0;
  bool received_ = false;  ///< as of the last progress: an abort moves messages from another thread, under the mutex
  std::array<Incoming, 2> incoming_;
};

}  // namespace troupe::gpu::cpu
