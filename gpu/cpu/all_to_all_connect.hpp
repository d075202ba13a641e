#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "gpu/all_to_all.hpp"

namespace troupe::gpu::cpu {

/// What both ends of a pair must agree on before they exchange a byte.
struct Agreement {
  View view;
  std::uint32_t ranks = 0;
  std::uint64_t inbox_bytes = 0;
  std::uint64_t addresses = 0;  ///< digest of all ranks' addresses, in rank order
  friend bool operator==(const Agreement&, const Agreement&) = default;
};

/// Checks the arguments of a connect. newest: the newest view that this endpoint has been connected for.
/// Errors: kBadInput (self or an address does not fit), kStale (a view not newer than `newest`), kLimit (too many
/// ranks).
Result<Agreement> check_connect(View view, Rank self, std::span<const messages::BulkAddress> ranks,
                                const messages::BulkAddress& own, View newest, std::size_t inbox_bytes);

/// Why a peer's agreement is not ours: names the first field that differs and both values.
Error disagreement(Rank self, Rank peer, const Agreement& ours, const Agreement& theirs);

/// "rank 1, rank 3": for errors that name who is missing; at most eight by name.
std::string name_ranks(std::span<const std::uint32_t> ranks);

}  // namespace troupe::gpu::cpu
