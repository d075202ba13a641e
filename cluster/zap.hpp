#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>

#include <zmq.hpp>

namespace troupe::cluster {

/// The domain that every listening socket names. Without one ZeroMQ asks nobody on the plain wire, and takes raw bytes
/// that speak no ZMTP at all for frames of its oldest version.
inline constexpr const char* kZapDomain = "troupe";

/// ZeroMQ's authentication protocol (RFC 27/ZAP) for one context. With keys: those on the list get in, no one else.
/// Plain: who reaches the socket, which is on loopback. Thread rule: the I/O thread of the wire.
class ZapHandler {
 public:
  /// Binds inproc://zeromq.zap.01 of the context; must come before any server socket binds. Throws zmq::error_t.
  /// on_stranger: called for each one refused, with its address and key (Z85; empty: it has none).
  ZapHandler(zmq::context_t& context, bool plain,
             std::function<void(const std::string& address, const std::string& key)> on_stranger);
  zmq::socket_t& socket() { return socket_; }
  /// A key may have several names: processes of one node can share it.
  void allow(const std::string& name, const std::string& public_key);
  /// Whether who proved this key may speak as `name`.
  bool may_speak_as(const std::string& public_key, const std::string& name) const;
  /// Answers all requests that are there. Who is let in carries its key as ZeroMQ's User-Id.
  void answer_requests();

 private:
  zmq::socket_t socket_;
  bool plain_;
  std::function<void(const std::string&, const std::string&)> on_stranger_;
  std::map<std::string, std::set<std::string>> names_;  ///< by key, Z85
};

}  // namespace troupe::cluster
