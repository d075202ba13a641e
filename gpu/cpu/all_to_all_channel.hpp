#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "gpu/all_to_all.hpp"
#include "gpu/cpu/inbox.hpp"

namespace troupe::gpu::cpu {

/// Longest block: what a receiver may be asked to hold for one peer.
inline constexpr std::size_t kMaxBlockBytes = std::size_t{1} << 30;

/// "step (12, 3) phase 1"
std::string describe(const ExchangeTag& tag);

/// The error of a receiver that was promised something else. `peer` sent `got_tag` and `got_bytes`.
Error mismatch(Rank self, Rank peer, const ExchangeTag& tag, std::size_t bytes, const ExchangeTag& got_tag,
               std::uint64_t got_bytes);

/// Memory that grows to what is asked for, without filling it.
class GrowingBuffer {
 public:
  /// Room for `bytes`; what was in it is lost. Errors: kIo (no memory: names the bytes).
  Result<std::byte*> room(std::size_t bytes);

 private:
  std::unique_ptr<std::byte[]> data_;
  std::size_t bytes_ = 0;
};

/// One exchange as its channels see it.
struct ExchangeRound {
  std::uint64_t number = 0;  ///< counts from 1 in each view, on all ranks alike
  ExchangeTag tag;
};

/// What a peer's end has come to, apart from blocks.
struct PeerEnd {
  Farewell how = Farewell::kNone;
  std::string reason;
};

/// One rank's end of the way to one peer, in one view.
/// Thread rule: one thread at a time; `leave` from any.
class Channel {
 public:
  virtual ~Channel() = default;

  /// Starts a round. `send` stays valid until the round is over. Both sides have done with the round before.
  virtual Result<void> begin(const ExchangeRound& round, const SendBlock& send, std::size_t recv_bytes) = 0;
  /// Moves what can be moved without waiting; true where something moved. Errors: kMismatch, kUnavailable, kIo.
  virtual Result<bool> progress() = 0;
  virtual bool sent() const = 0;      ///< the block is on its way and `send` may be changed
  virtual bool received() const = 0;  ///< block() is there
  virtual std::span<const std::byte> block() const = 0;

  /// The peer's last words. A block that came before them counts.
  virtual PeerEnd peer_end() const = 0;
  /// A descriptor that becomes readable when the peer dies, -1: none; look_at_fd then lets peer_end know.
  virtual int watched_fd() const { return -1; }
  virtual void look_at_fd() {}

  /// Last words to the peer; wakes it. Any thread, at any time; the first words stand.
  virtual void leave(Farewell how, std::string_view reason) = 0;
};

}  // namespace troupe::gpu::cpu
