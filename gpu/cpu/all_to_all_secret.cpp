#include "gpu/cpu/all_to_all_secret.hpp"

#include <cstring>

#include <sodium.h>

namespace troupe::gpu::cpu {
namespace {

const unsigned char* raw(const void* bytes) {
  return static_cast<const unsigned char*>(bytes);
}

// Chooses libsodium's random source and kernels; safe to call from several threads and again.
void wake_sodium() {
  [[maybe_unused]] static const int once = sodium_init();
}

}  // namespace

Nonce make_nonce() {
  wake_sodium();
  Nonce nonce;
  randombytes_buf(nonce.data(), nonce.size());
  return nonce;
}

Secret::Secret(const std::string& text) {
  wake_sodium();
  crypto_generichash(reinterpret_cast<unsigned char*>(key_.data()), key_.size(), raw(text.data()), text.size(), nullptr,
                     0);
}

Proof Secret::prove(std::string_view role, std::span<const std::byte> bytes) const {
  crypto_generichash_state state;
  crypto_generichash_init(&state, raw(key_.data()), key_.size(), sizeof(Proof));
  const std::uint64_t role_bytes = role.size();
  crypto_generichash_update(&state, raw(&role_bytes), sizeof role_bytes);
  crypto_generichash_update(&state, raw(role.data()), role.size());
  crypto_generichash_update(&state, raw(bytes.data()), bytes.size());
  Proof proof;
  crypto_generichash_final(&state, reinterpret_cast<unsigned char*>(proof.data()), proof.size());
  return proof;
}

bool Secret::equal(const Proof& a, const Proof& b) {
  return sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace troupe::gpu::cpu
