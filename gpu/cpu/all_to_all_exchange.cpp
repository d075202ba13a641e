#include "gpu/cpu/all_to_all_exchange.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include <sched.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "gpu/cpu/all_to_all_copy.hpp"

namespace troupe::gpu::cpu {
namespace {

using namespace std::chrono_literals;

// A small block is there within a microsecond or two; to block and be woken takes five or more. Beyond this a core is
// better left to the rank that we wait for.
constexpr auto kSpin = 10us;
// A network's round trip, likewise.
constexpr auto kPollerSpin = 40us;
// A peer rings the doorbell where it must; this bounds the cost of a ring that a damaged inbox has swallowed.
constexpr auto kLongestNap = 50ms;
constexpr std::uint64_t kWakeUp = ~std::uint64_t{0};

// Of the host, not of this process: a rank pinned to its own core may spin. Asked once, since the answer takes a system
// call.
std::uint32_t cores_of_host() {
  static const auto cores = static_cast<std::uint32_t>(std::max<long>(1, ::sysconf(_SC_NPROCESSORS_ONLN)));
  return cores;
}

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

Result<std::unique_ptr<AllToAll>> CpuAllToAll::make(Parts parts) {
  Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return fail_errno("epoll_create1 for an all-to-all");
  std::unique_ptr<CpuAllToAll> made(new CpuAllToAll(std::move(parts), std::move(epoll)));
  const Parts& have = made->parts_;
  made->peer_ends_.resize(have.ranks);
  made->blocks_.resize(have.ranks);
  if (auto ok = made->watch(have.bell->fd(), EPOLLIN | EPOLLET, kWakeUp); !ok) return tl::unexpected(ok.error());
  if (have.poller) {
    if (auto ok = made->watch(have.poller->fd(), EPOLLIN, kWakeUp); !ok) return tl::unexpected(ok.error());
  }
  for (std::uint32_t r = 0; r < have.ranks; ++r) {
    if (!have.channels[r] || have.channels[r]->watched_fd() < 0) continue;
    if (auto ok = made->watch(have.channels[r]->watched_fd(), EPOLLIN | EPOLLRDHUP, r); !ok)
      return tl::unexpected(ok.error());
  }
  return std::unique_ptr<AllToAll>(std::move(made));
}

CpuAllToAll::~CpuAllToAll() {
  for (const auto& channel : parts_.channels)
    if (channel) channel->leave(Farewell::kClosed, "it has closed its end");
}

Result<void> CpuAllToAll::watch(int fd, std::uint32_t events, std::uint64_t who) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = who;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return fail_errno("epoll_ctl for an all-to-all");
  return {};
}

Result<std::span<const std::span<const std::byte>>> CpuAllToAll::exchange(ExchangeTag tag,
                                                                          std::span<const SendBlock> sends,
                                                                          std::span<const std::size_t> recv_bytes,
                                                                          Clock::time_point deadline) {
  if (failure_)
    return fail(ErrorCode::kAborted, "an earlier exchange of view " + std::to_string(parts_.view.value) +
                                         " failed; build a new one: " + failure_->message);
  Result<void> done = start(tag, sends, recv_bytes);
  if (done) done = finish(sends, deadline);
  if (!done) {
    failure_ = done.error();
    return tl::unexpected(done.error());
  }
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  for (std::uint32_t r = 0; r < parts_.ranks; ++r) {
    if (r == parts_.self.value) continue;
    blocks_[r] = parts_.channels[r]->block();
    sent += sends[r].bytes();
    received += blocks_[r].size();
  }
  exchanges_.fetch_add(1, std::memory_order_relaxed);
  bytes_sent_.fetch_add(sent, std::memory_order_relaxed);
  bytes_received_.fetch_add(received, std::memory_order_relaxed);
  return std::span<const std::span<const std::byte>>(blocks_);
}

Result<void> CpuAllToAll::start(const ExchangeTag& tag, std::span<const SendBlock> sends,
                                std::span<const std::size_t> recv_bytes) {
  if (sends.size() != parts_.ranks || recv_bytes.size() != parts_.ranks)
    return fail(ErrorCode::kBadInput, std::to_string(sends.size()) + " blocks to send and " +
                                          std::to_string(recv_bytes.size()) + " sizes to receive for " +
                                          std::to_string(parts_.ranks) + " ranks; give one of each per rank");
  for (std::uint32_t r = 0; r < parts_.ranks; ++r) {
    const std::string where = describe(tag) + ", block to rank " + std::to_string(r);
    if (auto ok = check_block(sends[r], kMaxBlockBytes); !ok) return fail_in(where, ok.error());
    if (recv_bytes[r] > kMaxBlockBytes)
      return fail(ErrorCode::kLimit, describe(tag) + ": " + std::to_string(recv_bytes[r]) + " bytes from rank " +
                                         std::to_string(r) + "; at most " + std::to_string(kMaxBlockBytes) +
                                         " are possible, send them in rounds");
  }
  const std::uint32_t self = parts_.self.value;
  if (sends[self].bytes() != recv_bytes[self])
    return tl::unexpected(mismatch(parts_.self, parts_.self, tag, recv_bytes[self], tag, sends[self].bytes()));

  round_ = {round_.number + 1, tag};
  pending_.clear();
  note_peer_ends();
  if (auto error = end_of_the_road()) return tl::unexpected(*error);
  // Each rank starts with its neighbour, so that not all write to rank 0 at once.
  for (std::uint32_t i = 1; i < parts_.ranks; ++i) {
    const std::uint32_t r = (self + i) % parts_.ranks;
    if (auto ok = parts_.channels[r]->begin(round_, sends[r], recv_bytes[r]); !ok) return ok;
    pending_.push_back(r);
  }
  return {};
}

Result<void> CpuAllToAll::finish(std::span<const SendBlock> sends, Clock::time_point deadline) {
  const bool crowded = parts_.ranks_on_host > cores_of_host();
  bool own_block_is_there = false;
  const Clock::duration spin = parts_.poller ? Clock::duration(kPollerSpin) : Clock::duration(kSpin);
  Clock::time_point quiet_since{};  // epoch: something moved in the last pass
  int yields = 0;
  for (;;) {
    note_peer_ends();
    auto moved = pass();
    if (!moved) return tl::unexpected(moved.error());
    if (!own_block_is_there) {
      // After the first pass, so that the peers do not wait for it.
      if (auto ok = copy_own_block(sends[parts_.self.value]); !ok) return ok;
      own_block_is_there = true;
      continue;
    }
    if (pending_.empty() && !own_end_) return {};
    // A block can take many passes: an end counts when nothing that was sent before it is left.
    if (own_end_ || !*moved) {
      if (auto error = end_of_the_road()) return tl::unexpected(*error);
    }
    const auto now = Clock::now();
    if (now >= deadline) return tl::unexpected(late());
    if (*moved) {
      quiet_since = {};
      yields = 0;
      continue;
    }
    if (quiet_since == Clock::time_point{}) quiet_since = now;
    if (!crowded && now - quiet_since < spin) {
      relax();
    } else if (yields < 2) {
      ++yields;
      ::sched_yield();
    } else if (auto ok = sleep(deadline); !ok) {
      return ok;
    }
  }
}

Result<void> CpuAllToAll::copy_own_block(const SendBlock& block) {
  auto room = own_block_.room(block.bytes());
  if (!room) return tl::unexpected(room.error());
  copy_block(*room, block, 0, block.bytes());
  blocks_[parts_.self.value] = {*room, block.bytes()};
  return {};
}

Result<bool> CpuAllToAll::pass() {
  auto moved = move_blocks();
  if (!moved || pending_.empty() || !parts_.poller || !parts_.poller->poll()) return moved;
  // What the poll brought is taken at once: another poll would cost a system call.
  auto more = move_blocks();
  if (!more) return more;
  return true;
}

Result<bool> CpuAllToAll::move_blocks() {
  bool moved = false;
  for (const std::uint32_t r : pending_) {
    auto some = parts_.channels[r]->progress();
    if (!some) return some;
    moved |= *some;
  }
  std::erase_if(pending_,
                [&](std::uint32_t r) { return parts_.channels[r]->sent() && parts_.channels[r]->received(); });
  return moved;
}

void CpuAllToAll::note_peer_ends() {
  own_end_ = aborted_.load();
  for (std::uint32_t r = 0; r < parts_.ranks; ++r) {
    if (!parts_.channels[r]) continue;
    PeerEnd end = parts_.channels[r]->peer_end();
    peer_ends_[r] = end.how == Farewell::kNone ? std::nullopt : std::optional(std::move(end));
  }
}

std::optional<Error> CpuAllToAll::end_of_the_road() {
  const std::string where = describe(round_.tag) + " of view " + std::to_string(parts_.view.value);
  if (own_end_) {
    const std::lock_guard lock(mutex_);
    return Error{ErrorCode::kAborted, where + ": aborted: " + reason_};
  }
  // An abort ends the view for all, also for those who have what they need from the one that says so.
  for (std::uint32_t r = 0; r < parts_.ranks; ++r) {
    if (peer_ends_[r] && peer_ends_[r]->how == Farewell::kAborted)
      return Error{ErrorCode::kAborted,
                   where + ": aborted by rank " + std::to_string(r) + ": " + peer_ends_[r]->reason};
  }
  for (const std::uint32_t r : pending_) {
    if (peer_ends_[r])
      return Error{ErrorCode::kUnavailable, where + ": rank " + std::to_string(r) + " is gone: " +
                                                peer_ends_[r]->reason + "; abort, and wait for the next view"};
  }
  return std::nullopt;
}

Result<void> CpuAllToAll::sleep(Clock::time_point deadline) {
  std::atomic<std::uint32_t>& sleeping = parts_.inbox->head().sleeping;
  sleeping.store(1);
  // What came before this word was set rang no bell: look once more.
  note_peer_ends();
  auto moved = pass();
  const bool awake = !moved || *moved || pending_.empty() || end_of_the_road();
  const bool busy = !awake && parts_.poller && !parts_.poller->arm();
  if (awake || busy) {
    sleeping.store(0);
    if (!moved) return tl::unexpected(moved.error());
    // The library has something to do that its own thread may have to finish: let that run.
    if (busy) ::sched_yield();
    return {};
  }
  const auto nap = std::min<Clock::duration>(deadline - Clock::now(), kLongestNap);
  const auto ms = std::max<std::int64_t>(0, std::chrono::ceil<std::chrono::milliseconds>(nap).count());
  std::array<epoll_event, 16> events{};
  const int ready = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), static_cast<int>(ms));
  sleeping.store(0);
  if (ready < 0 && errno != EINTR) return fail_errno("epoll_wait in an all-to-all");
  for (int i = 0; i < ready; ++i) {
    const auto& event = events[static_cast<std::size_t>(i)];
    if (event.data.u64 == kWakeUp) continue;
    Channel& channel = *parts_.channels[event.data.u64];
    channel.look_at_fd();
    // An end stays readable for ever: once seen it must not keep us awake.
    if (channel.peer_end().how != Farewell::kNone)
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, channel.watched_fd(), nullptr);
  }
  return {};
}

