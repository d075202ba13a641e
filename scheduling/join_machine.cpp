#include "scheduling/join_machine.hpp"

#include <algorithm>
#include <utility>

namespace troupe::scheduling {
namespace {

std::string text(std::uint64_t value) {
  return std::to_string(value);
}

/// A text from the network for a person's eyes: short, and without control characters.
std::string shown(const std::string& name, std::size_t most = 64) {
  std::string out = "\"";
  for (const char c : name.substr(0, most)) out += c >= ' ' && c < '\x7f' ? c : '?';
  return out + (name.size() > most ? "...\"" : "\"");
}

std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t kNamed = 8;
  std::string out;
  for (std::size_t i = 0; i < names.size() && i < kNamed; ++i) out += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kNamed) out += " and " + text(names.size() - kNamed) + " more";
  return out;
}

JoinDecision reject(const std::string& node, std::string_view about, Error error) {
  return SendTo{node,
                messages::Reject{std::string(about), static_cast<std::uint16_t>(error.code), std::move(error.message)}};
}

}  // namespace

JoinMachine::JoinMachine(std::vector<std::string> expected, std::uint64_t plan_digest,
                         std::uint32_t max_tokens_per_pass, View last_view, Incarnation last_incarnation)
    : expected_(std::move(expected)),
      plan_digest_(plan_digest),
      max_tokens_per_pass_(max_tokens_per_pass),
      slots_(expected_.size()),
      last_view_(last_view),
      last_incarnation_(last_incarnation) {}

std::size_t JoinMachine::index_of(const std::string& node) const {
  return static_cast<std::size_t>(std::find(expected_.begin(), expected_.end(), node) - expected_.begin());
}

std::optional<Error> JoinMachine::refusal(const messages::Join& join) const {
  const std::size_t index = index_of(join.node);
  const std::string node = "node " + shown(join.node);
  if (index == expected_.size()) {
    return Error{ErrorCode::kRefused, node + " is not in the config, which names " + listed(expected_)};
  }
  // The limit is part of the plan, too; named first, since two numbers say more than two digests.
  if (join.max_tokens_per_pass != max_tokens_per_pass_) {
    return Error{ErrorCode::kMismatch, node + " has limits.max_tokens_per_pass = " + text(join.max_tokens_per_pass) +
                                           ", the coordinator " + text(max_tokens_per_pass_) +
                                           "; give all the same config"};
  }
  if (join.plan_digest != plan_digest_) {
    return Error{ErrorCode::kMismatch, node + " has another effective plan (digest " + text(join.plan_digest) +
                                           ", the coordinator's is " + text(plan_digest_) +
                                           "); give all the same config"};
  }
  // GPUs are numbered in 16 bits.
  if (join.gpus.size() > 65'536)
    return Error{ErrorCode::kLimit, node + " offers " + text(join.gpus.size()) + " GPUs; at most 65536"};
  const Slot& slot = slots_[index];
  if (slot.left && slot.join.start_nonce == join.start_nonce) {
    return Error{ErrorCode::kStale, node + ": this start has left; start the node again"};
  }
  if (slot.joined && slot.join.start_nonce != join.start_nonce) {
    return Error{ErrorCode::kRefused, node + " is in already, as incarnation " + text(slot.incarnation.value) +
                                          ", from another start; stop that one first"};
  }
  if (slot.joined && slot.join != join) {
    return Error{ErrorCode::kMismatch, node + ": this start has joined before, with other addresses"};
  }
  if (!slot.joined && state_ != State::kJoining) {
    return Error{ErrorCode::kIllegalTransition, node + ": Join needs state joining, the cluster is " + describe()};
  }
  return std::nullopt;
}

std::vector<JoinDecision> JoinMachine::on_join(const messages::Join& join) {
  if (auto error = refusal(join)) return {reject(join.node, messages::Join::kName, std::move(*error))};
  const std::size_t index = index_of(join.node);
  Slot& slot = slots_[index];
  const bool fresh = !slot.joined;
  if (fresh) {
    last_incarnation_ = last_incarnation_.next();
    slot = Slot{true, false, join, last_incarnation_, Epoch{}};
  }
  std::vector<JoinDecision> decisions{
      SendTo{join.node, messages::JoinAccepted{join.node, join.start_nonce, NodeId{static_cast<std::uint16_t>(index)},
                                               slot.incarnation}}};
  const bool all = std::all_of(slots_.begin(), slots_.end(), [](const Slot& s) { return s.joined; });
  if (fresh && all) issue_view(decisions);
  return decisions;
}

void JoinMachine::issue_view(std::vector<JoinDecision>& decisions) {
  last_view_ = last_view_.next();
  view_ = {last_view_, {}};
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const messages::Join& join = slots_[i].join;
    view_.members.push_back({join.node, NodeId{static_cast<std::uint16_t>(i)}, slots_[i].incarnation,
                             join.control_endpoint, join.control_key, join.door_endpoint, join.gpus});
  }
  state_ = State::kViewIssued;
  decisions.emplace_back(IssueView{view_});
}

