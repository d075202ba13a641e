#include "gpu/cpu/shm_socket.hpp"

#include <algorithm>
#include <cstring>
#include <fstream>

#include <sodium.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

namespace troupe::gpu::cpu {
namespace {

constexpr std::size_t kMaxFds = 2;
constexpr int kBacklog = 1024;
constexpr std::string_view kNameStart = "troupe-";

// An abstract address: a zero byte, then the name, without an end.
Result<socklen_t> fill(sockaddr_un& address, const std::string& name) {
  if (name.empty() || name.size() + 1 > sizeof address.sun_path || name.compare(0, kNameStart.size(), kNameStart) != 0)
    return fail(ErrorCode::kBadInput, "not the name of a bulk socket: " + name.substr(0, sizeof address.sun_path));
  address.sun_family = AF_UNIX;
  address.sun_path[0] = '\0';
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

bool same_user(int fd) {
  ucred who{};
  socklen_t bytes = sizeof who;
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0 && who.uid == ::geteuid();
}

}  // namespace

Result<std::string> read_host_key() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  if (!(file >> boot)) return fail(ErrorCode::kIo, "cannot read /proc/sys/kernel/random/boot_id; is /proc mounted?");
  struct stat net {};
  if (::stat("/proc/self/ns/net", &net) != 0) return fail_errno("/proc/self/ns/net");
  return "boot:" + boot + " net:" + std::to_string(net.st_ino) + " user:" + std::to_string(::geteuid());
}

void Packet::set(const Agreement& agreement, Rank self, Rank peer) {
  view = agreement.view.value;
  ranks = agreement.ranks;
  inbox_bytes = agreement.inbox_bytes;
  addresses = agreement.addresses;
  from = self.value;
  to = peer.value;
}

void Packet::set_text(const std::string& what) {
  text_bytes = static_cast<std::uint32_t>(std::min(what.size(), text.size()));
  std::memcpy(text.data(), what.data(), text_bytes);
}

std::string Packet::read_text() const {
  return std::string(text.data(), std::min<std::size_t>(text_bytes, text.size()));
}

Result<ShmSocket> ShmSocket::listen(std::string& name) {
  Fd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return fail_errno("a unix socket");
  const Nonce nonce = make_nonce();
  std::array<char, 2 * sizeof(Nonce) + 1> hex{};
  sodium_bin2hex(hex.data(), hex.size(), reinterpret_cast<const unsigned char*>(nonce.data()), nonce.size());
  name = std::string(kNameStart) + std::to_string(::getpid()) + "-" + hex.data();
  sockaddr_un address{};
  auto bytes = fill(address, name);
  if (!bytes) return tl::unexpected(bytes.error());
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), *bytes) != 0) return fail_errno("binding @" + name);
  if (::listen(fd.get(), kBacklog) != 0) return fail_errno("listening on @" + name);
  return ShmSocket(std::move(fd));
}

Result<ShmSocket> ShmSocket::connect(const std::string& name) {
  sockaddr_un address{};
  auto bytes = fill(address, name);
  if (!bytes) return tl::unexpected(bytes.error());
  Fd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return fail_errno("a unix socket");
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), *bytes) != 0) {
    if (errno == ECONNREFUSED || errno == ENOENT) return fail(ErrorCode::kUnavailable, "its process is gone");
    if (errno == EAGAIN || errno == EINTR) return fail(ErrorCode::kDeadline, "its queue of callers is full");
    return fail_errno("connecting to @" + name);
  }
  // A name is free once its process has died: another user may have taken it.
  if (!same_user(fd.get())) return fail(ErrorCode::kRefused, "@" + name + " belongs to another user");
  return ShmSocket(std::move(fd));
}

Result<std::optional<ShmSocket>> ShmSocket::accept() const {
  for (;;) {
    Fd fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) {
      if (errno == EAGAIN) return std::optional<ShmSocket>();
      if (errno == EINTR || errno == ECONNABORTED) continue;
      return fail_errno("accepting a bulk connection");
    }
    if (same_user(fd.get())) return std::optional(ShmSocket(std::move(fd)));
  }
}

bool ShmSocket::send(const Packet& packet, const std::vector<int>& fds) const {
  iovec part{const_cast<Packet*>(&packet), sizeof packet};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxFds * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size() * sizeof(int));
  }
  ssize_t sent = 0;
  do sent = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(sizeof packet);
}

Result<std::optional<Received>> ShmSocket::receive() const {
  Received received;
  iovec part{&received.packet, sizeof received.packet};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxFds * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t bytes = 0;
  do bytes = ::recvmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  while (bytes < 0 && errno == EINTR);
  if (bytes < 0 && errno == EAGAIN) return std::optional<Received>();
  // Whatever came, its descriptors are ours to close.
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); bytes >= 0 && header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
      received.fds.emplace_back(fd);
    }
  }
  if (bytes <= 0) return fail(ErrorCode::kUnavailable, "it has closed the connection");
  if (bytes != static_cast<ssize_t>(sizeof(Packet)) || (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 ||
      received.packet.magic != Packet::kMagic || received.packet.version != Packet::kVersion)
    return fail(ErrorCode::kBadMessage, "it does not speak this version of the bulk handshake");
  return std::optional(std::move(received));
}

}  // namespace troupe::gpu::cpu
