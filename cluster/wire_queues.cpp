#include "cluster/wire_queues.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <sys/eventfd.h>
#include <unistd.h>

namespace troupe::cluster {

namespace {

constexpr std::size_t kMaxPeers = 1024;
constexpr std::size_t kMaxReplyIds = std::size_t{1} << 16;
/// Bytes queued per peer or connection, in largest frames.
constexpr std::size_t kMaxQueuedFrames = 4;

}  // namespace

WireQueues::WireQueues(Limits limits) : limits_(limits), wake_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

WireQueues::~WireQueues() {
  if (wake_fd_ >= 0) ::close(wake_fd_);
}

Result<void> WireQueues::ready() const {
  if (wake_fd_ >= 0) return {};
  return fail(ErrorCode::kIo, "the system gives no eventfd; are too many files open (ulimit -n)?");
}

void WireQueues::wake() {
  if (awake_) return;
  awake_ = true;
  const std::uint64_t one = 1;
  // Cannot fail: the counter is at most 1, and the descriptor is ours until the destructor.
  [[maybe_unused]] const ssize_t written = ::write(wake_fd_, &one, sizeof(one));
}

tl::unexpected<Error> WireQueues::drop(ErrorCode code, std::string why) {
  ++dropped_;
  return fail(code, std::move(why));
}

std::string WireQueues::full(const Queue& queue, std::size_t more_bytes) const {
  if (queue.size() >= limits_.frames_per_peer) {
    return "the queue is full: " + std::to_string(queue.size()) + " frames wait";
  }
  if (queue.size() > 0 && queue.bytes + more_bytes > kMaxQueuedFrames * limits_.max_frame_bytes) {
    return "the queue is full: " + std::to_string(queue.bytes) + " bytes wait";
  }
  return {};
}

Result<void> WireQueues::connect(const std::string& name, const std::string& endpoint, const std::string& key) {
  const std::lock_guard lock(mutex_);
  if (stop_at_) return fail(ErrorCode::kAborted, "the wire is stopping");
  const auto found = peers_.find(name);
  if (found == peers_.end() && peers_.size() >= kMaxPeers) {
    return fail(ErrorCode::kLimit, "connected to " + std::to_string(kMaxPeers) + " peers, the most that a wire takes");
  }
  Peer& peer = found == peers_.end() ? peers_[name] : found->second;
  if (peer.endpoint == endpoint && peer.key == key && peer.failed.empty()) return {};
  dropped_ += peer.queue.size();
  peer = Peer{endpoint, key, next_generation_++, 0, {}, {}};
  targets_changed_ = true;
  wake();
  return {};
}

void WireQueues::disconnect(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = peers_.find(name);
  if (found == peers_.end()) return;
  dropped_ += found->second.queue.size();
  peers_.erase(found);
  targets_changed_ = true;
  wake();
}

Result<void> WireQueues::push(const std::string& peer, messages::Frame& frame, bool droppable) {
  const std::lock_guard lock(mutex_);
  if (stop_at_) return drop(ErrorCode::kAborted, "the wire is stopping");
  const auto found = peers_.find(peer);
  if (found == peers_.end()) return drop(ErrorCode::kUnavailable, "not connected to " + peer);
  Peer& to = found->second;
  if (!to.failed.empty()) return drop(ErrorCode::kUnavailable, peer + ": " + to.failed);
  if (auto why = full(to.queue, 0); !why.empty()) return drop(ErrorCode::kLimit, peer + ": " + why);
  // Numbered and encoded under the lock, so that the order on the wire is the order of the numbers.
  frame.envelope.sequence = droppable ? 0 : to.sequence + 1;
  Bytes bytes = messages::encode_frame(frame);
  if (bytes.size() > limits_.max_frame_bytes) {
    return drop(ErrorCode::kLimit, peer + ": a frame of " + std::to_string(bytes.size()) + " bytes, the limit is " +
                                       std::to_string(limits_.max_frame_bytes));
  }
  if (auto why = full(to.queue, bytes.size()); !why.empty()) return drop(ErrorCode::kLimit, peer + ": " + why);
  if (!droppable) ++to.sequence;
  to.queue.bytes += bytes.size();
  to.queue.frames.push_back(std::move(bytes));
  wake();
  return {};
}

Result<void> WireQueues::push_reply(const std::string& routing_id, Bytes bytes) {
  const std::lock_guard lock(mutex_);
  if (stop_at_) return drop(ErrorCode::kAborted, "the wire is stopping");
  if (bytes.size() > limits_.max_frame_bytes) {
    return drop(ErrorCode::kLimit, "an answer of " + std::to_string(bytes.size()) + " bytes, the limit is " +
                                       std::to_string(limits_.max_frame_bytes));
  }
  const auto found = replies_.find(routing_id);
  if (found == replies_.end() && replies_.size() >= kMaxReplyIds) {
    return drop(ErrorCode::kLimit,
                "answers wait for " + std::to_string(kMaxReplyIds) + " connections, the most allowed");
  }
  Queue& queue = found == replies_.end() ? replies_[routing_id] : found->second;
  if (auto why = full(queue, bytes.size()); !why.empty()) return drop(ErrorCode::kLimit, "answers: " + why);
  queue.bytes += bytes.size();
  queue.frames.push_back(std::move(bytes));
  wake();
  return {};
}

void WireQueues::allow(std::string name, std::string public_key) {
  const std::lock_guard lock(mutex_);
  allowed_.emplace_back(std::move(name), std::move(public_key));
  wake();
}

void WireQueues::stop(TimePoint deadline) {
  const std::lock_guard lock(mutex_);
  if (!stop_at_) stop_at_ = deadline;
  wake();
}

std::uint64_t WireQueues::dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

WireQueues::News WireQueues::news() {
  const std::lock_guard lock(mutex_);
  if (awake_) {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(wake_fd_, &count, sizeof(count));
    awake_ = false;
  }
  return {stop_at_, std::exchange(targets_changed_, false), std::exchange(allowed_, {})};
}

std::vector<WireQueues::Target> WireQueues::targets() const {
  const std::lock_guard lock(mutex_);
  std::vector<Target> targets;
  for (const auto& [name, peer] : peers_) {
    if (peer.failed.empty()) targets.push_back({name, peer.endpoint, peer.key, peer.generation});
  }
  return targets;
}

void WireQueues::give_up(const std::string& name, std::uint64_t generation, std::string why) {
  const std::lock_guard lock(mutex_);
  Peer* peer = find(name, generation);
  if (peer == nullptr) return;
  dropped_ += peer->queue.size();
  peer->queue = {};
  peer->failed = std::move(why);
}

WireQueues::Peer* WireQueues::find(const std::string& peer, std::uint64_t generation) {
  const auto found = peers_.find(peer);
  return found == peers_.end() || found->second.generation != generation ? nullptr : &found->second;
}

WireQueues::Batch WireQueues::take_from(Queue& queue, std::size_t most) {
  Batch batch;
  for (; batch.frames.size() < most && !queue.frames.empty(); queue.frames.pop_front()) {
    batch.frames.push_back(std::move(queue.frames.front()));
  }
  queue.taken = batch.frames.size();
  return batch;
}

void WireQueues::put_back(Queue& queue, Batch batch) {
  queue.taken = 0;
  queue.bytes -= batch.sent_bytes;
  for (; batch.frames.size() > batch.sent; batch.frames.pop_back()) {
    queue.frames.push_front(std::move(batch.frames.back()));
  }
}

WireQueues::Batch WireQueues::take(const std::string& peer, std::uint64_t generation, std::size_t most) {
  const std::lock_guard lock(mutex_);
  Peer* found = find(peer, generation);
  return found == nullptr ? Batch{} : take_from(found->queue, most);
}

void WireQueues::settle(const std::string& peer, std::uint64_t generation, Batch batch) {
  const std::lock_guard lock(mutex_);
  // Gone in the meantime: connect() or disconnect() has counted the frames.
  if (Peer* found = find(peer, generation)) put_back(found->queue, std::move(batch));
}

std::vector<std::string> WireQueues::reply_ids() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> ids;
  for (const auto& [id, queue] : replies_) ids.push_back(id);
  return ids;
}

WireQueues::Batch WireQueues::take_replies(const std::string& routing_id, std::size_t most) {
  const std::lock_guard lock(mutex_);
  const auto found = replies_.find(routing_id);
  return found == replies_.end() ? Batch{} : take_from(found->second, most);
}

void WireQueues::settle_replies(const std::string& routing_id, Batch batch) {
  const std::lock_guard lock(mutex_);
  const auto found = replies_.find(routing_id);
  if (found == replies_.end()) return;
  put_back(found->second, std::move(batch));
  if (found->second.size() == 0) replies_.erase(found);
}

void WireQueues::drop_replies(const std::string& routing_id, const Batch& batch) {
  const std::lock_guard lock(mutex_);
  const auto found = replies_.find(routing_id);
  if (found == replies_.end()) return;
  dropped_ += found->second.frames.size() + batch.frames.size() - batch.sent;
  replies_.erase(found);
}

bool WireQueues::empty() const {
  const std::lock_guard lock(mutex_);
  return replies_.empty() &&
         std::all_of(peers_.begin(), peers_.end(), [](const auto& peer) { return peer.second.queue.size() == 0; });
}

}  // namespace troupe::cluster
