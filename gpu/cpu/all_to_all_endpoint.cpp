#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "gpu/cpu/all_to_all_exchange.hpp"
#include "gpu/cpu/all_to_all_meeting.hpp"
#include "gpu/cpu/shm_meeting.hpp"
#include "gpu/cpu/ucx_meeting.hpp"

namespace troupe::gpu {
namespace cpu {
namespace {

using namespace std::chrono_literals;

// How long a peer whose queue of callers is full, or that hung up on us, is left alone.
constexpr auto kCallAgain = 2ms;
constexpr auto kLongestNap = 100ms;

enum class Way { kSelf, kShm, kUcx, kNone };

class MixedEndpoint final : public BulkEndpoint {
 public:
  static Result<std::unique_ptr<BulkEndpoint>> make(const BulkOptions& options, const std::string& secret);

  messages::BulkAddress address() const override { return address_; }
  Result<std::unique_ptr<AllToAll>> connect(View view, Rank self, std::span<const messages::BulkAddress> ranks,
                                            AllToAll::Clock::time_point deadline) override;
  void shut() override {
    shut_.store(true);
    bell_.ring();
  }

 private:
  MixedEndpoint(BulkOptions options, Doorbell bell) : options_(std::move(options)), bell_(std::move(bell)) {}
  std::string why_not(const messages::BulkAddress& peer) const;
  Way way_to(Rank self, std::uint32_t r, std::span<const messages::BulkAddress> ranks) const;
  Result<void> meet(const std::vector<Meeting*>& meetings, const std::string& where,
                    AllToAll::Clock::time_point deadline);
  Result<void> wait(const std::vector<Meeting*>& meetings, AllToAll::Clock::time_point deadline) const;

