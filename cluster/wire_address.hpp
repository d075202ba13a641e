#pragma once

#include <string>

#include "messages/error.hpp"

namespace troupe::cluster {

/// 127.x.y.z, ::1 or localhost: the only hosts that a wire without keys may touch.
bool is_loopback(const std::string& host);

/// The host of "tcp://host:port", without the brackets of an IPv6 address. Errors: kBadInput (says what an endpoint
/// looks like).
Result<std::string> endpoint_host(const std::string& endpoint);

/// "tcp://host:port" for a numeric host or localhost, IPv6 in brackets; port 0 is any free port.
std::string bind_endpoint(const std::string& host, unsigned port);

}  // namespace troupe::cluster
