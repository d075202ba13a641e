#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>

namespace troupe::cluster {

/// Tells from the events of a listening socket's monitor which connections came to nothing. ZeroMQ names a connection
/// (by descriptor) when it is accepted and when it ends, but not when its handshake succeeds, and of plain noise it
/// says nothing but these two. So: connections that shake hands at the same time are one group; once there are as many
/// successes as connections in it, all of them have succeeded. Until then one that ends without a word is taken for
/// noise. If it turns out that it had succeeded, the next noise goes uncounted instead. One thread.
class HandshakeWatch {
 public:
  enum class Refusal { kNoise, kProtocol, kKey, kBrokenOff };

  /// The events that it needs, for zmq_socket_monitor.
  static int events();
  /// event and value as the monitor sends them. Gives why a connection was refused, when one was.
  std::optional<Refusal> on_event(std::uint16_t event, std::uint32_t value);
  /// Refusals told that were none, and are not yet made up for.
  std::size_t surplus() const { return surplus_; }

 private:
  void settle_group();

  std::set<std::uint32_t> shaking_;  ///< descriptors accepted that may not have succeeded yet; bounded by the open ones
  std::size_t successes_ = 0;        ///< of connections in shaking_
  std::size_t surplus_ = 0;
  Refusal why_ = Refusal::kNoise;  ///< of the connection whose end is told next
};

}  // namespace troupe::cluster
