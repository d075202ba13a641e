#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "messages/envelope.hpp"
#include "messages/error.hpp"

namespace troupe::cluster {

/// What waits between the threads that send and the wire's I/O thread: frames per peer, answers per connection, the
/// peers to be connected to. Knows no socket. All functions from any thread; none waits longer than another one holds
/// the lock, which is the time to encode one frame.
class WireQueues {
 public:
  using Bytes = std::vector<std::byte>;
  using TimePoint = std::chrono::steady_clock::time_point;

  struct Limits {
    std::size_t frames_per_peer = 2048;
    std::size_t max_frame_bytes = std::size_t{64} << 20;
  };

  /// A connection that should be: a socket of another generation is an old one.
  struct Target {
    std::string name;
    std::string endpoint;
    std::string key;
    std::uint64_t generation = 0;
  };

  explicit WireQueues(Limits limits);
  ~WireQueues();
  WireQueues(const WireQueues&) = delete;
  WireQueues& operator=(const WireQueues&) = delete;

  /// Errors: kIo when the operating system gave no eventfd.
  Result<void> ready() const;
  /// Readable once something is new for the I/O thread.
  int wake_fd() const { return wake_fd_; }

  // --- for senders ---
  /// Errors: kAborted, kLimit (too many peers). Another endpoint or key drops what is queued, and its numbers start at
  /// 1 again: who listens there now has heard nothing yet.
  Result<void> connect(const std::string& name, const std::string& endpoint, const std::string& key);
  void disconnect(const std::string& name);
  /// Numbers the frame (0 where droppable), encodes and queues it. Errors: kUnavailable, kLimit, kAborted.
  Result<void> push(const std::string& peer, messages::Frame& frame, bool droppable);
  /// Errors: kLimit, kAborted.
  Result<void> push_reply(const std::string& routing_id, Bytes bytes);
  void allow(std::string name, std::string public_key);
  /// No more frames in; those queued may be sent until `deadline`. The first call counts.
  void stop(TimePoint deadline);
  /// Sends that failed, or that were queued and lost.
  std::uint64_t dropped() const;

  // --- for the I/O thread ---
  struct News {
    std::optional<TimePoint> stop_at;
    bool targets_changed = false;
    std::vector<std::pair<std::string, std::string>> allowed;
  };
  /// What changed since the last call; clears the wake_fd.
  News news();
  std::vector<Target> targets() const;
  /// Marks a peer that cannot be connected to, so that its senders are told. Takes no frame of its from now on.
  void give_up(const std::string& name, std::uint64_t generation, std::string why);

  /// Frames taken from the front of a queue, and how many of these could be sent.
  struct Batch {
    std::vector<Bytes> frames;
    std::size_t sent = 0;
    std::size_t sent_bytes = 0;  ///< the first `sent` frames may have been moved from
  };
  /// The next frames for a peer, at most `most`, none if it is of another generation. They count as queued until
  /// settle().
  Batch take(const std::string& peer, std::uint64_t generation, std::size_t most);
  /// What was sent is gone; the others go back to the front.
  void settle(const std::string& peer, std::uint64_t generation, Batch batch);
  /// Connections with answers.
  std::vector<std::string> reply_ids() const;
  Batch take_replies(const std::string& routing_id, std::size_t most);
  void settle_replies(const std::string& routing_id, Batch batch);
  /// The connection is gone: its answers, those in the batch too, are dropped and counted.
  void drop_replies(const std::string& routing_id, const Batch& batch);
  bool empty() const;

 private:
  struct Queue {
    std::deque<Bytes> frames;
    std::size_t taken = 0;  ///< frames in the I/O thread's hands
    std::size_t bytes = 0;  ///< of `frames` and those taken
    std::size_t size() const { return frames.size() + taken; }
  };
  struct Peer {
    std::string endpoint;
    std::string key;
    std::uint64_t generation = 0;
    std::uint64_t sequence = 0;
    std::string failed;  ///< why no socket could be made; empty: all is well
    Queue queue;
  };
  void wake();
  std::string full(const Queue& queue, std::size_t more_bytes) const;
  Peer* find(const std::string& peer, std::uint64_t generation);
  static Batch take_from(Queue& queue, std::size_t most);
  static void put_back(Queue& queue, Batch batch);
  tl::unexpected<Error> drop(ErrorCode code, std::string why);

  const Limits limits_;
  int wake_fd_ = -1;
  mutable std::mutex mutex_;
  // Set while the eventfd is up, so that a thousand sends cost one write and not a thousand.
  bool awake_ = false;
  bool targets_changed_ = false;
  std::uint64_t next_generation_ = 1;
  std::uint64_t dropped_ = 0;
  std::map<std::string, Peer> peers_;
  std::map<std::string, Queue> replies_;  ///< by routing id; only those with answers
  std::vector<std::pair<std::string, std::string>> allowed_;
  std::optional<TimePoint> stop_at_;
};

}  // namespace troupe::cluster