Error CpuAllToAll::late() const {
  constexpr std::size_t kNamed = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(pending_.size(), kNamed); ++i) {
    const Channel& channel = *parts_.channels[pending_[i]];
    text += (i == 0 ? "rank " : ", rank ") + std::to_string(pending_[i]);
    text += channel.received() ? " takes no more of its block" : " has not sent its block";
  }
  if (pending_.size() > kNamed) text += " and " + std::to_string(pending_.size() - kNamed) + " more";
  return Error{ErrorCode::kDeadline, describe(round_.tag) + " of view " + std::to_string(parts_.view.value) +
                                         ": deadline passed on rank " + std::to_string(parts_.self.value) + ": " +
                                         text};
}

void CpuAllToAll::abort(std::string reason) {
  {
    const std::lock_guard lock(mutex_);
    if (aborted_.load()) return;
    reason_ = reason;
    aborted_.store(true);
  }
  parts_.bell->ring();
  for (const auto& channel : parts_.channels)
    if (channel) channel->leave(Farewell::kAborted, reason);
}

AllToAllStats CpuAllToAll::stats() const {
  AllToAllStats stats;
  stats.exchanges = exchanges_.load(std::memory_order_relaxed);
  stats.bytes_sent = bytes_sent_.load(std::memory_order_relaxed);
  stats.bytes_received = bytes_received_.load(std::memory_order_relaxed);
  return stats;
}

}  // namespace troupe::gpu::cpu
