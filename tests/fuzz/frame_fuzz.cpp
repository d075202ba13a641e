#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "messages/envelope.hpp"

/// Any bytes are a frame or an error with a reason, and a frame that is taken has one meaning: written and read again
/// it gives the same bytes. (Bytes, since a NaN in a bulk vector equals nothing.)
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe;
  const auto frame = messages::decode_frame(std::as_bytes(std::span(data, size)));
  if (!frame) {
    if (frame.error().code == ErrorCode::kNone || frame.error().message.empty()) std::abort();
    return 0;
  }
  const auto bytes = messages::encode_frame(*frame);
  const auto again = messages::decode_frame(bytes);
  if (!again || messages::encode_frame(*again) != bytes) std::abort();
  return 0;
}
