#include "gpu/cpu/arena.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gpu/cpu/kernels.hpp"
#include "gpu/cpu/layout.hpp"
#include "gpu/cpu/memory_available.hpp"

namespace troupe::gpu::cpu {
namespace {

/// Sums and products of sizes that remember whether they ever left 64 bits.
class Size {
 public:
  Size(std::size_t value) : value_(value) {}  // NOLINT(google-explicit-constructor): a size like any other
  friend Size operator*(Size a, Size b) {
    Size result(0);
    const bool over = __builtin_mul_overflow(a.value_, b.value_, &result.value_);
    result.overflow_ = over || a.overflow_ || b.overflow_;
    return result;
  }
  friend Size operator+(Size a, Size b) {
    Size result(0);
    const bool over = __builtin_add_overflow(a.value_, b.value_, &result.value_);
    result.overflow_ = over || a.overflow_ || b.overflow_;
    return result;
  }
  Size aligned(std::size_t to) const {
    Size up = *this + Size(to - 1);
    up.value_ = up.value_ / to * to;
    return up;
  }
  bool overflow() const { return overflow_ || value_ > std::numeric_limits<std::size_t>::max() / 2; }
  std::size_t value() const { return value_; }

 private:
  std::size_t value_;
  bool overflow_ = false;
};

constexpr std::size_t kLine = 64;

/// Left to the rest of the machine when an arena is taken.
constexpr std::uint64_t kKeepFree = std::uint64_t{64} << 20U;
/// Memory is taken in pieces of this size, with a look at what is left before each.
constexpr std::size_t kPiece = std::size_t{256} << 20U;

std::string errno_text() {
  return std::strerror(errno);
}

tl::unexpected<Error> too_little(std::size_t asked, std::uint64_t there) {
  return fail(ErrorCode::kIo,
              "the arena needs " + std::to_string(asked) + " bytes, and " + std::to_string(there) +
                  " bytes of memory are available; use fewer slots per GPU, fewer GPUs on this machine, a "
                  "smaller model or bf16 weights");
}

}  // namespace

Result<ArenaLayout> plan_layout(const scheduling::ModelShape& shape, const DeviceOptions& options) {
  const std::pair<const char*, std::uint32_t> counts[] = {{"d_model", shape.d_model}, {"d_ff", shape.d_ff},
                                                          {"layers", shape.layers},   {"experts", shape.experts},
                                                          {"slots", options.slots},   {"max_rows", options.max_rows}};
  for (const auto& [name, count] : counts) {
    if (count == 0)
      return fail(ErrorCode::kBadInput, std::string("CPU device: ") + name + " = 0; it must be at least 1");
  }
  const Size d_model(shape.d_model);
  const Size d_ff(shape.d_ff);
  const Size step(panel_step_bytes(shape.weights));
  const std::size_t unit_panels = ceil_div(shape.d_ff, kPanelPairs);

  ArenaLayout layout;
  const Size up = Size(unit_panels) * d_model * step;
  const Size down = Size(ceil_div(shape.d_model, kPanelColumns)) * d_ff * step;
  const Size slot = (up + down).aligned(kPageBytes);
  layout.slot_bytes = slot.value();
  layout.down_offset = up.value();
  layout.slots = options.slots;

  const Size router =
      Size(ceil_div(shape.experts, kPanelColumns)) * d_model * Size(panel_step_bytes(scheduling::WeightType::kF32));
  const Size gate = (router + Size(shape.experts) * Size(sizeof(float))).aligned(kPageBytes);
  const Size gates = Size(options.slots) * slot;
  layout.gates_offset = gates.value();
  layout.gate_bytes = gate.value();
  layout.bias_offset = router.value();

  const std::size_t blocks = ceil_div(options.max_rows, kBlockRows);
  layout.block_rows = ceil_div(options.max_rows, blocks);
  layout.hidden_stride = unit_panels * kPanelPairs;
  const Size rows(layout.block_rows);
  const Size floats(sizeof(float));
  const Size hidden_at = (rows * d_model * floats).aligned(kLine);
  const Size partial_at = (hidden_at + rows * Size(layout.hidden_stride) * floats).aligned(kLine);
  const Size decoded_at = (partial_at + Size(partial_floats(layout.block_rows)) * floats).aligned(kLine);
  const Size scratch = (decoded_at + Size(kDecodedFloats) * floats).aligned(kPageBytes);
  layout.hidden_offset = hidden_at.value();
  layout.partial_offset = partial_at.value();
  layout.decoded_offset = decoded_at.value();
  layout.scratch_bytes = scratch.value();

  const Size scratch_at = gates + Size(shape.layers) * gate;
  const Size all = scratch_at + scratch;
  layout.scratch_offset = scratch_at.value();
  layout.bytes = all.value();
  if (all.overflow()) {
    return fail(ErrorCode::kBadInput, "CPU device: " + std::to_string(options.slots) + " slots of an expert of " +
                                          std::to_string(shape.d_model) + " x " + std::to_string(shape.d_ff) +
                                          " take more bytes than a 64-bit number holds");
  }
  return layout;
}

Result<Arena> Arena::make(std::size_t bytes) {
  const std::uint64_t there = available_memory_bytes();
  if (bytes > there || there - bytes < kKeepFree) return too_little(bytes, there);
  Arena arena;
  arena.fd_ = ::memfd_create("troupe-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (arena.fd_ < 0) return fail(ErrorCode::kIo, "memfd_create: " + errno_text());
  // Another process that maps the arena must not be able to pull it away under us, nor we under it.
  const auto size = static_cast<off_t>(bytes);
  if (::ftruncate(arena.fd_, size) != 0)
    return fail(ErrorCode::kIo, "arena of " + std::to_string(bytes) + " bytes: " + errno_text());
  if (::fcntl(arena.fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return fail(ErrorCode::kIo, "sealing the arena: " + errno_text());
  }
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, arena.fd_, 0);
  if (mapped == MAP_FAILED)
    return fail(ErrorCode::kIo, "mapping an arena of " + std::to_string(bytes) + " bytes: " + errno_text());
  arena.data_ = static_cast<std::byte*>(mapped);
  arena.bytes_ = bytes;
  // Fewer address translations where the machine allows huge pages for shared memory; no harm where it does not.
  static_cast<void>(::madvise(mapped, bytes, MADV_HUGEPAGE));
  for (std::size_t at = 0; at < bytes; at += kPiece) {
    const std::size_t piece = std::min(kPiece, bytes - at);
    const std::uint64_t left = available_memory_bytes();
    if (piece > left || left - piece < kKeepFree) return too_little(bytes, at + left);
    int result = 0;
    do {
      result = ::fallocate(arena.fd_, 0, static_cast<off_t>(at), static_cast<off_t>(piece));
    } while (result != 0 && errno == EINTR);
    if (result != 0)
      return fail(ErrorCode::kIo, "taking an arena of " + std::to_string(bytes) + " bytes: " + errno_text());
  }
  return arena;
}

Arena::Arena(Arena&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Arena::~Arena() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace troupe::gpu::cpu
