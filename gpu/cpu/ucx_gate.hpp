#pragma once

#include <array>
#include <cstddef>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "messages/error.hpp"

namespace troupe::gpu::cpu {

/// Where a host's connections come from: its addresses, and a number that is equal for processes of one host and
/// network namespace.
struct HostOrigin {
  std::uint64_t host = 0;
  std::vector<std::array<std::byte, 16>> addresses;  ///< IPv4 ones as ::ffff:a.b.c.d; no loopback

  /// Errors: kIo.
  static Result<HostOrigin> of_this_host();
  std::string encode() const;
  /// Takes an origin off the front of `bytes`. Errors: kBadMessage.
  static Result<HostOrigin> decode(std::string& bytes);
};

/// Keeps strangers away from UCX's TCP ports. UCX trusts whoever connects: a few chosen bytes crash it. So a filter on
/// its listening sockets drops, in the kernel, every connection that does not come from a host of the current view;
/// where no peer of the view is reached by UCX, as in a cluster on one machine, every one. What a host of the view
/// sends is not filtered: that is trusted, as its users are. Until the first view the gate is open: a connection that
/// is dropped is tried again by TCP only after a second, and a newcomer would be late by that, and all others with it.
/// Thread rule: one thread at a time.
class UcxGate {
 public:
  /// TCP sockets of this process that listen.
  static std::set<int> listening_sockets();

  /// Takes the sockets that listen now, did not `before`, and whose port is in UCX's address.
  UcxGate(const std::set<int>& before, const std::string& ucx_address);
  UcxGate() = default;

  /// Lets in the hosts of these origins, and no others from now on; what is connected stays. Loopback counts as the
  /// origin whose host is `own`. Errors: kIo (the kernel refuses the filter).
  Result<void> admit(std::uint64_t own, std::span<const HostOrigin> origins);

 private:
  std::vector<int> sockets_;  ///< UCX's; it closes them
};

}  // namespace troupe::gpu::cpu
