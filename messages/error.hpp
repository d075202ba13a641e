#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <tl/expected.hpp>

namespace troupe {

/// What kind of thing went wrong. The number travels on the wire (in Reject and Answer), so a value is never reused.
enum class ErrorCode : std::uint16_t {
  kNone = 0,
  kInternal = 1,          ///< an invariant of Troupe's own did not hold
  kBadConfig = 2,         ///< a config file, key or value
  kBadInput = 3,          ///< an argument or a request of the caller
  kBadMessage = 4,        ///< bytes from the wire that do not decode
  kLimit = 5,             ///< a size, count or depth beyond what is allowed
  kDeadline = 6,          ///< something did not answer in time
  kAborted = 7,           ///< stopped on purpose: new view, shutdown
  kMismatch = 8,          ///< two parties disagree on a size, version or number
  kStale = 9,             ///< from an older view, epoch or incarnation than ours
  kRefused = 10,          ///< not on the allow-list, or not permitted here
  kUnavailable = 11,      ///< a peer, device or expert is not there (now)
  kIo = 12,               ///< the operating system said no
  kSlotsTooFew = 13,      ///< the slots do not hold the experts
  kBadLoad = 14,          ///< a load or heat cell that is NaN, infinite or negative
  kIllegalTransition = 15 ///< a state machine was given an event its state does not take
};

/// The code's name as it appears in logs and JSON, for instance "bad_config".
std::string_view to_string(ErrorCode code);

/// The one error type. `message` says what, which value, where, and the way out; it is written for a person.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  friend bool operator==(const Error&, const Error&) = default;
};

/// A value or an Error. No exception leaves a module of Troupe.
template <class T>
using Result = tl::expected<T, Error>;

/// Makes the error side of a Result: `return fail(ErrorCode::kLimit, "...")`.
inline tl::unexpected<Error> fail(ErrorCode code, std::string message) {
  return tl::unexpected<Error>(Error{code, std::move(message)});
}

/// Passes an error on with a place in front: "node n1: " + message.
inline tl::unexpected<Error> fail_in(std::string_view where, Error error) {
  error.message = std::string(where) + ": " + error.message;
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace troupe