  const BulkOptions options_;
  const Doorbell bell_;  ///< rung by shut
  std::atomic<bool> shut_{false};
  messages::BulkAddress address_;
  std::unique_ptr<ShmDoor> door_;
  std::shared_ptr<UcxWorker> ucx_;
  std::string no_ucx_;  ///< why there is no UCX worker
  View connected_;      ///< newest view that a connect has succeeded for
};

Result<std::unique_ptr<BulkEndpoint>> MixedEndpoint::make(const BulkOptions& options, const std::string& secret) {
  auto bell = Doorbell::make();
  if (!bell) return tl::unexpected(bell.error());
  std::unique_ptr<MixedEndpoint> made(new MixedEndpoint(options, std::move(*bell)));
  if (options.transport != BulkTransport::kUcx) {
    auto host = read_host_key();
    if (!host) return tl::unexpected(host.error());
    auto door = ShmDoor::open(secret);
    if (!door) return tl::unexpected(door.error());
    made->door_ = std::move(*door);
    made->address_.host_key = *host;
    made->address_.shm_name = made->door_->name();
  }
  if (options.transport != BulkTransport::kShm) {
    auto ucx = UcxWorker::make(options.ucx_tls, secret);
    if (ucx) {
      made->ucx_ = std::move(*ucx);
      made->address_.ucx_address = made->ucx_->address();
    } else if (options.transport == BulkTransport::kUcx) {
      return tl::unexpected(ucx.error());
    } else {
      made->no_ucx_ = ucx.error().message;  // matters only if some rank cannot share memory
    }
  } else {
    made->no_ucx_ = "transport shm";
  }
  return std::unique_ptr<BulkEndpoint>(std::move(made));
}

// Both ends of a pair come to the same answer, since both see the same two addresses.
Way MixedEndpoint::way_to(Rank self, std::uint32_t r, std::span<const messages::BulkAddress> ranks) const {
  if (r == self.value) return Way::kSelf;
  const auto& own = ranks[self.value];
  const auto& peer = ranks[r];
  if (!own.shm_name.empty() && !peer.shm_name.empty() && own.host_key == peer.host_key) return Way::kShm;
  if (!own.ucx_address.empty() && !peer.ucx_address.empty()) return Way::kUcx;
  return Way::kNone;
}

std::string MixedEndpoint::why_not(const messages::BulkAddress& peer) const {
  std::string why = "shared memory: ";
  if (address_.shm_name.empty()) {
    why += "not offered here";
  } else if (peer.shm_name.empty()) {
    why += "not offered there";
  } else {
    why += "another host, network namespace or user (" + address_.host_key + " here, " + peer.host_key + " there)";
  }
  why += "; UCX: ";
  if (!ucx_) {
    why += "not offered here (" + no_ucx_ + ")";
  } else {
    why += "not offered there";
  }
  return why;
}

Result<std::unique_ptr<AllToAll>> MixedEndpoint::connect(View view, Rank self,
                                                         std::span<const messages::BulkAddress> ranks,
                                                         AllToAll::Clock::time_point deadline) {
  const std::string where = "connecting view " + std::to_string(view.value) + " on rank " + std::to_string(self.value);
  if (shut_.load()) return fail(ErrorCode::kAborted, where + ": the endpoint has been shut");
  auto agreement = check_connect(view, self, ranks, address_, connected_, options_.inbox_bytes);
  if (!agreement) return tl::unexpected(agreement.error());

  auto inbox = Inbox::make_shared({agreement->ranks, options_.inbox_bytes});
  if (!inbox) return fail_in(where, inbox.error());
  auto bell = Doorbell::make();
  if (!bell) return fail_in(where, bell.error());
  CpuAllToAll::Parts parts;
  parts.view = view;
  parts.self = self;
  parts.ranks = agreement->ranks;
  parts.inbox = *inbox;
  parts.bell = std::make_shared<const Doorbell>(std::move(*bell));
  parts.channels.resize(parts.ranks);

  ShmMeeting::Plan shm{self, *agreement, {}, parts.inbox, parts.bell};
  UcxMeeting::Plan ucx{self, *agreement, {}, options_.inbox_bytes};
  for (std::uint32_t r = 0; r < parts.ranks; ++r) {
    const Way way = way_to(self, r, ranks);
    if (way == Way::kShm) shm.peers.emplace_back(Rank(r), ranks[r].shm_name);
    if (way == Way::kUcx) ucx.peers.emplace_back(Rank(r), ranks[r].ucx_address);
    if (way == Way::kNone)
      return fail(ErrorCode::kUnavailable,
                  where + ": no transport reaches rank " + std::to_string(r) + ": " + why_not(ranks[r]));
  }
  if (!ucx.peers.empty()) parts.poller = ucx_;
  parts.ranks_on_host = static_cast<std::uint32_t>(shm.peers.size()) + 1;
  std::vector<Meeting*> meetings;
  std::optional<ShmMeeting> shm_meeting;
  if (door_) {
    shm_meeting.emplace(*door_, std::move(shm));
    meetings.push_back(&*shm_meeting);
  }
  std::optional<UcxMeeting> ucx_meeting;
  if (ucx_) {
    ucx_meeting.emplace(ucx_, std::move(ucx));
    meetings.push_back(&*ucx_meeting);
  }
  if (auto ok = meet(meetings, where, deadline); !ok) return tl::unexpected(ok.error());
  for (Meeting* meeting : meetings) meeting->hand_over(parts.channels);
  auto made = CpuAllToAll::make(std::move(parts));
  if (made) connected_ = view;
  return made;
}

Result<void> MixedEndpoint::meet(const std::vector<Meeting*>& meetings, const std::string& where,
                                 AllToAll::Clock::time_point deadline) {
  bool said_ready = false;
  for (;;) {
    std::vector<std::uint32_t> missing;
    for (Meeting* meeting : meetings) {
      if (auto ok = meeting->step(); !ok) return fail_in(where, ok.error());
      meeting->missing(said_ready, missing);
    }
    if (missing.empty()) {
      if (said_ready) return {};
      for (Meeting* meeting : meetings) meeting->say_ready();
      said_ready = true;
      continue;
    }
    if (shut_.load()) return fail(ErrorCode::kAborted, where + ": the endpoint has been shut");
    if (AllToAll::Clock::now() >= deadline) {
      std::sort(missing.begin(), missing.end());
      return fail(ErrorCode::kDeadline,
                  where + ": deadline passed; " + (said_ready ? "not ready: " : "missing: ") + name_ranks(missing));
    }
    if (auto ok = wait(meetings, deadline); !ok) return fail_in(where, ok.error());
  }
}

Result<void> MixedEndpoint::wait(const std::vector<Meeting*>& meetings, AllToAll::Clock::time_point deadline) const {
  std::vector<pollfd> fds{{bell_.fd(), POLLIN, 0}};
  AllToAll::Clock::duration nap = std::min<AllToAll::Clock::duration>(deadline - AllToAll::Clock::now(), kLongestNap);
  for (Meeting* meeting : meetings) {
    if (!meeting->watch(fds)) {
      // The library has something to do that its own thread may have to finish: let that run.
      std::this_thread::yield();
      return {};
    }
    if (meeting->impatient()) nap = std::min<AllToAll::Clock::duration>(nap, kCallAgain);
  }
  const auto ms = std::max<std::int64_t>(0, std::chrono::ceil<std::chrono::milliseconds>(nap).count());
  if (::poll(fds.data(), fds.size(), static_cast<int>(ms)) < 0 && errno != EINTR)
    return fail_errno("poll while connecting");
  return {};
}

}  // namespace
}  // namespace cpu

Result<std::unique_ptr<BulkEndpoint>> make_bulk_endpoint(const BulkOptions& options, const std::string& secret) {
  return cpu::MixedEndpoint::make(options, secret);
}

}  // namespace troupe::gpu
