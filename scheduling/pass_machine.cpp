// Programming errors assert in all builds.
#undef NDEBUG
#include "scheduling/pass_machine.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

namespace troupe::scheduling {
namespace {

template <class Id>
std::string text(Id id) {
  return std::to_string(id.value);
}

}  // namespace

PassMachine::PassMachine(View view, Rank self, std::uint32_t ranks, Epoch newest_epoch, PassNumber last_done)
    : view_(view), self_(self), last_done_(last_done), newest_epoch_(newest_epoch), current_(ranks), ahead_(ranks) {
  assert(self.value < ranks);
}

std::vector<PassDecision> PassMachine::on_work(std::uint32_t tokens_waiting) {
  if (state_ == State::kIdle) {
    // Opening round: a rank with work opens the pass. All ranks have finished the one before, or it would not be done
    // here.
    return tokens_waiting > 0 ? open(tokens_waiting) : std::vector<PassDecision>{};
  }
  // Until the pass runs, the caller still counts the tokens that its opening has named.
  const std::uint32_t named = state_ == State::kOpening ? own_tokens_ : 0;
  waiting_ = std::max(waiting_, tokens_waiting - std::min(tokens_waiting, named));
  return {};
}

Result<std::vector<PassDecision>> PassMachine::on_opened(const messages::PassOpened& message) {
  const auto refuse = [&](ErrorCode code, const std::string& what) {
    ++(code == ErrorCode::kStale ? stats_.stale : stats_.refused);
    return fail(code, "rank " + text(message.from) + " opens pass " + text(message.pass) + " of view " +
                          text(message.view) + " with epoch " + text(message.newest_epoch) + ": " + what +
                          "; here: view " + text(view_) + ", rank " + text(self_) + ", " + describe());
  };
  if (message.view < view_) return refuse(ErrorCode::kStale, "the view is older");
  if (message.view > view_) return refuse(ErrorCode::kMismatch, "the view is not known yet");
  if (message.from.value >= current_.size()) {
    return refuse(ErrorCode::kMismatch, "the view has " + std::to_string(current_.size()) + " ranks");
  }
  if (message.pass <= last_done_) {
    ++stats_.stale;
    return std::vector<PassDecision>{};
  }
  // A rank cannot be further ahead: to run the pass in between it needs this rank's opening. While this rank is idle
  // its opening of the next pass is not out, so that nobody can have run that one.
  const PassNumber open_now = last_done_.next();
  const bool next = state_ != State::kIdle && message.pass == open_now.next();
  if (message.pass != open_now && !next) return refuse(ErrorCode::kMismatch, "the pass is too far ahead");
  std::optional<messages::PassOpened>& known = (next ? ahead_ : current_)[message.from.value];
  if (known) {
    if (*known != message) return refuse(ErrorCode::kMismatch, "the rank has opened it before, with other numbers");
    ++stats_.repeated;
    return std::vector<PassDecision>{};
  }
  if (message.from == self_) return refuse(ErrorCode::kMismatch, "that is this rank's own number");
  // Every rank has named at least the epoch that ran; a rank never goes back.
  if (message.newest_epoch < running_epoch_) {
    return refuse(ErrorCode::kStale, "a pass has run with epoch " + text(running_epoch_));
  }
  known = message;
  if (next) return std::vector<PassDecision>{};
  // A rank without work joins as soon as it hears of the pass.
  if (state_ == State::kIdle) return open(0);
  std::vector<PassDecision> decisions;
  run_if_all_opened(decisions);
  return decisions;
}

Result<std::vector<PassDecision>> PassMachine::on_finished(PassNumber pass, std::uint32_t tokens_waiting) {
  if (state_ != State::kRunning || pass != current()) {
    return fail(ErrorCode::kIllegalTransition, "pass " + text(pass) + " finished: rank " + text(self_) +
                                                   " must be running pass " + text(pass) + ", but is " + describe());
  }
  last_done_ = pass;
  state_ = State::kIdle;
  own_tokens_ = 0;
  current_.swap(ahead_);
  for (auto& opening : ahead_) opening.reset();
  const std::uint32_t tokens = std::max(waiting_, tokens_waiting);
  waiting_ = 0;
  const bool called =
      std::any_of(current_.begin(), current_.end(), [](const auto& opening) { return opening.has_value(); });
  return tokens > 0 || called ? open(tokens) : std::vector<PassDecision>{};
}

bool PassMachine::on_epoch(Epoch epoch) {
  if (epoch <= newest_epoch_) return false;
  newest_epoch_ = epoch;
  return true;
}

std::vector<PassDecision> PassMachine::open(std::uint32_t tokens) {
  state_ = State::kOpening;
  own_tokens_ = tokens;
  ++stats_.passes_opened;
  const messages::PassOpened opening{view_, current(), self_, newest_epoch_, tokens};
  current_[self_.value] = opening;
  std::vector<PassDecision> decisions{AnnouncePass{opening}};
  run_if_all_opened(decisions);
  return decisions;
}

void PassMachine::run_if_all_opened(std::vector<PassDecision>& decisions) {
  RunPass run{current(), newest_epoch_, own_tokens_, 0};
  for (const auto& opening : current_) {
    if (!opening) return;
    // Opening round: the lowest epoch that any rank named. All ranks take it from the same openings.
    run.epoch = std::min(run.epoch, opening->newest_epoch);
    run.all_tokens += opening->tokens;
  }
  state_ = State::kRunning;
  running_epoch_ = run.epoch;
  decisions.emplace_back(run);
}

std::string PassMachine::describe() const {
  switch (state_) {
    case State::kIdle:
      return "idle, pass " + text(last_done_) + " done";
    case State::kRunning:
      return "running pass " + text(current()) + " with epoch " + text(running_epoch_);
    case State::kOpening:
      break;
  }
  std::string missing;
  for (std::size_t r = 0; r < current_.size(); ++r) {
    if (!current_[r]) missing += (missing.empty() ? "" : ", ") + std::to_string(r);
  }
  return "opening pass " + text(current()) + ", waiting for ranks " + missing;
}

}  // namespace troupe::scheduling
