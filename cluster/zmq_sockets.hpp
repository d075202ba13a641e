#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include <zmq.hpp>

#include "cluster/wire.hpp"

/// How Troupe sets up ZeroMQ's sockets. Internal to the wire.
namespace troupe::cluster::zmq_sockets {

inline constexpr std::size_t kZ85Length = 40;

inline bool is_key(const std::string& z85) {
  std::array<std::uint8_t, 32> raw{};
  return z85.size() == kZ85Length && ::zmq_z85_decode(raw.data(), z85.c_str()) != nullptr;
}

/// Whether the two keys belong together.
inline bool is_pair(const CurveKeys& keys) {
  std::array<char, kZ85Length + 1> public_key{};
  return is_key(keys.public_key) && is_key(keys.secret_key) &&
         ::zmq_curve_public(public_key.data(), keys.secret_key.c_str()) == 0 && keys.public_key == public_key.data();
}

/// What every socket gets: nothing waits for ever, no queue or message without a bound, dead connections noticed. Of a
/// connection that does not answer ZeroMQ's own heartbeats both sides let go, so a half-open one cannot hold frames.
inline void set_limits(zmq::socket_t& socket, std::size_t max_frame_bytes, int high_water_mark) {
  socket.set(zmq::sockopt::linger, 0);
  socket.set(zmq::sockopt::maxmsgsize, static_cast<std::int64_t>(max_frame_bytes));
  socket.set(zmq::sockopt::sndhwm, high_water_mark);
  socket.set(zmq::sockopt::rcvhwm, high_water_mark);
  socket.set(zmq::sockopt::handshake_ivl, 3'000);
  socket.set(zmq::sockopt::connect_timeout, 5'000);
  socket.set(zmq::sockopt::heartbeat_ivl, 1'000);
  socket.set(zmq::sockopt::heartbeat_timeout, 10'000);
  socket.set(zmq::sockopt::heartbeat_ttl, 10'000);
  socket.set(zmq::sockopt::reconnect_ivl, 20);
  socket.set(zmq::sockopt::reconnect_ivl_max, 1'000);
  socket.set(zmq::sockopt::ipv6, true);
}

inline void set_client_keys(zmq::socket_t& socket, const CurveKeys& keys, const std::string& server_key) {
  if (keys.public_key.empty()) return;
  socket.set(zmq::sockopt::curve_publickey, keys.public_key);
  socket.set(zmq::sockopt::curve_secretkey, keys.secret_key);
  socket.set(zmq::sockopt::curve_serverkey, server_key);
}

}  // namespace troupe::cluster::zmq_sockets
