#include "gpu/cpu/ucx_gate.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/filter.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "gpu/cpu/all_to_all_secret.hpp"
#include "gpu/cpu/shm_fd.hpp"
#include "gpu/cpu/shm_socket.hpp"

namespace troupe::gpu::cpu {
namespace {

constexpr std::size_t kMaxAddresses = 64;  // of one host
constexpr std::array<std::byte, 12> kMapped{std::byte{0}, std::byte{0}, std::byte{0},    std::byte{0},
                                            std::byte{0}, std::byte{0}, std::byte{0},    std::byte{0},
                                            std::byte{0}, std::byte{0}, std::byte{0xff}, std::byte{0xff}};
constexpr std::uint32_t kIpHeader = static_cast<std::uint32_t>(SKF_NET_OFF);

std::uint32_t word(const std::array<std::byte, 16>& address, std::size_t at) {
  std::uint32_t value = 0;
  std::memcpy(&value, address.data() + at, sizeof value);
  return ntohl(value);
}

bool is_v4(const std::array<std::byte, 16>& address) {
  return std::equal(kMapped.begin(), kMapped.end(), address.begin());
}

sock_filter load(std::uint16_t size, std::uint32_t offset) {
  return sock_filter{static_cast<std::uint16_t>(BPF_LD | size | BPF_ABS), 0, 0, kIpHeader + offset};
}

// Goes on where the loaded word is `value`, else skips `skip` instructions.
sock_filter expect(std::uint32_t value, std::size_t skip) {
  return sock_filter{BPF_JMP | BPF_JEQ | BPF_K, 0, static_cast<std::uint8_t>(skip), value};
}

constexpr sock_filter kTake{BPF_RET | BPF_K, 0, 0, 0xffffffff};
constexpr sock_filter kDrop{BPF_RET | BPF_K, 0, 0, 0};

void take_v4(std::vector<sock_filter>& program, std::uint32_t address, std::uint32_t mask) {
  program.insert(program.end(),
                 {load(BPF_B, 0), sock_filter{BPF_ALU | BPF_AND | BPF_K, 0, 0, 0xf0}, expect(0x40, 4), load(BPF_W, 12),
                  sock_filter{BPF_ALU | BPF_AND | BPF_K, 0, 0, mask}, expect(address, 1), kTake});
}

void take_v6(std::vector<sock_filter>& program, const std::array<std::byte, 16>& address) {
  program.insert(program.end(),
                 {load(BPF_B, 0), sock_filter{BPF_ALU | BPF_AND | BPF_K, 0, 0, 0xf0}, expect(0x60, 9), load(BPF_W, 8),
                  expect(word(address, 0), 7), load(BPF_W, 12), expect(word(address, 4), 5), load(BPF_W, 16),
                  expect(word(address, 8), 3), load(BPF_W, 20), expect(word(address, 12), 1), kTake});
}

}  // namespace

Result<HostOrigin> HostOrigin::of_this_host() {
  HostOrigin origin;
  auto key = read_host_key();
  if (!key) return tl::unexpected(key.error());
  // Without the user: any process of the host reaches it by loopback.
  key->resize(std::min(key->size(), key->find(" user:")));
  const Proof digest = Secret("").prove("troupe host", std::as_bytes(std::span(*key)));
  std::memcpy(&origin.host, digest.data(), sizeof origin.host);
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return fail_errno("getifaddrs");
  for (const ifaddrs* at = list; at != nullptr && origin.addresses.size() < kMaxAddresses; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || (at->ifa_flags & IFF_LOOPBACK) != 0) continue;
    std::array<std::byte, 16> address{};
    if (at->ifa_addr->sa_family == AF_INET) {
      sockaddr_in v4{};
      std::memcpy(&v4, at->ifa_addr, sizeof v4);
      std::copy(kMapped.begin(), kMapped.end(), address.begin());
      std::memcpy(address.data() + kMapped.size(), &v4.sin_addr, sizeof v4.sin_addr);
    } else if (at->ifa_addr->sa_family == AF_INET6) {
      sockaddr_in6 v6{};
      std::memcpy(&v6, at->ifa_addr, sizeof v6);
      std::memcpy(address.data(), &v6.sin6_addr, sizeof v6.sin6_addr);
    } else {
      continue;
    }
    origin.addresses.push_back(address);
  }
  ::freeifaddrs(list);
  return origin;
}

