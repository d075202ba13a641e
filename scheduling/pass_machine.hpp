#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "messages/control.hpp"
#include "messages/error.hpp"
#include "messages/ids.hpp"

/// The opening round of passes (docs/architecture.md, "Passes and steps"), one machine per rank. Pure: events in,
/// decisions out.
namespace troupe::scheduling {

/// Tell every other rank of the view.
struct AnnouncePass {
  messages::PassOpened message;
};
/// All ranks have opened pass `pass`: run it with this placement. Tokens that this rank named in its opening go in.
struct RunPass {
  PassNumber pass;
  Epoch epoch;  ///< the lowest that any rank named
  std::uint32_t own_tokens = 0;
  std::uint64_t all_tokens = 0;  ///< of all ranks together
};
using PassDecision = std::variant<AnnouncePass, RunPass>;

struct PassMachineStats {
  std::uint64_t passes_opened = 0;
  std::uint64_t stale = 0;     ///< messages of an older view or epoch, or of a pass that is done: dropped, counted
  std::uint64_t repeated = 0;  ///< the same opening again: dropped, counted
  std::uint64_t refused = 0;   ///< messages that cannot be (kMismatch): dropped, counted
};

/// States: idle (pass p done) -> opening (p+1 announced, waiting for the others) -> running -> idle.
/// Illegal events are errors that name both states (kIllegalTransition).
/// Thread rule: one thread at a time. Openings may come in any order, and more than once.
class PassMachine {
 public:
  /// self < ranks. last_done: passes up to it are history (0 in a first view).
  PassMachine(View view, Rank self, std::uint32_t ranks, Epoch newest_epoch, PassNumber last_done = PassNumber{0});

  /// This rank has tokens waiting: all that no RunPass has taken yet, never more than its limit. While idle it opens
  /// the next pass; in any other state the tokens are remembered and open the one after.
  std::vector<PassDecision> on_work(std::uint32_t tokens_waiting);
  /// An opening of another rank. Errors: kStale (older view; an epoch below the one that the last pass ran with),
  /// kMismatch (a newer view, a pass more than one ahead of this rank's, unknown rank, an opening in this rank's own
  /// name, or a second, different opening by the same rank); then nothing has changed but a counter.
  Result<std::vector<PassDecision>> on_opened(const messages::PassOpened& message);
  /// The device has finished the pass. tokens_waiting: as in on_work; of this and what on_work has said the larger
  /// counts. Errors: kIllegalTransition.
  Result<std::vector<PassDecision>> on_finished(PassNumber pass, std::uint32_t tokens_waiting);
  /// A newer placement is held from now on; named from the next opening on. Older ones are ignored (returns false).
  bool on_epoch(Epoch epoch);

  View view() const { return view_; }
  PassNumber last_done() const { return last_done_; }
  Epoch newest_epoch() const { return newest_epoch_; }
  /// Epoch of the last pass that ran or runs, 0 before the first; placements older than it are needed by no one any
  /// more.
  Epoch running_epoch() const { return running_epoch_; }
  const PassMachineStats& stats() const { return stats_; }
  /// For logs: state, pass, and which ranks have not opened yet.
  std::string describe() const;

 private:
  enum class State { kIdle, kOpening, kRunning };
  std::vector<PassDecision> open(std::uint32_t tokens);
  void run_if_all_opened(std::vector<PassDecision>& decisions);
  PassNumber current() const { return state_ == State::kIdle ? last_done_ : last_done_.next(); }

  View view_;
  Rank self_;
  State state_ = State::kIdle;
  PassNumber last_done_;
  Epoch newest_epoch_;
  Epoch running_epoch_;
  std::uint32_t own_tokens_ = 0;  ///< named in this rank's opening of the current pass
  std::uint32_t waiting_ = 0;     ///< said by on_work since, without the tokens named in the opening
  /// Openings of the current pass (idle: of the next), by rank; at most one per rank. Kept while it runs, to know
  /// repeats.
  std::vector<std::optional<messages::PassOpened>> current_;
  /// Openings of the pass after it: a fast rank can be one pass ahead, never two, since it needs our opening to go on.
  std::vector<std::optional<messages::PassOpened>> ahead_;
  PassMachineStats stats_;
};

}  // namespace troupe::scheduling
