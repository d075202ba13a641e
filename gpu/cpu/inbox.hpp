#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "gpu/cpu/shm_fd.hpp"
#include "messages/error.hpp"

/// The memory that one rank's peers write its blocks into, for one view. Each rank owns one inbox; a peer maps it and
/// writes into its own lane only. Every word is in the hands of another process: whoever reads one checks it before
/// use, and offsets are never read from it, only computed.
namespace troupe::gpu::cpu {

inline constexpr std::size_t kMinInboxBytes = std::size_t{4} << 10;
inline constexpr std::size_t kMaxInboxBytes = std::size_t{1} << 30;
inline constexpr std::uint32_t kMaxRanks = 4096;
inline constexpr std::uint32_t kPieces =
    8;  ///< pieces of one buffer; a block larger than the buffer goes through them in turn
inline constexpr std::size_t kReasonBytes = 248;  ///< longest text that abort hands to a peer

/// Where things lie in an inbox. Both sides compute it from the same two numbers.
struct InboxShape {
  std::uint32_t ranks = 0;
  std::size_t inbox_bytes = 0;  ///< room of one buffer as the user gave it

  std::size_t buffer_bytes() const;  ///< inbox_bytes rounded up to pages
  std::size_t piece_bytes() const;   ///< a multiple of 64; kPieces of them fit into one buffer
  std::size_t lane_offset(std::uint32_t source) const;
  std::size_t buffer_offset(std::uint32_t source, std::uint32_t parity) const;
  std::size_t total_bytes() const;
};

/// Announces one chunk. Written by the source, `commit` last.
struct alignas(64) ChunkHeader {
  std::atomic<std::uint64_t> commit;  ///< make_commit(exchange, chunk) of what lies in the piece; 0: nothing yet
  std::atomic<std::uint64_t> total;   ///< bytes of the whole block
  std::atomic<std::uint64_t> pass;
  std::atomic<std::uint64_t> layer_phase;
};

/// A commit word or a count of chunks taken, with the exchange it belongs to. Exchanges count from 1 in each view, so
/// that a word of an earlier exchange is always smaller.
inline constexpr unsigned kChunkBits = 24;
constexpr std::uint64_t make_commit(std::uint64_t exchange, std::uint64_t chunk) {
  return (exchange << kChunkBits) | chunk;
}

/// What a source says about its end besides blocks.
enum class Farewell : std::uint32_t { kNone = 0, kWriting = 1, kClosed = 2, kAborted = 3 };

/// All words that one source writes into a receiver's inbox.
struct Lane {
  std::array<std::array<ChunkHeader, kPieces>, 2> headers;
  alignas(64)
      std::atomic<std::uint64_t> taken;  ///< the source, as a receiver of ours, has copied out so many of our chunks
  alignas(64) std::atomic<std::uint32_t> farewell;
  std::atomic<std::uint32_t> reason_bytes;
  std::array<std::atomic<std::uint64_t>, kReasonBytes / 8> reason;

  /// Leaves `reason` (cut to kReasonBytes) unless something was left before.
  void leave(Farewell how, std::string_view text);
  Farewell read_farewell() const;
  std::string read_reason() const;  ///< printable characters only, at most kReasonBytes
};

/// First words of an inbox.
struct alignas(64) InboxHead {
  std::atomic<std::uint32_t> sleeping;  ///< 1: the owner is about to block, ring its doorbell after a commit
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free,
              "words shared between processes must not need a lock");

/// One mapping of an inbox, the owner's or a peer's. Fresh memory reads as zero, which is every word's start value;
/// pages that are never written take no memory.
/// Thread rule: as its words; the object itself is immutable.
class Inbox {
 public:
  /// Plain memory of this process. Errors: kBadInput (shape), kIo.
  static Result<std::shared_ptr<Inbox>> make_plain(InboxShape shape);
  /// A memfd, sealed so that nobody can change its size: a peer cannot make us fault by cutting it. Errors likewise.
  static Result<std::shared_ptr<Inbox>> make_shared(InboxShape shape);
  /// Maps a peer's inbox. Errors: kRefused (not a memfd with these seals, or not of this size), kIo.
  static Result<std::shared_ptr<Inbox>> open(Fd fd, InboxShape shape);

  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;
  ~Inbox();

  const InboxShape& shape() const { return shape_; }
  int fd() const { return fd_.get(); }  ///< -1 for plain memory
  InboxHead& head() const { return *reinterpret_cast<InboxHead*>(base_); }
  Lane& lane(std::uint32_t source) const { return *reinterpret_cast<Lane*>(base_ + shape_.lane_offset(source)); }
  std::byte* buffer(std::uint32_t source, std::uint64_t exchange) const {
    return base_ + shape_.buffer_offset(source, static_cast<std::uint32_t>(exchange & 1));
  }

 private:
  Inbox(InboxShape shape, Fd fd, std::byte* base) : shape_(shape), fd_(std::move(fd)), base_(base) {}
  static Result<std::shared_ptr<Inbox>> map(InboxShape shape, Fd fd);

  InboxShape shape_;
  Fd fd_;
  std::byte* base_ = nullptr;
};

/// Wakes a rank that blocks: an eventfd, watched edge-triggered, so nobody ever reads it. Rung only when the rank has
/// said that it sleeps.
/// Thread rule: any thread.
class Doorbell {
 public:
  static Result<Doorbell> make();
  /// A peer's, as received. Errors: kRefused (some other kind of descriptor, which could block or end its writer).
  static Result<Doorbell> adopt(Fd fd);
  Result<Doorbell> duplicate() const;
  int fd() const { return fd_.get(); }
  void ring() const;

 private:
  explicit Doorbell(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};

}  // namespace troupe::gpu::cpu
