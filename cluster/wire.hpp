#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "messages/envelope.hpp"
#include "messages/error.hpp"

/// The wire between processes: ZeroMQ with CURVE, msgpack frames. The only part that includes ZeroMQ.
namespace troupe::cluster {

struct CurveKeys {
  std::string public_key;  ///< Z85, 40 characters; empty: the plain wire (loopback only)
  std::string secret_key;
};
CurveKeys make_curve_keys();

struct WireOptions {
  std::string self;                        ///< node name in envelopes
  std::string bind_host = "127.0.0.1";
  std::uint16_t port = 0;                  ///< 0: any free port
  CurveKeys keys;                          ///< empty: plain
  std::vector<std::string> allowed_keys;   ///< ZAP allow-list of public keys; strangers get nothing
  bool allow_any_plain_loopback = false;   ///< a door on loopback that takes clients without keys
  std::size_t max_frame_bytes = std::size_t{64} << 20;
  int high_water_mark = 4096;              ///< frames queued per peer; a full queue is an error to the sender, never a wait
};

struct WireStats {
  std::uint64_t sent = 0, received = 0;
  std::uint64_t refused_frames = 0;    ///< did not decode, or another wire version
  std::uint64_t refused_handshakes = 0;///< strangers: no key, wrong key
  std::uint64_t dropped_sends = 0;     ///< queue full or peer unknown; the caller was told
};

/// A peer's identity as the wire proved it: an opaque routing id, and its CURVE key where there is one.
struct PeerHandle {
  std::string routing_id;
  std::string public_key;
};

/// A listening socket (ROUTER) and sockets to peers (DEALER), all owned by one I/O thread. Frames in: `on_frame`, called on that
/// thread, must not block. Frames out: `send`, from any thread, never blocks.
class Wire {
 public:
  using OnFrame = std::function<void(messages::Frame frame, const PeerHandle& from)>;

  /// Errors: kIo (port taken: names host and port), kBadInput (plain wire on a host that is not loopback).
  static Result<std::unique_ptr<Wire>> start(WireOptions options, OnFrame on_frame);
  virtual ~Wire() = default;

  /// tcp://host:port as bound.
  virtual std::string endpoint() const = 0;

  /// Makes `name` reachable by `send`. Connecting again with another endpoint or key replaces the old one.
  virtual Result<void> connect(const std::string& name, const std::string& endpoint, const std::string& server_key) = 0;
  virtual void disconnect(const std::string& name) = 0;
  /// More keys that may connect from now on.
  virtual void allow(const std::vector<std::string>& public_keys) = 0;

  /// To a peer that `connect` named. The sequence number of the envelope is filled in here (unless `droppable`).
  /// Errors: kUnavailable (not connected), kLimit (queue full).
  virtual Result<void> send(const std::string& peer, messages::Frame frame, bool droppable = false) = 0;
  /// Back to one who connected to us (answers to clients).
  virtual Result<void> reply(const PeerHandle& peer, messages::Frame frame) = 0;

  virtual WireStats stats() const = 0;
  /// Flushes for at most `linger`, closes every socket, joins the thread. The destructor does the same with 0.
  virtual void stop(std::chrono::milliseconds linger) = 0;
};

/// Heartbeats out, on a thread and socket of their own, whatever the rest of the process does.
class HeartbeatSender {
 public:
  struct Options {
    std::string node;
    Incarnation incarnation;
    std::string endpoint;    ///< the coordinator's
    std::string server_key;  ///< empty: plain
    CurveKeys keys;
    std::chrono::milliseconds interval{200};
  };
  static Result<std::unique_ptr<HeartbeatSender>> start(Options options);
  virtual ~HeartbeatSender() = default;
};

}  // namespace troupe::cluster
