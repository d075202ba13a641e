#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ucp/api/ucp.h>

#include "gpu/cpu/all_to_all_connect.hpp"
#include "gpu/cpu/all_to_all_exchange.hpp"
#include "gpu/cpu/all_to_all_secret.hpp"
#include "gpu/cpu/ucx_gate.hpp"

namespace troupe::gpu::cpu {

enum class UcxKind : std::uint16_t { kHello = 1, kReady = 2, kBlock = 3, kTaken = 4, kLeave = 5 };

/// Header of every message. It is in native byte order: a host of the other order fails on the magic.
struct UcxHeader {
  std::uint32_t magic = kMagic;
  std::uint16_t version = 1;
  UcxKind kind = UcxKind::kHello;
  std::uint64_t session = 0;  ///< known to the two ends of a pair in one view only; 0 in a hello
  std::uint64_t exchange = 0;
  std::uint64_t chunk = 0;  ///< kBlock: which; kTaken: how many; kLeave: a Farewell
  std::uint64_t total = 0;  ///< bytes of the whole block
  std::uint64_t pass = 0;
  std::uint32_t layer = 0;
  std::uint32_t phase = 0;
  static constexpr std::uint32_t kMagic = 0x54525558;
};

/// What a rank says first to each peer of a view.
struct UcxHello {
  std::uint64_t view = 0;
  std::uint64_t inbox_bytes = 0;
  std::uint64_t addresses = 0;
  std::uint32_t ranks = 0;
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::uint32_t unused = 0;
  Nonce nonce{};
  Proof proof{};  ///< over all above

  Agreement agreement() const { return {View(view), ranks, inbox_bytes, addresses}; }
};

/// Bytes of one message with a block's data. A block goes in as many as it takes, each copied to memory of the
/// transport's own: so a send never holds the caller's memory, and a peer that reads no more can be left at any time.
inline constexpr std::size_t kUcxChunkBytes = std::size_t{60} << 10;

/// A connection to one remote worker. It lasts for as many views as the peer is in.
struct UcxLink {
  struct Slot {
    UcxLink* link = nullptr;
    UcxHeader header;
    std::unique_ptr<std::byte[]> data;
    bool busy = false;
  };
  std::string address;
  ucp_ep_h ep = nullptr;
  bool failed = false;
  std::string why;
  std::array<Slot, 8> slots;
  std::uint64_t in_flight = 0;  ///< sends that UCX has not completed
};

/// Takes the messages of one session. Called with the worker's mutex held.
class UcxReceiver {
 public:
  virtual ~UcxReceiver() = default;
  virtual void on_message(const UcxHeader& header, std::span<const std::byte> data) = 0;
};

/// Takes the hellos of the view that is being connected. Called with the worker's mutex held; must not send.
class UcxHelloReceiver {
 public:
  virtual ~UcxHelloReceiver() = default;
  virtual void on_hello(const UcxHello& hello) = 0;
};

/// A worker's lasting end of the UCX transport: active messages, sent eagerly in chunks with a window of our own, so
/// that what a peer can make us hold is bounded, and no send waits for a peer's answer. Peer-failure handling is on, so
/// UCX may use TCP and RDMA, not shared memory; it leaves nothing on the host.
/// Thread rule: all UCX calls of one worker are made under its mutex.
class UcxWorker final : public Poller {
 public:
  /// tls: UCX's transports; empty: TCP, and RDMA where there is any. Errors: kIo (no such transport or device).
  static Result<std::shared_ptr<UcxWorker>> make(const std::string& tls, const std::string& secret);
  ~UcxWorker() override;

  /// What peers connect to: UCX's address with a proof that it was made by one who knows the secret, so that nobody
  /// feeds UCX bytes it would choke on.
  const std::string& address() const { return address_; }

  bool poll() override;
  int fd() const override { return fd_; }
  bool arm() override;

  std::mutex& mutex() { return mutex_; }
  const Secret& secret() const { return secret_; }
  void sign(UcxHello& hello) const;  ///< fills in the proof

  // All below: with the mutex held.

  /// The link to an address, made where there is none that works. Errors: kBadInput, kRefused (not a wrapped address of
  /// this cluster), kIo.
  Result<std::shared_ptr<UcxLink>> link(const std::string& address);
  /// The peers of the view that is being connected: closes the links to all other addresses, and the gate to all other
  /// hosts. Errors: kIo.
  Result<void> expect_peers(std::span<const std::string> addresses);
  /// A control message; text or payload is copied. Lost where the link has failed.
  void send_control(UcxLink& link, const UcxHeader& header, std::span<const std::byte> payload);
  /// A slot that UCX does not read from now, with room for a chunk; null: none. Errors: kIo (no memory).
  Result<UcxLink::Slot*> free_slot(UcxLink& link);
  /// The slot's header and `bytes` of its data. The slot is busy until it is sent.
  void send_slot(UcxLink::Slot& slot, std::size_t bytes);
  /// Calls progress until the link's sends are out, at most for `patience`.
  void drain(UcxLink& link, std::chrono::milliseconds patience);

  void enlist(std::uint64_t session, UcxReceiver* receiver) { receivers_[session] = receiver; }
  void dismiss(std::uint64_t session) { receivers_.erase(session); }
  /// Hellos of this view, and all later ones, go to the receiver; null: they are kept.
  void expect_hellos(View view, UcxHelloReceiver* receiver);

 private:
  struct Closing {
    std::shared_ptr<UcxLink> link;
    void* request = nullptr;
  };

  explicit UcxWorker(const std::string& secret) : secret_(secret) {}
  Result<void> open(const std::string& tls);
  bool step();
  void close(std::shared_ptr<UcxLink> link);
  bool reap();
  void on_message(std::span<const std::byte> header, std::span<const std::byte> data);
  void on_hello(std::span<const std::byte> data);
  static ucs_status_t receive(void* self, const void* header, size_t header_bytes, void* data, size_t bytes,
                              const ucp_am_recv_param_t* param);

  const Secret secret_;
  std::mutex mutex_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int fd_ = -1;
  std::string address_;
  HostOrigin origin_;
  UcxGate gate_;
  std::unordered_map<std::string, std::shared_ptr<UcxLink>> links_;
  std::vector<Closing> closing_;
  std::unordered_map<std::uint64_t, UcxReceiver*> receivers_;
  View hello_view_;
  UcxHelloReceiver* hello_receiver_ = nullptr;
  std::map<std::pair<std::uint64_t, std::uint32_t>, UcxHello> early_hellos_;  ///< by view and rank; the latest counts
};

}  // namespace troupe::gpu::cpu
