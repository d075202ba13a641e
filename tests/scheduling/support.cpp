#include "tests/scheduling/support.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <tuple>

namespace troupe::scheduling::testing {

ModelShape shape_of(std::uint32_t experts, std::uint32_t top_k, std::uint32_t layers) {
  ModelShape shape;
  shape.experts = experts;
  shape.top_k = top_k;
  shape.layers = layers;
  return shape;
}

std::vector<GpuSlots> gpus_of(std::span<const std::uint32_t> slots) {
  std::vector<GpuSlots> gpus;
  for (std::size_t g = 0; g < slots.size(); ++g)
    gpus.push_back({GpuId{NodeId{static_cast<std::uint16_t>(g)}, 0}, slots[g]});
  return gpus;
}

LayerSites sites_of(std::uint32_t ranks, const std::vector<std::vector<std::uint32_t>>& holders) {
  LayerSites layer;
  layer.ranks = ranks;
  layer.on_rank.resize(ranks);
  std::vector<std::uint32_t> slots(ranks, 0);
  for (std::size_t e = 0; e < holders.size(); ++e) {
    layer.first_site.push_back(static_cast<std::uint32_t>(layer.sites.size()));
    for (const std::uint32_t rank : holders[e]) {
      layer.on_rank[rank].push_back(static_cast<std::uint32_t>(layer.sites.size()));
      layer.sites.push_back(
          {static_cast<std::uint32_t>(e), Rank{rank}, slots[rank]++, 1.0 / static_cast<double>(holders[e].size())});
    }
  }
  layer.first_site.push_back(static_cast<std::uint32_t>(layer.sites.size()));
  return layer;
}

namespace {

std::uint64_t fnv(std::uint64_t hash, std::uint32_t word) {
  for (int byte = 0; byte < 4; ++byte) {
    hash = (hash ^ (word & 0xFFU)) * 0x100000001B3U;
    word >>= 8;
  }
  return hash;
}

std::string text(std::uint64_t value) {
  return std::to_string(value);
}

}  // namespace

std::uint64_t digest(std::span<const float> values, std::uint64_t start) {
  for (const float value : values) start = fnv(start, std::bit_cast<std::uint32_t>(value));
  return start;
}

std::uint64_t digest(std::span<const std::int32_t> values, std::uint64_t start) {
  for (const std::int32_t value : values) start = fnv(start, static_cast<std::uint32_t>(value));
  return start;
}

void StepWorld::choose(std::uint64_t first_token_number) {
  demands.clear();
  for (const Routes& r : routes) demands.push_back(choose_sites(r, sites, first_token_number));
}

std::vector<std::uint32_t> StepWorld::counts() const {
  std::vector<std::uint32_t> all;
  for (const Demand& demand : demands) all.insert(all.end(), demand.counts.begin(), demand.counts.end());
  return all;
}

std::vector<std::uint64_t> StepWorld::queues() const {
  std::vector<std::uint64_t> queues(sites.sites.size(), 0);
  for (const Demand& demand : demands) {
    for (std::size_t s = 0; s < queues.size(); ++s) queues[s] += demand.counts[s];
  }
  return queues;
}

std::vector<Settled> StepWorld::settle(const Capacity& capacity) {
  const std::vector<std::uint32_t> before = counts();
  std::vector<Settled> settled;
  for (std::uint32_t r = 0; r < sites.ranks; ++r) {
    settled.push_back(
        settle_overflow(sites, before, Rank{r}, capacity, extra[r], extra_per_token, routes[r], demands[r]));
  }
  return settled;
}

void add_rank(StepWorld& world, const std::vector<std::int32_t>& ids) {
  Routes routes;
  routes.top_k = world.shape.top_k;
  routes.tokens = static_cast<std::uint32_t>(ids.size() / world.shape.top_k);
  routes.ids = ids;
  routes.weights.assign(ids.size(), 1.0F);
  routes.flags.assign(routes.tokens, messages::kTokenExact);
  world.routes.push_back(routes);
  world.extra.emplace_back();
}

std::string check_demands(const StepWorld& world) {
  for (std::size_t r = 0; r < world.demands.size(); ++r) {
    const Routes& routes = world.routes[r];
    const Demand& demand = world.demands[r];
    const std::string where = "rank " + text(r) + ": ";
    std::vector<std::uint32_t> times(routes.ids.size(), 0);
    std::vector<std::uint32_t> counts(world.sites.sites.size(), 0);
    for (std::size_t i = 0; i < demand.rows.size(); ++i) {
      const Demand::Row& row = demand.rows[i];
      if (row.token >= routes.tokens || row.k >= routes.top_k) return where + "a row of no token";
      const std::size_t slot = std::size_t{row.token} * routes.top_k + row.k;
      ++times[slot];
      ++counts.at(row.site);
      if (static_cast<std::int32_t>(world.sites.sites[row.site].expert) != routes.ids[slot])
        return where + "a row at another expert's site";
      if (i > 0) {
        const Demand::Row& last = demand.rows[i - 1];
        if (std::tie(last.site, last.token, last.k) >= std::tie(row.site, row.token, row.k))
          return where + "rows out of order";
      }
    }
    if (counts != demand.counts) return where + "counts differ from the rows";
    for (std::size_t slot = 0; slot < times.size(); ++slot) {
      if (times[slot] != (routes.ids[slot] < 0 ? 0U : 1U))
        return where + "slot " + text(slot) + " stands " + text(times[slot]) + " times";
    }
  }
  return {};
}

namespace {

std::uint64_t rounds_needed(const StepWorld& world, const std::vector<std::uint64_t>& computed, std::uint64_t limit,
                            std::uint64_t max_rows) {
  std::uint64_t rounds = 1;
  for (const auto& on_rank : world.sites.on_rank) {
    std::uint64_t rows = 0;
    for (const std::uint32_t s : on_rank) {
      rows += computed[s];
      if (limit > 0) rounds = std::max(rounds, (computed[s] + limit - 1) / limit);
    }
    rounds = std::max(rounds, (rows + max_rows - 1) / max_rows);
  }
  return rounds;
}

}  // namespace

std::string check_plans(const StepWorld& world, const Capacity& capacity, std::uint32_t max_rows_per_round) {
  const std::uint32_t ranks = world.sites.ranks;
  const std::vector<std::uint32_t> counts = world.counts();
  const std::vector<std::uint64_t> queues = world.queues();
  const std::uint64_t limit = capacity.tokens_per_replica;
  const bool drop = limit > 0 && capacity.overflow == Overflow::kDrop;
  std::vector<std::uint64_t> computed = queues;
  if (drop) {
    for (std::uint64_t& rows : computed) rows = std::min(rows, limit);
  }

  std::vector<StepPlan> plans;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    auto plan = plan_step(world.sites, counts, Rank{r}, world.demands[r], capacity, max_rows_per_round);
    if (!plan) return "rank " + text(r) + ": " + plan.error().message;
    plans.push_back(std::move(*plan));
  }
  std::vector<std::uint64_t> rows_per_rank(ranks, 0);
  std::uint64_t total = 0;
  for (std::size_t s = 0; s < computed.size(); ++s) {
    rows_per_rank[world.sites.sites[s].rank.value] += computed[s];
    total += computed[s];
  }
  const std::uint64_t rounds = rounds_needed(world, computed, limit, max_rows_per_round);
  for (std::uint32_t r = 0; r < ranks; ++r) {
    const std::string where = "rank " + text(r) + ": ";
    if (plans[r].rounds.size() != rounds)
      return where + text(plans[r].rounds.size()) + " rounds, " + text(rounds) + " would do";
    if (plans[r].total_rows != total || plans[r].rows_per_rank != rows_per_rank) return where + "wrong totals";
    std::vector<std::uint32_t> times(world.demands[r].rows.size(), 0);
    for (const std::uint32_t row : plans[r].dropped) ++times.at(row);
    if (!drop && !plans[r].dropped.empty()) return where + "drops without being told to";
    for (const Round& round : plans[r].rounds) {
      for (std::uint32_t peer = 0; peer < ranks; ++peer) {
        if (!std::is_sorted(round.send[peer].begin(), round.send[peer].end())) return where + "sends out of order";
        for (const std::uint32_t row : round.send[peer]) {
          ++times.at(row);
          if (world.sites.sites[world.demands[r].rows[row].site].rank.value != peer)
            return where + "a row to the wrong rank";
        }
      }
    }
    for (std::size_t row = 0; row < times.size(); ++row) {
      if (times[row] != 1) return where + "row " + text(row) + " is computed or dropped " + text(times[row]) + " times";
    }
  }

