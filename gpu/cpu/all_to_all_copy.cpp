#include "gpu/cpu/all_to_all_copy.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace troupe::gpu::cpu {
namespace {

// One memcpy of this size leaves the caches out by itself (glibc), a gather of rows does not, since each row is small.
// Below it the receiver finds the block in the shared cache, and stores past the cache take twice as long as plain
// ones.
constexpr std::size_t kPastCacheBytes = std::size_t{16} << 20;

#if defined(__SSE2__)
void copy_past_cache(std::byte* to, const std::byte* from, std::size_t bytes) {
  const std::size_t head = std::min(bytes, (16 - reinterpret_cast<std::uintptr_t>(to) % 16) % 16);
  std::memcpy(to, from, head);
  std::size_t i = head;
  for (; i + 64 <= bytes; i += 64) {
    const auto load = [&](std::size_t at) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i + at)); };
    const auto store = [&](std::size_t at, __m128i v) { _mm_stream_si128(reinterpret_cast<__m128i*>(to + i + at), v); };
    const __m128i a = load(0), b = load(16), c = load(32), d = load(48);
    store(0, a), store(16, b), store(32, c), store(48, d);
  }
  std::memcpy(to + i, from + i, bytes - i);
}
// Such stores are not ordered by the release of the commit word.
void order_past_cache() {
  _mm_sfence();
}
#else
void copy_past_cache(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}
void order_past_cache() {}
#endif

}  // namespace

void copy_block(std::byte* to, const SendBlock& block, std::size_t offset, std::size_t bytes) {
  if (bytes == 0) return;
  if (block.rows.empty()) {
    std::memcpy(to, block.base.data() + offset, bytes);
    return;
  }
  const bool past_cache = bytes >= kPastCacheBytes;
  std::size_t row = offset / block.row_bytes;
  std::size_t skip = offset % block.row_bytes;
  while (bytes > 0) {
    const std::size_t part = std::min(bytes, block.row_bytes - skip);
    const std::byte* from = block.base.data() + block.rows[row] * block.row_bytes + skip;
    if (past_cache) {
      copy_past_cache(to, from, part);
    } else {
      std::memcpy(to, from, part);
    }
    to += part, bytes -= part;
    ++row, skip = 0;
  }
  if (past_cache) order_past_cache();
}

Result<void> check_block(const SendBlock& block, std::size_t max_bytes) {
  if (!block.rows.empty() && block.row_bytes > 0) {
    if (block.rows.size() > std::numeric_limits<std::size_t>::max() / block.row_bytes)
      return fail(ErrorCode::kLimit, std::to_string(block.rows.size()) + " rows of " + std::to_string(block.row_bytes) +
                                         " bytes each are more than an address can reach");
    const std::size_t rows_in_base = block.base.size() / block.row_bytes;
    const std::uint32_t highest = *std::max_element(block.rows.begin(), block.rows.end());
    if (highest >= rows_in_base)
      return fail(ErrorCode::kBadInput, "row " + std::to_string(highest) + " of " + std::to_string(block.row_bytes) +
                                            " bytes is outside a base of " + std::to_string(block.base.size()) +
                                            " bytes (" + std::to_string(rows_in_base) + " rows)");
  }
  if (block.bytes() > max_bytes)
    return fail(ErrorCode::kLimit, "a block of " + std::to_string(block.bytes()) + " bytes; at most " +
                                       std::to_string(max_bytes) + " are possible, send it in rounds");
  return {};
}

}  // namespace troupe::gpu::cpu
