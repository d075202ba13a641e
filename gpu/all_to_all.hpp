#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "messages/control.hpp"
#include "messages/error.hpp"
#include "messages/ids.hpp"

/// Bulk exchange of variable-sized blocks among the ranks of one view.
namespace troupe::gpu {

/// Which exchange this is. Both sides of every block compare it: ranks out of step get an error, never other bytes.
struct ExchangeTag {
  StepId step;
  std::uint32_t phase = 0;  ///< caller's number of the exchange within the step (counts, dispatch, combine, by round)
  friend constexpr auto operator<=>(const ExchangeTag&, const ExchangeTag&) = default;
};

/// What goes to one rank: all of `base`, or, where `rows` is not empty, the rows `base + rows[i] * row_bytes` in that
/// order. The gather is fused with the copy into the receiver's inbox.
struct SendBlock {
  std::span<const std::byte> base;
  std::size_t row_bytes = 0;
  std::span<const std::uint32_t> rows;
  std::size_t bytes() const { return rows.empty() ? (row_bytes == 0 ? base.size() : 0) : rows.size() * row_bytes; }
};

struct AllToAllStats {
  std::uint64_t exchanges = 0;
  std::uint64_t bytes_sent = 0;  ///< payload to other ranks; what stays on the rank is not counted
  std::uint64_t bytes_received = 0;
};

/// One rank's end. Every rank of the view takes part in every exchange, with every peer, even with zero bytes.
/// Thread rule: one thread calls the exchanges; `abort` may be called from any thread at any time.
class AllToAll {
 public:
  using Clock = std::chrono::steady_clock;

  virtual ~AllToAll() = default;

  virtual Rank rank() const = 0;
  virtual std::uint32_t ranks() const = 0;

  /// Sends `sends[r]` to rank r and waits for `recv_bytes[r]` from rank r (sizes are known beforehand: they were agreed
  /// in an exchange of counts, whose own size is fixed). Result: one span per rank. A span stays valid until the next
  /// exchange begins; it may point into the inbox itself.
  /// sends, recv_bytes: size ranks(), at most 1 GiB each. The block to oneself is delivered too. What `sends` points at
  /// may be changed as soon as this returns.
  /// Errors: kMismatch (names rank, tag and both sizes), kDeadline (names the ranks that are missing), kAborted,
  /// kUnavailable (the peer is gone; a hint only, membership decides), kBadInput and kLimit (arguments that cannot be
  /// meant; name the block), kIo. After an error this object is only good for abort, and peers learn of it only by
  /// that.
  virtual Result<std::span<const std::span<const std::byte>>> exchange(ExchangeTag tag,
                                                                       std::span<const SendBlock> sends,
                                                                       std::span<const std::size_t> recv_bytes,
                                                                       Clock::time_point deadline) = 0;

  /// Wakes every waiter of this rank's end, and tells the peers, with kAborted and `reason` (they get its first 248
  /// bytes). Idempotent. A peer's exchange for which all blocks have come still succeeds.
  virtual void abort(std::string reason) = 0;

  virtual AllToAllStats stats() const = 0;
};

/// How bulk data travels between two ranks.
enum class BulkTransport { kAuto, kShm, kUcx };

/// One GPU worker's lasting end of the bulk transport, from process start to exit: it owns the address that peers use,
/// and makes an AllToAll for each view.
/// Thread rule: `connect` is called by one thread at a time; `address` from any.
class BulkEndpoint {
 public:
  virtual ~BulkEndpoint() = default;

  /// What goes into Join for this GPU worker.
  virtual messages::BulkAddress address() const = 0;

  /// Builds the exchange for a view: one address per rank, in rank order, this worker's own among them. Collective:
  /// returns when all peers have connected to all. The all-to-all of an older view should be aborted by then; it may be
  /// destroyed later. After an error a connect may be tried again, for the same view or a newer one.
  /// Errors: kDeadline (names the ranks missing), kUnavailable (no transport reaches a rank: names it and why; or it is
  /// gone), kStale (this worker or a peer has a newer view), kMismatch (the ranks disagree on ranks, addresses or
  /// inbox_bytes), kRefused (a peer does not know the secret), kBadInput, kLimit (more than 4096 ranks), kAborted, kIo.
  virtual Result<std::unique_ptr<AllToAll>> connect(View view, Rank self, std::span<const messages::BulkAddress> ranks,
                                                    AllToAll::Clock::time_point deadline) = 0;

  /// Makes a pending or later `connect` return kAborted. Any thread.
  virtual void shut() = 0;
};

struct BulkOptions {
  BulkTransport transport = BulkTransport::kAuto;
  /// Room per (source, buffer) in an inbox, 4 KiB to 1 GiB; two buffers per source, which take memory only once they
  /// are used. A larger block goes in chunks, at half the speed. All ranks of a view must have the same.
  std::size_t inbox_bytes = std::size_t{4} << 20;
  std::string ucx_tls;  ///< restricts UCX's transports ("tcp"); empty: TCP, and RDMA where there is any
};

/// Endpoint for ranks in other processes: shared memory where the host key is equal, UCX elsewhere (kAuto), or one of
/// them forced. The secret is shared by the cluster and proves to a peer's socket that the caller belongs to it.
/// UCX takes the networks that it may use from the environment variable UCX_NET_DEVICES ("eth0"). Its TCP ports are
/// open to all until the first view, and from then on to the hosts of the view only.
/// Do not fork after this: the child would hold the sockets by which peers learn that this process has died.
/// Errors: kIo (no sockets, or, where UCX is forced, no such transport).
Result<std::unique_ptr<BulkEndpoint>> make_bulk_endpoint(const BulkOptions& options, const std::string& secret);

/// Endpoints for `count` ranks that live in this process (single-process clusters, tests): the same inboxes in plain
/// memory.
std::vector<std::unique_ptr<BulkEndpoint>> make_in_process_endpoints(std::uint32_t count,
                                                                     const BulkOptions& options = {});

}  // namespace troupe::gpu