  std::vector<std::uint64_t> seen(queues.size(), 0);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    for (std::uint32_t dest = 0; dest < ranks; ++dest) {
      const std::vector<std::uint32_t>& mine = world.sites.on_rank[dest];
      const std::vector<std::uint32_t>& expected = plans[dest].rounds[round].recv_counts;
      const std::string where = "round " + text(round) + ", rank " + text(dest) + ": ";
      if (expected.size() != ranks * mine.size()) return where + "recv_counts of the wrong size";
      std::uint64_t received = 0;
      for (std::size_t m = 0; m < mine.size(); ++m) {
        std::uint64_t at_site = 0;
        for (std::uint32_t from = 0; from < ranks; ++from) {
          const std::vector<std::uint32_t>& sent = plans[from].rounds[round].send[dest];
          const auto rows = std::count_if(sent.begin(), sent.end(), [&](std::uint32_t row) {
            return world.demands[from].rows[row].site == mine[m];
          });
          if (static_cast<std::uint64_t>(rows) != expected[from * mine.size() + m]) {
            return where + "expects " + text(expected[from * mine.size() + m]) + " rows of rank " + text(from) +
                   ", which sends " + text(static_cast<std::uint64_t>(rows));
          }
          at_site += static_cast<std::uint64_t>(rows);
        }
        if (limit > 0 && at_site > limit) return where + "site " + text(mine[m]) + " above its capacity";
        seen[mine[m]] += at_site;
        received += at_site;
      }
      if (received > max_rows_per_round) return where + "more rows than a round may have";
    }
  }
  if (seen != computed) return "not all rows of all sites are computed";
  return {};
}

}  // namespace troupe::scheduling::testing
