#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "gpu/all_to_all.hpp"
#include "gpu/cpu/all_to_all_channel.hpp"

namespace troupe::gpu::cpu {

/// A transport library whose messages move only while someone calls it. The exchange does, in the caller's thread: a
/// helper thread costs milliseconds on a busy core.
class Poller {
 public:
  virtual ~Poller() = default;
  virtual bool poll() = 0;     ///< true where something moved
  virtual int fd() const = 0;  ///< readable when poll has something to do, once armed
  virtual bool arm() = 0;      ///< false: poll again before you block
};

/// The AllToAll of all CPU transports: one channel per peer, of whatever kind, and one place to wait for all of them.
class CpuAllToAll final : public AllToAll {
 public:
  struct Parts {
    View view;
    Rank self;
    std::uint32_t ranks = 0;
    std::shared_ptr<Inbox> inbox;
    std::shared_ptr<const Doorbell> bell;            ///< of this rank's inbox
    std::vector<std::unique_ptr<Channel>> channels;  ///< one per rank; null at `self`
    std::shared_ptr<Poller> poller;                  ///< null where no channel needs one
    std::uint32_t ranks_on_host = 1;                 ///< with more ranks than cores nobody spins
  };
  /// Errors: kIo (no descriptor for epoll).
  static Result<std::unique_ptr<AllToAll>> make(Parts parts);
  ~CpuAllToAll() override;

  Rank rank() const override { return parts_.self; }
  std::uint32_t ranks() const override { return parts_.ranks; }
  Result<std::span<const std::span<const std::byte>>> exchange(ExchangeTag tag, std::span<const SendBlock> sends,
                                                               std::span<const std::size_t> recv_bytes,
                                                               Clock::time_point deadline) override;
  void abort(std::string reason) override;
  AllToAllStats stats() const override;

 private:
  CpuAllToAll(Parts parts, Fd epoll) : parts_(std::move(parts)), epoll_(std::move(epoll)) {}
  Result<void> watch(int fd, std::uint32_t events, std::uint64_t who);
  Result<void> start(const ExchangeTag& tag, std::span<const SendBlock> sends, std::span<const std::size_t> recv_bytes);
  Result<void> finish(std::span<const SendBlock> sends, Clock::time_point deadline);
  Result<void> copy_own_block(const SendBlock& block);
  Result<bool> pass();
  Result<bool> move_blocks();
  std::optional<Error> end_of_the_road();
  void note_peer_ends();
  Result<void> sleep(Clock::time_point deadline);
  Error late() const;

  const Parts parts_;
  const Fd epoll_;
  ExchangeRound round_;
  std::vector<std::uint32_t> pending_;  ///< peers whose block has not gone or not come
  std::vector<std::span<const std::byte>> blocks_;
  GrowingBuffer own_block_;
  std::optional<Error> failure_;  ///< of an earlier exchange

  // Ends as they stood before the last pass: what a peer sent before its end has then been taken.
  bool own_end_ = false;
  std::vector<std::optional<PeerEnd>> peer_ends_;

  std::atomic<bool> aborted_{false};
  mutable std::mutex mutex_;  ///< guards reason_
  std::string reason_;

  std::atomic<std::uint64_t> exchanges_{0};
  std::atomic<std::uint64_t> bytes_sent_{0};
  std::atomic<std::uint64_t> bytes_received_{0};
};

}  // namespace troupe::gpu::cpu
