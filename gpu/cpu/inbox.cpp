#include "gpu/cpu/inbox.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>

namespace troupe::gpu::cpu {
namespace {

constexpr std::size_t kPage = 4096;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;

constexpr std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

Result<void> check(const InboxShape& shape) {
  if (shape.ranks == 0 || shape.ranks > kMaxRanks)
    return fail(ErrorCode::kBadInput, "an inbox for " + std::to_string(shape.ranks) + " ranks; 1 to " +
                                          std::to_string(kMaxRanks) + " are possible");
  if (shape.inbox_bytes < kMinInboxBytes || shape.inbox_bytes > kMaxInboxBytes)
    return fail(ErrorCode::kBadInput, "inbox_bytes = " + std::to_string(shape.inbox_bytes) + "; set " +
                                          std::to_string(kMinInboxBytes) + " to " + std::to_string(kMaxInboxBytes));
  return {};
}

}  // namespace

std::size_t InboxShape::buffer_bytes() const {
  return round_up(inbox_bytes, kPage);
}
std::size_t InboxShape::piece_bytes() const {
  return inbox_bytes / kPieces / 64 * 64;
}
std::size_t InboxShape::lane_offset(std::uint32_t source) const {
  return sizeof(InboxHead) + source * sizeof(Lane);
}
std::size_t InboxShape::buffer_offset(std::uint32_t source, std::uint32_t parity) const {
  return round_up(lane_offset(ranks), kPage) + (std::size_t{source} * 2 + parity) * buffer_bytes();
}
std::size_t InboxShape::total_bytes() const {
  return buffer_offset(ranks, 0);
}

void Lane::leave(Farewell how, std::string_view text) {
  std::uint32_t none = static_cast<std::uint32_t>(Farewell::kNone);
  if (!farewell.compare_exchange_strong(none, static_cast<std::uint32_t>(Farewell::kWriting))) return;
  const std::size_t bytes = std::min(text.size(), kReasonBytes);
  for (std::size_t i = 0; i < bytes; i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + i, std::min<std::size_t>(8, bytes - i));
    reason[i / 8].store(word, std::memory_order_relaxed);
  }
  reason_bytes.store(static_cast<std::uint32_t>(bytes), std::memory_order_relaxed);
  farewell.store(static_cast<std::uint32_t>(how));
}

Farewell Lane::read_farewell() const {
  switch (static_cast<Farewell>(farewell.load())) {
    case Farewell::kClosed:
      return Farewell::kClosed;
    case Farewell::kAborted:
      return Farewell::kAborted;
    default:
      return Farewell::kNone;
  }
}

std::string Lane::read_reason() const {
  const std::size_t bytes = std::min<std::size_t>(reason_bytes.load(std::memory_order_relaxed), kReasonBytes);
  std::string text(kReasonBytes, '\0');
  for (std::size_t i = 0; i < reason.size(); ++i) {
    const std::uint64_t word = reason[i].load(std::memory_order_relaxed);
    std::memcpy(text.data() + i * 8, &word, 8);
  }
  text.resize(bytes);
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return text;
}

Result<std::shared_ptr<Inbox>> Inbox::map(InboxShape shape, Fd fd) {
  const int flags = fd ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  void* base = ::mmap(nullptr, shape.total_bytes(), PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, fd.get(), 0);
  if (base == MAP_FAILED)
    return fail_errno("mapping an inbox of " + std::to_string(shape.total_bytes()) + " bytes (" +
                      std::to_string(shape.ranks) + " ranks, inbox_bytes " + std::to_string(shape.inbox_bytes) + ")");
  return std::shared_ptr<Inbox>(new Inbox(shape, std::move(fd), static_cast<std::byte*>(base)));
}

Result<std::shared_ptr<Inbox>> Inbox::make_plain(InboxShape shape) {
  if (auto ok = check(shape); !ok) return tl::unexpected(ok.error());
  return map(shape, Fd());
}

Result<std::shared_ptr<Inbox>> Inbox::make_shared(InboxShape shape) {
  if (auto ok = check(shape); !ok) return tl::unexpected(ok.error());
  Fd fd(::memfd_create("troupe-inbox", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return fail_errno("memfd_create for an inbox");
  if (::ftruncate(fd.get(), static_cast<off_t>(shape.total_bytes())) != 0)
    return fail_errno("an inbox of " + std::to_string(shape.total_bytes()) + " bytes");
  if (::fcntl(fd.get(), F_ADD_SEALS, kSeals | F_SEAL_SEAL) != 0) return fail_errno("sealing an inbox");
  return map(shape, std::move(fd));
}

Result<std::shared_ptr<Inbox>> Inbox::open(Fd fd, InboxShape shape) {
  if (auto ok = check(shape); !ok) return tl::unexpected(ok.error());
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals)
    return fail(ErrorCode::kRefused, "a peer's inbox is not a memfd sealed against a change of size");
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return fail_errno("a peer's inbox");
  if (status.st_size < 0 || static_cast<std::size_t>(status.st_size) != shape.total_bytes())
    return fail(ErrorCode::kRefused, "a peer's inbox has " + std::to_string(status.st_size) + " bytes, not " +
                                         std::to_string(shape.total_bytes()));
  auto mapped = map(shape, std::move(fd));
  if (mapped) (*mapped)->fd_.reset();  // the mapping keeps the memory
  return mapped;
}

Inbox::~Inbox() {
  ::munmap(base_, shape_.total_bytes());
}

Result<Doorbell> Doorbell::make() {
  Fd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd) return fail_errno("eventfd");
  return Doorbell(std::move(fd));
}

Result<Doorbell> Doorbell::adopt(Fd fd) {
  std::array<char, 64> target{};
  const std::string link = "/proc/self/fd/" + std::to_string(fd.get());
  const auto bytes = ::readlink(link.c_str(), target.data(), target.size() - 1);
  if (bytes < 0) return fail_errno("reading " + link);
  if (std::string_view(target.data()) != "anon_inode:[eventfd]")
    return fail(ErrorCode::kRefused, "a peer's doorbell is not an eventfd");
  if (::fcntl(fd.get(), F_SETFL, O_NONBLOCK) != 0) return fail_errno("a peer's doorbell");
  return Doorbell(std::move(fd));
}

Result<Doorbell> Doorbell::duplicate() const {
  Fd fd(::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0));
  if (!fd) return fail_errno("duplicating a doorbell");
  return Doorbell(std::move(fd));
}

void Doorbell::ring() const {
  // A full counter or a closed peer needs no answer: the sleeper also wakes by itself now and then.
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(fd_.get(), &one, sizeof one);
}

}  // namespace troupe::gpu::cpu
