#include "messages/error.hpp"

namespace troupe {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kNone: return "none";
    case ErrorCode::kInternal: return "internal";
    case ErrorCode::kBadConfig: return "bad_config";
    case ErrorCode::kBadInput: return "bad_input";
    case ErrorCode::kBadMessage: return "bad_message";
    case ErrorCode::kLimit: return "limit";
    case ErrorCode::kDeadline: return "deadline";
    case ErrorCode::kAborted: return "aborted";
    case ErrorCode::kMismatch: return "mismatch";
    case ErrorCode::kStale: return "stale";
    case ErrorCode::kRefused: return "refused";
    case ErrorCode::kUnavailable: return "unavailable";
    case ErrorCode::kIo: return "io";
    case ErrorCode::kSlotsTooFew: return "slots_too_few";
    case ErrorCode::kBadLoad: return "bad_load";
    case ErrorCode::kIllegalTransition: return "illegal_transition";
  }
  return "unknown";
}

}  // namespace troupe
