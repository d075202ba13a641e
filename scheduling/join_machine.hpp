#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "messages/control.hpp"
#include "messages/error.hpp"

/// Membership for now: nodes join, are counted in one view, become ready, and leave. Pure.
namespace troupe::scheduling {

struct SendTo {
  std::string node;
  std::variant<messages::JoinAccepted, messages::Reject, messages::Shutdown> message;
};
/// Write to the ledger, then send to all members.
struct IssueView {
  messages::ViewPublished view;
};
/// All members are ready with (view, epoch).
struct StartServing {
  messages::ServingStarted message;
};
/// The cluster cannot go on: a member is gone, and there is no recovery yet. The error names node and reason.
struct GiveUp {
  Error error;
};
using JoinDecision = std::variant<SendTo, IssueView, StartServing, GiveUp>;

/// States: joining (waiting for the expected nodes) -> view issued (waiting for all to be ready) -> serving; and given
/// up, from any state after the view. A message that a state does not take is answered with a Reject
/// (kIllegalTransition) that names both states. Repeated messages change nothing. Thread rule: one thread at a time.
class JoinMachine {
 public:
  /// expected: names of the nodes in config order, at most 65,536; NodeId is the index. plan_digest: of the
  /// coordinator's own effective plan. last_view, last_incarnation: the last that the ledger holds; the next are issued
  /// from there.
  JoinMachine(std::vector<std::string> expected, std::uint64_t plan_digest, std::uint32_t max_tokens_per_pass,
              View last_view, Incarnation last_incarnation);

  /// A repeated Join of the same start (node, nonce) gets the same answer again. Refused, with the reason in a Reject:
  /// unknown node name, another plan digest, another token limit (names both numbers, C18), a second start while the
  /// first is in, a start that has left. When all expected nodes are in, the view is issued: members in config order.
  std::vector<JoinDecision> on_join(const messages::Join& join);
  /// Serving starts when all members are ready with the view and one and the same epoch. A node that names a newer
  /// epoch later on is counted with that.
  std::vector<JoinDecision> on_ready(const messages::NodeReady& ready);
  /// Before the view the node's place is free again, for a new start; after it the cluster gives up.
  std::vector<JoinDecision> on_leave(const messages::Leave& leave);
  /// Heartbeats of a member have been missing for longer than the limit. As on_leave; a node that was silent before the
  /// view is told to shut down, since it believes that it is in.
  std::vector<JoinDecision> on_silent(const std::string& node, std::uint64_t silent_ms);

  /// The view issued; view 0 without members before.
  const messages::ViewPublished& view() const { return view_; }
  bool serving() const { return state_ == State::kServing; }
  /// Who has not joined, or, once the view is issued, has not become ready (or is ready with an older epoch than
  /// others): for the launcher's deadline message.
  std::vector<std::string> missing() const;
  Incarnation last_incarnation() const { return last_incarnation_; }

 private:
  enum class State { kJoining, kViewIssued, kServing, kGivenUp };
  struct Slot {
    bool joined = false;
    bool left = false;  ///< the start in `join` is gone, and must not come back by a delayed message
    messages::Join join;
    Incarnation incarnation;
    Epoch ready;  ///< newest epoch that the node is ready with; 0: not ready
  };
  /// Index of the expected node of that name, or expected_.size().
  std::size_t index_of(const std::string& node) const;
  std::optional<Error> refusal(const messages::Join& join) const;
  std::vector<JoinDecision> give_up(const std::string& node, const std::string& why);
  void issue_view(std::vector<JoinDecision>& decisions);
  std::string describe() const;

  std::vector<std::string> expected_;
  std::uint64_t plan_digest_;
  std::uint32_t max_tokens_per_pass_;
  std::vector<Slot> slots_;
  messages::ViewPublished view_;
  View last_view_;
  Incarnation last_incarnation_;
  State state_ = State::kJoining;
};

/// Who is alive, by heartbeats. Time comes in; a busy main thread does not matter, since beats have their own (C33).
/// Thread rule: one thread at a time.
class BeatWatch {
 public:
  /// limit_ns: silence longer than this is reported once, until the next beat. 0: nothing is ever reported.
  explicit BeatWatch(std::uint64_t limit_ns) : limit_ns_(limit_ns) {}
  /// Beats of an incarnation older than the newest heard of are those of a start that is gone: ignored. A time before
  /// the last beat's counts as that beat's time. At most kMaxWatched nodes are watched; beats of further ones are
  /// ignored.
  void on_beat(const std::string& node, Incarnation incarnation, std::uint64_t now_ns);
  void forget(const std::string& node);
  /// As many nodes as a NodeId can name.
  static constexpr std::size_t kMaxWatched = 65'536;
  struct Silent {
    std::string node;
    std::uint64_t silent_ns = 0;
  };
  /// Who has become silent, in order of names.
  std::vector<Silent> silent(std::uint64_t now_ns);

 private:
  struct Beat {
    Incarnation incarnation;
    std::uint64_t at_ns = 0;
    bool reported = false;
  };
  std::uint64_t limit_ns_;
  std::map<std::string, Beat> beats_;
};

}  // namespace troupe::scheduling
