#include "cluster/wire_address.hpp"

#include <cctype>

#include <arpa/inet.h>

namespace troupe::cluster {

bool is_loopback(const std::string& host) {
  in_addr v4{};
  if (::inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24U) == 127U;
  in6_addr v6{};
  if (::inet_pton(AF_INET6, host.c_str(), &v6) == 1) return IN6_IS_ADDR_LOOPBACK(&v6) != 0;
  return host == "localhost";
}

Result<std::string> endpoint_host(const std::string& endpoint) {
  constexpr std::size_t kLongest = 300;  // a DNS name has at most 253 characters
  const auto bad = [&] {
    std::string text = "\"";
    text += endpoint.substr(0, kLongest);
    text += "\" is no endpoint like tcp://host:port";
    return fail(ErrorCode::kBadInput, std::move(text));
  };
  const std::string scheme = "tcp://";
  const auto colon = endpoint.rfind(':');
  if (endpoint.size() > kLongest || endpoint.rfind(scheme, 0) != 0 || colon < scheme.size()) return bad();
  std::string host = endpoint.substr(scheme.size(), colon - scheme.size());
  const std::string port = endpoint.substr(colon + 1);
  if (port.empty() || port.size() > 5 || port.find_first_not_of("0123456789") != std::string::npos) return bad();
  if (const int number = std::stoi(port); number < 1 || number > 65535) return bad();
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string::npos) {
    return bad();
  }
  // No ';', '/' or blank: ZeroMQ reads more than an address from these.
  for (const char c : host) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && std::string("-._:%").find(c) == std::string::npos)
      return bad();
  }
  if (host.empty()) return bad();
  return host;
}

std::string bind_endpoint(const std::string& host, unsigned port) {
  std::string text = "tcp://";
  if (host.find(':') != std::string::npos) {
    text += '[';
    text += host;
    text += ']';
  } else {
    text += host == "localhost" ? "127.0.0.1" : host;  // ZeroMQ binds to numeric addresses only
  }
  text += ':';
  text += port == 0 ? "*" : std::to_string(port);
  return text;
}

}  // namespace troupe::cluster
