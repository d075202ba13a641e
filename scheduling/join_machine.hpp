#pragma once

#include <cstdint>
#include <map>
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
/// The cluster cannot go on (a member is gone; issue of a later date: recovery). `reason` is for a person.
struct GiveUp {
  Error error;
};
using JoinDecision = std::variant<SendTo, IssueView, StartServing, GiveUp>;

class JoinMachine {
 public:
  /// expected: names of the nodes in config order; NodeId is the index. plan_digest: of the coordinator's own effective
  /// plan.
  JoinMachine(std::vector<std::string> expected, std::uint64_t plan_digest, std::uint32_t max_tokens_per_pass,
              View last_view, Incarnation last_incarnation);

  /// A repeated Join of the same start (node, nonce) gets the same answer again. Refused, with the reason in a Reject:
  /// unknown node name, another plan digest, another token limit (names both numbers, C18), a second start while the
  /// first is in.
  std::vector<JoinDecision> on_join(const messages::Join& join);
  std::vector<JoinDecision> on_ready(const messages::NodeReady& ready);
  std::vector<JoinDecision> on_leave(const messages::Leave& leave);
  /// Heartbeats of a member have been missing for longer than the limit.
  std::vector<JoinDecision> on_silent(const std::string& node, std::uint64_t silent_ms);

  const messages::ViewPublished& view() const;
  bool serving() const;
  /// Who has not joined, or not become ready: for the launcher's deadline message.
  std::vector<std::string> missing() const;
  Incarnation last_incarnation() const;

 private:
  struct Slot {
    bool joined = false;
    bool ready = false;
    bool left = false;
    messages::Join join;
    Incarnation incarnation;
  };
  std::vector<std::string> expected_;
  std::uint64_t plan_digest_;
  std::uint32_t max_tokens_per_pass_;
  std::vector<Slot> slots_;
  messages::ViewPublished view_;
  View last_view_;
  Incarnation last_incarnation_;
  bool serving_ = false;
};

/// Who is alive, by heartbeats. Time comes in; a busy main thread does not matter, since beats have their own (C33).
class BeatWatch {
 public:
  /// limit_ns: silence longer than this is reported once, until the next beat.
  BeatWatch(std::uint64_t limit_ns);
  void on_beat(const std::string& node, Incarnation incarnation, std::uint64_t now_ns);
  void forget(const std::string& node);
  struct Silent {
    std::string node;
    std::uint64_t silent_ns = 0;
  };
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
