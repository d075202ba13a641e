#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gpu/cpu/all_to_all_connect.hpp"
#include "gpu/cpu/all_to_all_exchange.hpp"
#include "gpu/cpu/inbox_channel.hpp"

namespace troupe::gpu {
namespace cpu {
namespace {

/// Where the endpoints of one process meet to build a view.
struct Hub {
  struct Place {
    std::shared_ptr<Inbox> inbox;
    std::shared_ptr<const Doorbell> bell;
  };
  struct Meeting {
    Agreement agreement;
    std::uint32_t called_by = 0;  ///< rank that came first, whose agreement counts
    std::vector<Place> places;    ///< by rank; empty until it has come
    std::uint32_t present = 0;
    std::uint32_t leaving = 0;  ///< how many have taken the complete list
    bool complete() const { return present == places.size(); }
  };

  std::mutex mutex;
  std::condition_variable changed;
  std::map<View, Meeting> meetings;
  std::vector<View> newest;  ///< by endpoint: the newest view that anyone has called it to
};

class InProcessEndpoint final : public BulkEndpoint {
 public:
  InProcessEndpoint(std::shared_ptr<Hub> hub, std::string hub_key, std::uint32_t index, BulkOptions options)
      : hub_(std::move(hub)), index_(index), options_(std::move(options)) {
    address_.host_key = std::move(hub_key);
    address_.shm_name = std::to_string(index);
  }
  ~InProcessEndpoint() override { shut(); }

  messages::BulkAddress address() const override { return address_; }

  Result<std::unique_ptr<AllToAll>> connect(View view, Rank self, std::span<const messages::BulkAddress> ranks,
                                            AllToAll::Clock::time_point deadline) override;
  void shut() override {
    const std::lock_guard lock(hub_->mutex);
    shut_ = true;
    hub_->changed.notify_all();
  }

 private:
  Result<std::vector<std::uint32_t>> indices(std::span<const messages::BulkAddress> ranks) const;
  Result<std::vector<Hub::Place>> meet(const Agreement& agreement, Rank self, const std::vector<std::uint32_t>& members,
                                       Hub::Place own, AllToAll::Clock::time_point deadline);

  const std::shared_ptr<Hub> hub_;
  const std::uint32_t index_;
  const BulkOptions options_;
  messages::BulkAddress address_;
  View connected_;     ///< newest view that a connect has succeeded for
  bool shut_ = false;  ///< guarded by the hub's mutex
};

// The addresses are this process's own, but they have been through config files and messages.
Result<std::vector<std::uint32_t>> InProcessEndpoint::indices(std::span<const messages::BulkAddress> ranks) const {
  std::vector<std::uint32_t> members;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    std::uint32_t index = 0;
    while (index < hub_->newest.size() && ranks[r].shm_name != std::to_string(index)) ++index;
    if (ranks[r].host_key != address_.host_key || index == hub_->newest.size())
      return fail(ErrorCode::kUnavailable, "rank " + std::to_string(r) +
                                               " is not in this process, and this endpoint reaches no other; use "
                                               "make_bulk_endpoint for ranks in other processes");
    members.push_back(index);
  }
  return members;
}

Result<std::vector<Hub::Place>> InProcessEndpoint::meet(const Agreement& agreement, Rank self,
                                                        const std::vector<std::uint32_t>& members, Hub::Place own,
                                                        AllToAll::Clock::time_point deadline) {
  const View view = agreement.view;
  const std::string where = "connecting view " + std::to_string(view.value) + " on rank " + std::to_string(self.value);
  std::unique_lock lock(hub_->mutex);
  for (const std::uint32_t member : members) hub_->newest[member] = std::max(hub_->newest[member], view);
  Hub::Meeting& meeting = hub_->meetings[view];
  if (meeting.places.empty()) {
    meeting.agreement = agreement;
    meeting.called_by = self.value;
    meeting.places.resize(members.size());
  }
  if (meeting.agreement != agreement)
    return tl::unexpected(disagreement(self, Rank(meeting.called_by), agreement, meeting.agreement));
  if (meeting.places[self.value].inbox) return fail(ErrorCode::kBadInput, where + ": this rank is connecting already");
  meeting.places[self.value] = std::move(own);
  ++meeting.present;
  hub_->changed.notify_all();
  const auto over = [&] { return shut_ || meeting.complete() || hub_->newest[index_] > view; };
  hub_->changed.wait_until(lock, deadline, over);

  if (meeting.complete()) {
    std::vector<Hub::Place> places = meeting.places;
    if (++meeting.leaving == places.size()) hub_->meetings.erase(view);
    return places;
  }
  std::vector<std::uint32_t> missing;
  for (std::uint32_t r = 0; r < meeting.places.size(); ++r)
    if (!meeting.places[r].inbox) missing.push_back(r);
  meeting.places[self.value] = {};
  if (--meeting.present == 0) hub_->meetings.erase(view);
  if (shut_) return fail(ErrorCode::kAborted, where + ": the endpoint has been shut");
  if (hub_->newest[index_] > view)
    return fail(ErrorCode::kStale, where + ": a peer connects for view " + std::to_string(hub_->newest[index_].value) +
                                       " already; connect for that");
  return fail(ErrorCode::kDeadline, where + ": deadline passed; missing: " + name_ranks(missing));
}

Result<std::unique_ptr<AllToAll>> InProcessEndpoint::connect(View view, Rank self,
                                                             std::span<const messages::BulkAddress> ranks,
                                                             AllToAll::Clock::time_point deadline) {
  auto agreement = check_connect(view, self, ranks, address_, connected_, options_.inbox_bytes);
  if (!agreement) return tl::unexpected(agreement.error());
  auto members = indices(ranks);
  if (!members) return tl::unexpected(members.error());
  auto inbox = Inbox::make_plain({agreement->ranks, options_.inbox_bytes});
  if (!inbox) return tl::unexpected(inbox.error());
  auto bell = Doorbell::make();
  if (!bell) return tl::unexpected(bell.error());
  Hub::Place own{*inbox, std::make_shared<const Doorbell>(std::move(*bell))};
  auto places = meet(*agreement, self, *members, own, deadline);
  if (!places) return tl::unexpected(places.error());

  CpuAllToAll::Parts parts;
  parts.view = view;
  parts.self = self;
  parts.ranks = agreement->ranks;
  parts.ranks_on_host = agreement->ranks;
  parts.inbox = own.inbox;
  parts.bell = own.bell;
  parts.channels.resize(parts.ranks);
  for (std::uint32_t r = 0; r < parts.ranks; ++r) {
    if (r == self.value) continue;
    parts.channels[r] =
        std::make_unique<InboxChannel>(self, Rank(r), own.inbox, (*places)[r].inbox, (*places)[r].bell, Fd());
  }
  auto made = CpuAllToAll::make(std::move(parts));
  if (made) connected_ = view;
  return made;
}

}  // namespace
}  // namespace cpu

std::vector<std::unique_ptr<BulkEndpoint>> make_in_process_endpoints(std::uint32_t count, const BulkOptions& options) {
  static std::atomic<std::uint64_t> next_hub{0};
  auto hub = std::make_shared<cpu::Hub>();
  hub->newest.resize(count);
  const std::string key = "in-process:" + std::to_string(next_hub.fetch_add(1));
  std::vector<std::unique_ptr<BulkEndpoint>> endpoints;
  for (std::uint32_t i = 0; i < count; ++i)
    endpoints.push_back(std::make_unique<cpu::InProcessEndpoint>(hub, key, i, options));
  return endpoints;
}

}  // namespace troupe::gpu
