#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <variant>
#include <vector>

#include "messages/control.hpp"
#include "messages/error.hpp"
#include "messages/ids.hpp"

/// The opening round of passes (DESIGN, "Passes and steps"), one machine per rank. Pure: events in, decisions out.
namespace troupe::scheduling {

/// Tell every other rank of the view.
struct AnnouncePass {
  messages::PassOpened message;
};
/// All ranks have opened pass `pass`: run it with this placement. Tokens that this rank named in its opening go in.
struct RunPass {
  PassNumber pass;
  Epoch epoch;                  ///< the lowest that any rank named
  std::uint32_t own_tokens = 0;
  std::uint64_t all_tokens = 0; ///< of all ranks together
};
using PassDecision = std::variant<AnnouncePass, RunPass>;

struct PassMachineStats {
  std::uint64_t passes_opened = 0;
  std::uint64_t stale = 0;     ///< messages of an older view, or of a pass that is done: dropped, counted
  std::uint64_t repeated = 0;  ///< the same opening again: dropped, counted
};

/// States: idle (pass p done) -> opening (p+1 announced, waiting for the others) -> running -> idle.
/// Illegal events are errors that name both states (kIllegalTransition).
class PassMachine {
 public:
  /// last_done: passes before it are history (0 in a first view).
  PassMachine(View view, Rank self, std::uint32_t ranks, Epoch newest_epoch, PassNumber last_done = PassNumber{0});

  /// This rank has tokens waiting (never more than its limit). While idle it opens the next pass; in any other state the
  /// tokens are remembered and open the one after.
  std::vector<PassDecision> on_work(std::uint32_t tokens_waiting);
  /// An opening of another rank. Errors: kStale (older view), kMismatch (a pass more than one ahead, unknown rank, or a
  /// second, different opening by the same rank); then nothing has changed.
  Result<std::vector<PassDecision>> on_opened(const messages::PassOpened& message);
  /// The device has finished the pass. tokens_waiting: what has arrived meanwhile, 0 if nothing.
  /// Errors: kIllegalTransition.
  Result<std::vector<PassDecision>> on_finished(PassNumber pass, std::uint32_t tokens_waiting);
  /// A newer placement is held from now on; named from the next opening on. Older ones are ignored (returns false).
  bool on_epoch(Epoch epoch);

  /// The most tokens this rank may name are what it had waiting when it opened.
  View view() const;
  PassNumber last_done() const;
  Epoch newest_epoch() const;
  /// Epoch of the last pass that ran; placements older than it are needed by no one any more.
  Epoch running_epoch() const;
  const PassMachineStats& stats() const;
  /// For logs: state, pass, and which ranks have not opened yet.
  std::string describe() const;

 private:
  enum class State { kIdle, kOpening, kRunning };
  std::vector<PassDecision> open(std::uint32_t tokens);
  std::vector<PassDecision> maybe_run();

  View view_;
  Rank self_;
  State state_ = State::kIdle;
  PassNumber last_done_;
  Epoch newest_epoch_;
  Epoch running_epoch_;
  std::uint32_t waiting_ = 0;
  /// Openings of the pass that is being opened, by rank; at most one per rank.
  std::vector<std::optional<messages::PassOpened>> current_;
  /// Openings of the pass after it: a fast rank can be one pass ahead, never two, since it needs our opening to go on.
  std::vector<std::optional<messages::PassOpened>> ahead_;
  PassMachineStats stats_;
};

}  // namespace troupe::scheduling
