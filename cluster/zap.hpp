#pragma once

#include <map>
#include <string>

#include <zmq.hpp>

namespace troupe::cluster {

/// ZeroMQ's authentication protocol (RFC 27/ZAP) for one context: CURVE keys on the list get in, under their name; no one else.
/// Thread rule: the I/O thread of the wire.
class ZapHandler {
 public:
  /// Binds inproc://zeromq.zap.01 of the context; must come before any server socket binds.
  explicit ZapHandler(zmq::context_t& context);
  zmq::socket_t& socket() { return socket_; }
  void allow(const std::string& name, const std::string& public_key);
  /// Answers all requests that are there. Returns how many were refused.
  std::uint64_t answer_requests();

 private:
  zmq::socket_t socket_;
  std::map<std::string, std::string> names_;  ///< by key, Z85
};

}  // namespace troupe::cluster
