#include "gpu/cpu/all_to_all_channel.hpp"

#include <algorithm>
#include <new>

namespace troupe::gpu::cpu {

std::string describe(const ExchangeTag& tag) {
  return "step (" + std::to_string(tag.step.pass.value) + ", " + std::to_string(tag.step.layer) + ") phase " +
         std::to_string(tag.phase);
}

Error mismatch(Rank self, Rank peer, const ExchangeTag& tag, std::size_t bytes, const ExchangeTag& got_tag,
               std::uint64_t got_bytes) {
  const std::string from = std::to_string(peer.value);
  std::string text = "rank " + std::to_string(self.value) + " expects " + std::to_string(bytes) + " bytes from rank " +
                     from + " in " + describe(tag) + ", but rank " + from + " sends " + std::to_string(got_bytes) +
                     " bytes";
  if (got_tag != tag) {
    text += " in " + describe(got_tag) + "; the ranks are out of step: abort, and resume in a new view";
  } else {
    text += "; the ranks disagree on the counts they exchanged: abort, and resume in a new view";
  }
  return Error{ErrorCode::kMismatch, std::move(text)};
}

Result<std::byte*> GrowingBuffer::room(std::size_t bytes) {
  if (bytes > bytes_) {
    // Doubling keeps slowly growing blocks from allocating each time; untouched pages cost nothing.
    const std::size_t room = std::max(bytes, std::min(2 * bytes_, kMaxBlockBytes));
    data_.reset();
    data_.reset(new (std::nothrow) std::byte[room]);
    bytes_ = data_ ? room : 0;
    if (!data_) return fail(ErrorCode::kIo, "no memory for a block of " + std::to_string(bytes) + " bytes");
  }
  return data_.get();
}

}  // namespace troupe::gpu::cpu
