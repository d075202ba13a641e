#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <zmq.hpp>

#include "cluster/wire.hpp"
#include "cluster/wire_handshakes.hpp"
#include "cluster/wire_queues.hpp"
#include "cluster/zap.hpp"

namespace troupe::cluster {

/// The I/O thread's side of the wire: every socket, what comes in, and what goes out of the queues. All functions from
/// one thread at a time: open() from the one that starts the wire, run() from the I/O thread. The counters may be read
/// from anywhere.
class WireLoop {
 public:
  struct Counters {
    std::atomic<std::uint64_t> sent{0};
    std::atomic<std::uint64_t> received{0};
    std::atomic<std::uint64_t> refused_frames{0};
    std::atomic<std::uint64_t> refused_handshakes{0};
    std::atomic<std::uint64_t> gaps{0};
  };

  WireLoop(const WireOptions& options, Wire::OnFrame on_frame, WireQueues& queues);

  /// Binds. Throws zmq::error_t.
  void open();
  /// tcp://host:port as bound; empty where it does not listen.
  const std::string& endpoint() const { return endpoint_; }
  /// Until the queues say stop and are empty or late; closes every socket.
  void run();
  const Counters& counters() const { return counters_; }

 private:
  struct Dealer {
    std::uint64_t generation = 0;
    std::string key;
    zmq::socket_t socket;
    bool blocked = false;  ///< its frames wait for ZeroMQ's own queue
  };
  /// A sender's last sequence number.
  using Heard = std::map<std::string, std::uint64_t>;

  bool plain() const { return options_.keys.public_key.empty(); }
  void turn(const WireQueues::News& news);
  void open_monitor();
  void reconcile();
  void connect(const WireQueues::Target& target);
  void close(int linger_ms);

  void flush();
  void flush_peer(const std::string& name, Dealer& dealer);
  void flush_replies(const std::string& routing_id);
  std::size_t send_some(zmq::socket_t& socket, const std::string* routing_id, WireQueues::Batch& batch);

  void receive_routed();
  void receive_from(const std::string& peer, Dealer& dealer);
  void take(const std::string& routing_id, const std::string& proven_key, const std::string* peer,
            const zmq::message_t& body);
  void refuse(const std::string& routing_id, const std::string& proven_key, const Error& error);
  void note_sequence(const messages::Envelope& envelope);
  void note_handshakes();
  void say_once(const std::string& kind, const std::string& who, const std::string& text);

  const WireOptions& options_;
  Wire::OnFrame on_frame_;
  WireQueues& queues_;
  Counters counters_;
  std::string endpoint_;

  // In this order: sockets are gone before their context.
  zmq::context_t context_;
  std::optional<ZapHandler> zap_;
  std::optional<zmq::socket_t> router_;
  std::optional<zmq::socket_t> monitor_;
  HandshakeWatch handshakes_;
  std::map<std::string, Dealer> dealers_;
  std::vector<zmq::pollitem_t> items_;
  bool replies_blocked_ = false;  ///< ROUTER cannot be polled for one connection, so these are tried again soon
  bool more_ = false;             ///< frames are left that the sockets would take
  Heard heard_;
  std::map<std::string, std::set<std::string>> said_;  ///< who was spoken of, by kind
};

}  // namespace troupe::cluster
