#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace troupe::gpu::cpu {

using Nonce = std::array<std::byte, 16>;
using Proof = std::array<std::byte, 32>;

/// Sixteen bytes that nobody can foresee, from the system.
Nonce make_nonce();

/// The cluster's shared secret, in the form of a key.
/// Thread rule: const, any thread.
class Secret {
 public:
  explicit Secret(const std::string& text);

  /// Keyed BLAKE2b over `role` and `bytes`: only who knows the secret can make it, and only for these. The role keeps a
  /// proof that was given for one purpose from being handed back for another.
  Proof prove(std::string_view role, std::span<const std::byte> bytes) const;
  /// Takes the same time whatever differs.
  static bool equal(const Proof& a, const Proof& b);

 private:
  Proof key_;
};

}  // namespace troupe::gpu::cpu
