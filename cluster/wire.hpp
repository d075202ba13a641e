#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "messages/envelope.hpp"
#include "messages/error.hpp"

/// The wire between processes: ZeroMQ with CURVE, msgpack frames. The only part that includes ZeroMQ.
namespace troupe::cluster {

struct CurveKeys {
  std::string public_key;  ///< Z85, 40 characters; empty: the plain wire (loopback only)
  std::string secret_key;
  friend bool operator==(const CurveKeys&, const CurveKeys&) = default;
};
CurveKeys make_curve_keys();

struct WireOptions {
  std::string self;                     ///< node name in envelopes
  bool listen = true;                   ///< false: a client, that only connects
  std::string bind_host = "127.0.0.1";  ///< numeric address, or 0.0.0.0
  std::uint16_t port = 0;               ///< 0: any free port
  CurveKeys keys;                       ///< empty: plain
  /// (name, public key) of all who may connect; strangers get nothing, and nobody can speak under another's name.
  std::vector<std::pair<std::string, std::string>> allowed_keys;
  std::size_t max_frame_bytes = std::size_t{64} << 20;
  int high_water_mark = 4096;  ///< frames queued per peer; a full queue is an error to the sender, never a wait
  /// What a person should hear of, each kind once; may be null. Called on the I/O thread.
  std::function<void(std::string_view)> log;
  /// Frames of `from` are missing before the one that comes next; may be null. Called on the I/O thread.
  std::function<void(const std::string& from, std::uint64_t expected, std::uint64_t got)> on_gap;
};

struct WireStats {
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  std::uint64_t refused_frames = 0;      ///< did not decode, another wire version, or under a false name
  std::uint64_t refused_handshakes = 0;  ///< strangers and noise: no key, wrong key, another protocol
  std::uint64_t dropped_sends = 0;       ///< queue full or peer gone; the caller was told, or it was an answer
  std::uint64_t gaps = 0;                ///< sequence numbers that were missing
};

/// Who sent a frame: for a reply to one who connected to us.
struct PeerHandle {
  std::string routing_id;  ///< empty: it came over a connection that we made
  std::string name;        ///< as CURVE proved it; on the plain wire as the envelope says
};

/// A listening socket (ROUTER) and sockets to peers (DEALER), all owned by one I/O thread. Frames in: `on_frame`,
/// called on that thread, must not block. Frames out: `send` and `reply`, from any thread, never block.
class Wire {
 public:
  using OnFrame = std::function<void(messages::Frame frame, const PeerHandle& from)>;

  /// Errors: kIo (port taken: names host and port), kBadInput (plain wire on a host that is not loopback; a malformed
  /// key).
  static Result<std::unique_ptr<Wire>> start(WireOptions options, OnFrame on_frame);
  virtual ~Wire() = default;

  /// tcp://host:port as bound; empty where it does not listen.
  virtual std::string endpoint() const = 0;

  /// Makes `name` reachable by `send`. Connecting again with another endpoint or key replaces the old connection; with
  /// the same ones it does nothing. Errors: kBadInput (endpoint or key malformed), kAborted.
  virtual Result<void> connect(const std::string& name, const std::string& endpoint, const std::string& server_key) = 0;
  virtual void disconnect(const std::string& name) = 0;
  /// More (name, key) pairs that may connect from now on; who was refused before gets in within some seconds. A key may
  /// have several names. Errors: kBadInput (names the key that is none; nothing is allowed then).
  virtual Result<void> allow(const std::vector<std::pair<std::string, std::string>>& keys) = 0;

  /// To a peer that `connect` named. The sequence number of the envelope is filled in here (0 where `droppable`).
  /// Errors: kUnavailable (not connected), kLimit (queue full, or a frame beyond max_frame_bytes), kAborted.
  virtual Result<void> send(const std::string& peer, messages::Frame frame, bool droppable = false) = 0;
  /// Back to one who connected to us (answers to clients). Errors: as send.
  virtual Result<void> reply(const PeerHandle& peer, messages::Frame frame) = 0;

  virtual WireStats stats() const = 0;
  /// Sends what is queued for at most `linger`, closes every socket, joins the thread. The destructor does the same
  /// with 0.
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
