#include "gpu/cpu/all_to_all_connect.hpp"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include <sodium.h>

#include "gpu/cpu/inbox.hpp"

namespace troupe::gpu::cpu {
namespace {

void add_text(crypto_generichash_state& state, const std::string& text) {
  const std::uint64_t bytes = text.size();
  crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(&bytes), sizeof bytes);
  crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(text.data()), text.size());
}

std::uint64_t digest_addresses(std::span<const messages::BulkAddress> ranks) {
  crypto_generichash_state state;
  unsigned char out[crypto_generichash_BYTES_MIN];
  crypto_generichash_init(&state, nullptr, 0, sizeof out);
  for (const auto& address : ranks) {
    add_text(state, address.host_key);
    add_text(state, address.shm_name);
    add_text(state, address.ucx_address);
  }
  crypto_generichash_final(&state, out, sizeof out);
  std::uint64_t digest = 0;
  std::memcpy(&digest, out, sizeof digest);
  return digest;
}

}  // namespace

Result<Agreement> check_connect(View view, Rank self, std::span<const messages::BulkAddress> ranks,
                                const messages::BulkAddress& own, View newest, std::size_t inbox_bytes) {
  const std::string where = "connecting view " + std::to_string(view.value);
  if (ranks.empty() || ranks.size() > kMaxRanks)
    return fail(ErrorCode::kLimit, where + ": " + std::to_string(ranks.size()) + " ranks; 1 to " +
                                       std::to_string(kMaxRanks) + " are possible");
  if (self.value >= ranks.size())
    return fail(ErrorCode::kBadInput,
                where + ": rank " + std::to_string(self.value) + " of " + std::to_string(ranks.size()) + " ranks");
  if (view <= newest)
    return fail(ErrorCode::kStale, where + ": this worker has been connected for view " + std::to_string(newest.value) +
                                       " already; connect for a newer view");
  if (!(ranks[self.value] == own))
    return fail(ErrorCode::kBadInput, where + ": the address of rank " + std::to_string(self.value) +
                                          " is not this worker's own; pass what address() returned");
  std::unordered_map<std::string, std::size_t> seen;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const auto& address = ranks[r];
    const std::string key = std::to_string(address.host_key.size()) + ":" + address.host_key +
                            std::to_string(address.shm_name.size()) + ":" + address.shm_name + address.ucx_address;
    const auto [at, fresh] = seen.emplace(key, r);
    if (!fresh)
      return fail(ErrorCode::kBadInput, where + ": ranks " + std::to_string(at->second) + " and " + std::to_string(r) +
                                            " have the same address; each worker may be listed once");
  }
  return Agreement{view, static_cast<std::uint32_t>(ranks.size()), inbox_bytes, digest_addresses(ranks)};
}

Error disagreement(Rank self, Rank peer, const Agreement& ours, const Agreement& theirs) {
  const auto text = [&](const char* what, std::uint64_t own, std::uint64_t other, const char* way_out) {
    return "rank " + std::to_string(self.value) + " has " + what + " " + std::to_string(own) + ", rank " +
           std::to_string(peer.value) + " has " + std::to_string(other) + "; " + way_out;
  };
  if (ours.view != theirs.view)
    return Error{ErrorCode::kStale,
                 text("view", ours.view.value, theirs.view.value, "all must connect for the newest view")};
  if (ours.ranks != theirs.ranks)
    return Error{ErrorCode::kMismatch, text("ranks", ours.ranks, theirs.ranks, "one view has one list of ranks")};
  if (ours.inbox_bytes != theirs.inbox_bytes)
    return Error{ErrorCode::kMismatch,
                 text("inbox_bytes", ours.inbox_bytes, theirs.inbox_bytes, "set the same size on all nodes")};
  return Error{ErrorCode::kMismatch,
               text("address list", ours.addresses, theirs.addresses, "one view has one list of addresses")};
}

std::string name_ranks(std::span<const std::uint32_t> ranks) {
  constexpr std::size_t kNamed = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(ranks.size(), kNamed); ++i)
    text += (i == 0 ? "rank " : ", rank ") + std::to_string(ranks[i]);
  if (ranks.size() > kNamed) text += " and " + std::to_string(ranks.size() - kNamed) + " more";
  return text;
}

}  // namespace troupe::gpu::cpu
