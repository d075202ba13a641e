#include <algorithm>
#include <limits>

#include "scheduling/dispatch.hpp"

namespace troupe::scheduling {
namespace {

constexpr std::uint32_t kNowhere = std::numeric_limits<std::uint32_t>::max();

/// What every rank knows of every other from the counts: queues, and who holds which part of the overflow.
struct Queues {
  std::vector<std::uint64_t> length;     ///< [sites]
  std::vector<std::uint64_t> own_first;  ///< [sites] place of this rank's first row
  std::uint64_t overflow = 0;            ///< rows beyond the capacity, of all ranks and sites
  std::uint64_t overflow_before = 0;     ///< of these, those of ranks below this one
  std::uint64_t overflow_own = 0;
};

Queues queues_of(const LayerSites& sites, std::span<const std::uint32_t> counts, Rank self, std::uint64_t limit) {
  const std::size_t n = sites.sites.size();
  Queues queues{std::vector<std::uint64_t>(n, 0), {}, 0, 0, 0};
  for (std::uint32_t r = 0; r < sites.ranks; ++r) {
    if (r == self.value) {
      queues.own_first = queues.length;
      queues.overflow_before = queues.overflow;
    }
    for (std::size_t s = 0; s < n; ++s) {
      const std::uint64_t begin = queues.length[s];
      const std::uint64_t end = begin + counts[r * n + s];
      queues.length[s] = end;
      if (end > limit) queues.overflow += end - std::max(begin, limit);
    }
    if (r == self.value) queues.overflow_own = queues.overflow - queues.overflow_before;
  }
  return queues;
}

/// Own rows of site s that overflow, as indices into the rows of the demand, which begin at `first_row`.
struct OwnOverflow {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  std::uint64_t place = 0;  ///< of the first, in the queue
};
OwnOverflow own_overflow(const Queues& queues, std::size_t s, std::uint32_t first_row, std::uint32_t count,
                         std::uint64_t limit) {
  const std::uint64_t place = std::clamp(limit, queues.own_first[s], queues.own_first[s] + count);
  return {first_row + static_cast<std::uint32_t>(place - queues.own_first[s]), first_row + count, place};
}

/// Sends overflow row i of an expert to free place i of its replicas.
void settle_in_replicas(const LayerSites& sites, const Queues& queues, std::uint64_t limit, const Demand& demand,
                        std::vector<std::uint32_t>& target, Settled& settled) {
  std::uint32_t row = 0;
  for (std::size_t e = 0; e + 1 < sites.first_site.size(); ++e) {
    const std::uint32_t first = sites.first_site[e];
    const std::uint32_t end = sites.first_site[e + 1];
    // Both numbers only grow along the sites, so that one cursor over the free places will do.
    std::uint64_t number_of_first = 0;  // of the site's first overflow row
    std::uint32_t free_site = first;
    std::uint64_t free_before = 0;  // free places of sites below free_site
    const auto room = [&](std::uint32_t s) { return limit > queues.length[s] ? limit - queues.length[s] : 0; };
    for (std::uint32_t s = first; s < end; ++s) {
      const OwnOverflow own = own_overflow(queues, s, row, demand.counts[s], limit);
      for (std::uint32_t i = own.begin; i < own.end; ++i) {
        const std::uint64_t number = number_of_first + (own.place - limit) + (i - own.begin);
        while (free_site < end && number >= free_before + room(free_site)) free_before += room(free_site++);
        if (free_site == end) break;
        target[i] = free_site;
        ++settled.moved;
      }
      if (queues.length[s] > limit) number_of_first += queues.length[s] - limit;
      row += demand.counts[s];
    }
  }
}

/// This rank's part of each site's room: the parts of all ranks sum to the room.
std::vector<std::uint64_t> own_room(const Queues& queues, std::uint64_t limit) {
  std::vector<std::uint64_t> room(queues.length.size(), 0);
  for (std::size_t s = 0; s < room.size(); ++s) {
    if (queues.length[s] >= limit) continue;
    const std::uint64_t free = limit - queues.length[s];
    // Rounding starts elsewhere at each site, or the same rank would win every single place.
    const std::uint64_t offset = (s * 0x9E3779B97F4A7C15U >> 32) % queues.overflow;
    const auto upto = [&](std::uint64_t overflow) { return (free * overflow + offset) / queues.overflow; };
    room[s] = upto(queues.overflow_before + queues.overflow_own) - upto(queues.overflow_before);
  }
  return room;
}

/// Moves overflow rows to further choices of their tokens, or drops them.
void settle_in_next_choices(const LayerSites& sites, const Queues& queues, std::uint64_t limit,
                            std::span<const std::int32_t> extra, std::uint32_t extra_per_token, Routes& routes,
                            const Demand& demand, std::vector<std::uint32_t>& target, Settled& settled) {
  std::vector<std::uint64_t> room = own_room(queues, limit);
  const std::size_t k = routes.top_k;
  const auto find_site = [&](std::uint32_t token, const std::int32_t* ids) {
    for (std::size_t c = 0; c < extra_per_token; ++c) {
      const std::int32_t id = extra[std::size_t{token} * extra_per_token + c];
      if (id < 0 || static_cast<std::size_t>(id) + 1 >= sites.first_site.size()) continue;
      if (std::find(ids, ids + k, id) != ids + k) continue;
      const std::uint32_t begin = sites.first_site[static_cast<std::size_t>(id)];
      const std::uint32_t end = sites.first_site[static_cast<std::size_t>(id) + 1];
      if (begin == end) continue;
      std::uint32_t best = begin;
      for (std::uint32_t s = begin + 1; s < end; ++s) {
        if (room[s] > room[best]) best = s;
      }
      if (room[best] > 0) return best;
    }
    return kNowhere;
  };

  std::uint32_t row = 0;
  for (std::size_t s = 0; s < sites.sites.size(); ++s) {
    const OwnOverflow own = own_overflow(queues, s, row, demand.counts[s], limit);
    for (std::uint32_t i = own.begin; i < own.end; ++i) {
      const std::uint32_t token = demand.rows[i].token;
      std::int32_t* const ids = routes.ids.data() + std::size_t{token} * k;
      const std::uint32_t slot = demand.rows[i].k;
      const std::uint32_t site = find_site(token, ids);
      target[i] = site;
      if (site == kNowhere) {
        ids[slot] = -1;
        routes.weights[std::size_t{token} * k + slot] = 0.0F;
        routes.flags[token] = static_cast<std::uint8_t>(routes.flags[token] | messages::kTokenDropped);
        ++settled.dropped;
      } else {
        --room[site];
        ids[slot] = static_cast<std::int32_t>(sites.sites[site].expert);
        routes.flags[token] = static_cast<std::uint8_t>(routes.flags[token] | messages::kTokenRerouted);
        ++settled.moved;
      }
    }
    row += demand.counts[s];
  }
}

/// Sorts the rows by (site, token, k) again, by counting.
void rebuild(const Routes& routes, const std::vector<std::uint32_t>& target, Demand& demand) {
  std::vector<std::uint32_t> site_of(std::size_t{routes.tokens} * routes.top_k, kNowhere);
  std::fill(demand.counts.begin(), demand.counts.end(), 0U);
  std::uint32_t kept = 0;
  for (std::size_t i = 0; i < target.size(); ++i) {
    if (target[i] == kNowhere) continue;
    site_of[std::size_t{demand.rows[i].token} * routes.top_k + demand.rows[i].k] = target[i];
    ++demand.counts[target[i]];
    ++kept;
  }
  std::vector<std::uint32_t> next(demand.counts.size());
  std::uint32_t at = 0;
  for (std::size_t s = 0; s < next.size(); ++s) {
    next[s] = at;
    at += demand.counts[s];
  }
  demand.rows.resize(kept);
  for (std::uint32_t token = 0; token < routes.tokens; ++token) {
    for (std::uint32_t k = 0; k < routes.top_k; ++k) {
      const std::uint32_t site = site_of[std::size_t{token} * routes.top_k + k];
      if (site != kNowhere) demand.rows[next[site]++] = {site, token, k};
    }
  }
}

}  // namespace

Settled settle_overflow(const LayerSites& sites, std::span<const std::uint32_t> counts, Rank self,
                        const Capacity& capacity, std::span<const std::int32_t> extra, std::uint32_t extra_per_token,
                        Routes& routes, Demand& demand) {
  Settled settled;
  const std::uint64_t limit = capacity.tokens_per_replica;
  const bool moves = capacity.overflow == Overflow::kNext || capacity.overflow == Overflow::kReplica;
  const std::size_t n = sites.sites.size();
  if (!moves || limit == 0 || self.value >= sites.ranks || counts.size() != sites.ranks * n ||
      demand.counts.size() != n) {
    return settled;
  }
  std::uint64_t rows = 0;
  for (std::size_t s = 0; s < n; ++s) {
    if (counts[self.value * n + s] != demand.counts[s]) return settled;
    rows += demand.counts[s];
  }
  if (rows != demand.rows.size()) return settled;

  const Queues queues = queues_of(sites, counts, self, limit);
  // Beyond 2^31 rows, which no honest ranks have, products of the room's division could overflow.
  if (queues.overflow_own == 0 || queues.overflow > std::uint64_t{1} << 31) return settled;
  std::vector<std::uint32_t> target(demand.rows.size());
  for (std::size_t i = 0; i < target.size(); ++i) target[i] = demand.rows[i].site;
  if (capacity.overflow == Overflow::kReplica) {
    settle_in_replicas(sites, queues, limit, demand, target, settled);
  } else {
    if (extra.size() != std::size_t{routes.tokens} * extra_per_token) extra_per_token = 0;
    settle_in_next_choices(sites, queues, limit, extra, extra_per_token, routes, demand, target, settled);
  }
  if (settled.moved + settled.dropped > 0) rebuild(routes, target, demand);
  return settled;
}

}  // namespace troupe::scheduling
