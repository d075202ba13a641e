#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "gpu/all_to_all.hpp"

/// What the all-to-all tests share: ranks as threads, and blocks whose every byte is known.
namespace troupe::gpu::testing {

using namespace std::chrono_literals;
using Clock = AllToAll::Clock;

/// Far beyond any test; a wait that ends by it has failed.
inline Clock::time_point soon_enough() {
  return Clock::now() + 60s;
}

inline ExchangeTag tag(std::uint64_t pass, std::uint32_t layer = 0, std::uint32_t phase = 0) {
  return {StepId{PassNumber(pass), layer}, phase};
}

/// Byte i of the block that `from` sends `to` in a round.
inline std::byte expected_byte(std::uint32_t from, std::uint32_t to, std::uint64_t round, std::size_t i) {
  std::uint64_t x = (std::uint64_t{from} << 40) ^ (std::uint64_t{to} << 20) ^ (round * 0x9e3779b97f4a7c15U) ^ (i / 8);
  x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9U;
  return static_cast<std::byte>((x >> (8 * (i % 8))) & 0xff);
}

inline std::vector<std::byte> make_block(std::uint32_t from, std::uint32_t to, std::uint64_t round, std::size_t bytes) {
  std::vector<std::byte> block(bytes);
  for (std::size_t i = 0; i < bytes; ++i) block[i] = expected_byte(from, to, round, i);
  return block;
}

/// Empty where `got` is the block; else what is wrong with it.
inline std::string wrong_with(std::span<const std::byte> got, std::uint32_t from, std::uint32_t to, std::uint64_t round,
                              std::size_t bytes) {
  const std::string where =
      "block from " + std::to_string(from) + " to " + std::to_string(to) + " in round " + std::to_string(round) + ": ";
  if (got.size() != bytes) return where + std::to_string(got.size()) + " bytes, expected " + std::to_string(bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    if (got[i] != expected_byte(from, to, round, i)) return where + "byte " + std::to_string(i) + " differs";
  return {};
}

/// bytes_of(from, to): what every rank knows about a round. Sends and checks it; empty where all is well.
inline std::string exchange_and_check(AllToAll& all, std::uint64_t round,
                                      const std::function<std::size_t(std::uint32_t, std::uint32_t)>& bytes_of,
                                      Clock::time_point deadline = soon_enough()) {
  const std::uint32_t self = all.rank().value;
  std::vector<std::vector<std::byte>> blocks;
  std::vector<SendBlock> sends;
  std::vector<std::size_t> recv_bytes;
  for (std::uint32_t r = 0; r < all.ranks(); ++r) {
    blocks.push_back(make_block(self, r, round, bytes_of(self, r)));
    recv_bytes.push_back(bytes_of(r, self));
  }
  for (const auto& block : blocks) sends.push_back({block, 0, {}});
  auto got = all.exchange(tag(round), sends, recv_bytes, deadline);
  if (!got) return std::string(to_string(got.error().code)) + ": " + got.error().message;
  for (std::uint32_t r = 0; r < all.ranks(); ++r) {
    std::string wrong = wrong_with((*got)[r], r, self, round, recv_bytes[r]);
    if (!wrong.empty()) return wrong;
  }
  return {};
}

inline std::vector<messages::BulkAddress> addresses_of(const std::vector<std::unique_ptr<BulkEndpoint>>& endpoints) {
  std::vector<messages::BulkAddress> addresses;
  for (const auto& endpoint : endpoints) addresses.push_back(endpoint->address());
  return addresses;
}

/// Runs body(rank) in a thread per rank and joins them all. Results by rank: empty where all is well.
inline std::vector<std::string> on_threads(std::uint32_t ranks, const std::function<std::string(std::uint32_t)>& body) {
  std::vector<std::string> results(ranks);
  std::vector<std::thread> threads;
  for (std::uint32_t r = 0; r < ranks; ++r) threads.emplace_back([&, r] { results[r] = body(r); });
  for (auto& thread : threads) thread.join();
  return results;
}

/// As on_threads, each rank with its all-to-all of a view over these endpoints.
inline std::vector<std::string> on_view(const std::vector<std::unique_ptr<BulkEndpoint>>& endpoints, View view,
                                        const std::function<std::string(AllToAll&)>& body) {
  const auto addresses = addresses_of(endpoints);
  return on_threads(static_cast<std::uint32_t>(endpoints.size()), [&](std::uint32_t r) -> std::string {
    auto all = endpoints[r]->connect(view, Rank(r), addresses, soon_enough());
    if (!all) return "connect: " + all.error().message;
    return body(**all);
  });
}

}  // namespace troupe::gpu::testing
