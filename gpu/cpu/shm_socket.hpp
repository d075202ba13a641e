#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "gpu/cpu/all_to_all_connect.hpp"
#include "gpu/cpu/all_to_all_secret.hpp"
#include "gpu/cpu/shm_fd.hpp"

/// The unix sockets over which ranks of one host hand each other their inboxes. Abstract names: nothing in the file
/// system, and nothing left when a process dies.
namespace troupe::gpu::cpu {

/// Equal on two processes that can share memory: boot id, network namespace (abstract names live in one) and user.
/// Errors: kIo (no /proc).
Result<std::string> read_host_key();

enum class PacketKind : std::uint16_t {
  kHello = 1,
  kChallenge = 2,
  kIntroduce = 3,
  kWelcome = 4,
  kRefuse = 5,
  kReady = 6
};

/// One message of the handshake; all kinds have one size, so that anything else is noise. Both ends are on one host:
/// byte order is no question.
struct Packet {
  std::uint32_t magic = kMagic;
  std::uint16_t version = kVersion;
  PacketKind kind = PacketKind::kHello;
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::uint64_t view = 0;
  std::uint64_t inbox_bytes = 0;
  std::uint64_t addresses = 0;
  std::uint32_t ranks = 0;
  std::uint32_t text_bytes = 0;
  std::uint16_t code = 0;
  std::array<std::uint16_t, 3> unused{};
  Nonce nonce{};
  Proof proof{};
  std::array<char, 256> text{};

  static constexpr std::uint32_t kMagic = 0x54525550;
  static constexpr std::uint16_t kVersion = 1;

  Agreement agreement() const { return {View(view), ranks, inbox_bytes, addresses}; }
  void set(const Agreement& agreement, Rank self, Rank peer);
  void set_text(const std::string& what);
  std::string read_text() const;
};
static_assert(std::is_trivially_copyable_v<Packet> && std::has_unique_object_representations_v<Packet>,
              "a packet goes over the socket as it lies in memory");

struct Received {
  Packet packet;
  std::vector<Fd> fds;
};

/// One end of a connection. All calls return at once.
class ShmSocket {
 public:
  explicit ShmSocket(Fd fd) : fd_(std::move(fd)) {}

  /// Opens a listener under a fresh random name, which is stored in `name`. Errors: kIo.
  static Result<ShmSocket> listen(std::string& name);
  /// Errors: kUnavailable (nobody listens: the process is gone), kRefused (another user's socket), kDeadline (its queue
  /// is full: try again), kBadInput (not such a name), kIo.
  static Result<ShmSocket> connect(const std::string& name);
  /// The next caller; those of other users are hung up on. Empty: nobody waits. Errors: kIo.
  Result<std::optional<ShmSocket>> accept() const;

  bool send(const Packet& packet,
            const std::vector<int>& fds = {}) const;  ///< false: the connection is of no use any more
  /// Empty: nothing there yet. Errors: kUnavailable (the peer has closed), kBadMessage (noise).
  Result<std::optional<Received>> receive() const;

  int fd() const { return fd_.get(); }
  Fd take() { return std::move(fd_); }

 private:
  Fd fd_;
};

}  // namespace troupe::gpu::cpu