std::vector<JoinDecision> JoinMachine::on_ready(const messages::NodeReady& ready) {
  const auto refuse = [&](ErrorCode code, const std::string& what) {
    return std::vector<JoinDecision>{
        reject(ready.node, messages::NodeReady::kName,
               {code, "node " + shown(ready.node) + " is ready for view " + text(ready.view.value) + ", epoch " +
                          text(ready.epoch.value) + ": " + what})};
  };
  const std::size_t index = index_of(ready.node);
  if (index == expected_.size()) return refuse(ErrorCode::kRefused, "the config names " + listed(expected_));
  if (state_ == State::kGivenUp) return {};
  if (state_ == State::kJoining) {
    return refuse(ErrorCode::kIllegalTransition, "this needs state view issued, the cluster is " + describe());
  }
  if (ready.view != view_.view) {
    return refuse(ready.view < view_.view ? ErrorCode::kStale : ErrorCode::kMismatch,
                  "the view is " + text(view_.view.value));
  }
  if (ready.epoch == Epoch{}) return refuse(ErrorCode::kMismatch, "epoch 0 is none");
  Slot& slot = slots_[index];
  slot.ready = std::max(slot.ready, ready.epoch);
  if (state_ == State::kServing) return {};
  // One epoch for all: a node that is ready with a newer one may not hold the older any more.
  const bool all = std::all_of(slots_.begin(), slots_.end(), [&](const Slot& s) { return s.ready == slot.ready; });
  if (!all) return {};
  state_ = State::kServing;
  return {StartServing{messages::ServingStarted{view_.view, slot.ready}}};
}

std::vector<JoinDecision> JoinMachine::on_leave(const messages::Leave& leave) {
  const std::size_t index = index_of(leave.node);
  if (index == expected_.size() || !slots_[index].joined || state_ == State::kGivenUp) return {};
  if (state_ != State::kJoining) {
    return give_up(leave.node, leave.reason.empty() ? "left without a reason" : "left: " + shown(leave.reason, 256));
  }
  slots_[index].joined = false;
  slots_[index].left = true;
  return {};
}

std::vector<JoinDecision> JoinMachine::on_silent(const std::string& node, std::uint64_t silent_ms) {
  const std::size_t index = index_of(node);
  if (index == expected_.size() || !slots_[index].joined || state_ == State::kGivenUp) return {};
  const std::string why = "has not been heard of for " + text(silent_ms) + " ms";
  if (state_ != State::kJoining) return give_up(node, why);
  slots_[index].joined = false;
  slots_[index].left = true;
  return {SendTo{node, messages::Shutdown{"node " + node + " " + why + ", its place is free again; start it anew"}}};
}

std::vector<JoinDecision> JoinMachine::give_up(const std::string& node, const std::string& why) {
  std::string state = describe();
  state_ = State::kGivenUp;
  return {GiveUp{
      {ErrorCode::kUnavailable, "node " + node + " " + why + " (" + state + "); the cluster cannot go on without it"}}};
}

std::vector<std::string> JoinMachine::missing() const {
  std::vector<std::string> names;
  Epoch newest{1};
  for (const Slot& slot : slots_) newest = std::max(newest, slot.ready);
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const bool there = state_ == State::kJoining ? slots_[i].joined : slots_[i].ready == newest;
    if (!there) names.push_back(expected_[i]);
  }
  return names;
}

std::string JoinMachine::describe() const {
  switch (state_) {
    case State::kJoining:
      return "joining, without " + listed(missing());
    case State::kViewIssued:
      return "waiting in view " + text(view_.view.value) + " until ready: " + listed(missing());
    case State::kServing:
      return "serving view " + text(view_.view.value);
    case State::kGivenUp:
      return "given up";
  }
  return "unknown";
}

}  // namespace troupe::scheduling