std::string HostOrigin::encode() const {
  std::string bytes(sizeof host, '\0');
  std::memcpy(bytes.data(), &host, sizeof host);
  bytes.push_back(static_cast<char>(addresses.size()));
  for (const auto& address : addresses) bytes.append(reinterpret_cast<const char*>(address.data()), address.size());
  return bytes;
}

Result<HostOrigin> HostOrigin::decode(std::string& bytes) {
  HostOrigin origin;
  constexpr std::size_t kFixed = sizeof origin.host + 1;
  const std::size_t count = bytes.size() >= kFixed ? static_cast<unsigned char>(bytes[kFixed - 1]) : 0;
  if (bytes.size() < kFixed + count * 16 || count > kMaxAddresses)
    return fail(ErrorCode::kBadMessage, "its UCX address is cut short");
  std::memcpy(&origin.host, bytes.data(), sizeof origin.host);
  origin.addresses.resize(count);
  for (std::size_t i = 0; i < count; ++i) std::memcpy(origin.addresses[i].data(), bytes.data() + kFixed + i * 16, 16);
  bytes.erase(0, kFixed + count * 16);
  return origin;
}

std::set<int> UcxGate::listening_sockets() {
  std::set<int> sockets;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const std::string name = entry.path().filename().string();
    int fd = -1;
    std::from_chars(name.data(), name.data() + name.size(), fd);
    int listens = 0;
    int protocol = 0;
    socklen_t bytes = sizeof listens;
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) != 0 || listens == 0) continue;
    bytes = sizeof protocol;
    if (::getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &bytes) == 0 && protocol == IPPROTO_TCP)
      sockets.insert(fd);
  }
  return sockets;
}

// Another thread may open a listener at the same moment: that one's port is not in UCX's address.
UcxGate::UcxGate(const std::set<int>& before, const std::string& ucx_address) {
  for (const int fd : listening_sockets()) {
    if (before.count(fd) > 0) continue;
    sockaddr_storage own{};
    socklen_t bytes = sizeof own;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &bytes) != 0) continue;
    // The port stands at the same place in both kinds of address, in network order, as in UCX's.
    sockaddr_in v4{};
    std::memcpy(&v4, &own, sizeof v4);
    const std::string port(reinterpret_cast<const char*>(&v4.sin_port), sizeof v4.sin_port);
    if (ucx_address.find(port) != std::string::npos) sockets_.push_back(fd);
  }
}

Result<void> UcxGate::admit(std::uint64_t own, std::span<const HostOrigin> origins) {
  std::vector<sock_filter> program;
  std::set<std::array<std::byte, 16>> taken;
  bool loopback = false;
  for (const HostOrigin& origin : origins) {
    loopback |= origin.host == own;
    taken.insert(origin.addresses.begin(), origin.addresses.end());
  }
  if (loopback) {
    take_v4(program, INADDR_LOOPBACK & 0xff000000, 0xff000000);
    std::array<std::byte, 16> v6{};
    v6.back() = std::byte{1};
    take_v6(program, v6);
  }
  for (const auto& address : taken) {
    if (is_v4(address)) {
      take_v4(program, word(address, 12), 0xffffffff);
    } else {
      take_v6(program, address);
    }
  }
  program.push_back(kDrop);
  // Beyond what one filter holds (a view of some hundred hosts) the gate stands open rather than shut a member out.
  if (program.size() > BPF_MAXINSNS) program.assign({kTake});
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  for (const int fd : sockets_) {
    if (::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) != 0)
      return fail_errno("a filter on UCX's listening socket");
  }
  return {};
}

}  // namespace troupe::gpu::cpu
