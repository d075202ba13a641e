#include <algorithm>
#include <string>

#include "scheduling/dispatch.hpp"

namespace troupe::scheduling {
namespace {

std::string text(std::uint64_t value) {
  return std::to_string(value);
}

std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) {
  return (a + b - 1) / b;
}

/// How the queue of one site is spread over rounds. Places count from 0.
struct Spread {
  std::uint64_t rows = 0;   ///< places that are computed; later ones are dropped
  std::uint64_t first = 0;  ///< where place 0 stands in the row of dealt queues, or of whole ones, of its rank
  bool dealt = false;       ///< longer than the capacity: place p goes to round (first + p) mod rounds of the rank
};

/// Rounds of one destination rank. Dealt queues stand in one line and are dealt over the rounds like cards, so each
/// round has floor or ceil of an equal part of every queue, hence at most the capacity, and of the line. Whole queues
/// stand in a second line that is poured into what the first leaves of max_rows, round by round.
struct Rounds {
  std::uint64_t count = 0;
  std::uint64_t dealt = 0;  ///< length of the first line
  std::uint64_t max_rows = 0;

  std::uint64_t dealt_in(std::uint64_t round) const { return dealt / count + (round < dealt % count ? 1 : 0); }
  /// Room for the second line in rounds [0, round).
  std::uint64_t poured_before(std::uint64_t round) const {
    return round * max_rows - (round * (dealt / count) + std::min(round, dealt % count));
  }
};

struct Layout {
  std::vector<Spread> spread;  ///< [sites]
  std::vector<Rounds> rounds;  ///< [ranks]
  std::uint64_t most = 1;
};

Result<Layout> lay_out(const LayerSites& sites, const std::vector<std::uint64_t>& queue, const Capacity& capacity,
                       std::uint32_t max_rows, StepPlan& plan) {
  const std::uint64_t limit = capacity.tokens_per_replica;
  const bool drop = limit > 0 && capacity.overflow == Overflow::kDrop;
  Layout layout{std::vector<Spread>(queue.size()), std::vector<Rounds>(sites.ranks), 1};
  for (std::uint32_t r = 0; r < sites.ranks; ++r) {
    Rounds& rounds = layout.rounds[r];
    rounds.max_rows = max_rows;
    std::uint64_t longest = 0;
    std::uint64_t whole = 0;
    for (const std::uint32_t s : sites.on_rank[r]) {
      Spread& spread = layout.spread[s];
      spread.rows = drop ? std::min(queue[s], limit) : queue[s];
      spread.dealt = limit > 0 && spread.rows > limit;
      std::uint64_t& line = spread.dealt ? rounds.dealt : whole;
      spread.first = line;
      line += spread.rows;
      if (spread.dealt) longest = std::max(longest, spread.rows);
    }
    const std::uint64_t rows = rounds.dealt + whole;
    rounds.count = std::max<std::uint64_t>(1, ceil_div(rows, max_rows));
    if (longest > 0) rounds.count = std::max(rounds.count, ceil_div(longest, limit));
    if (rounds.count > kMaxRoundsPerStep) {
      return fail(ErrorCode::kLimit,
                  "rank " + text(r) + " would take " + text(rounds.count) + " rounds for " + text(rows) +
                      " rows, at most " + text(kMaxRoundsPerStep) +
                      " are allowed; raise limits.max_rows_per_round = " + text(max_rows) +
                      (limit > 0 ? " or capacity.tokens_per_replica = " + text(limit) : std::string()));
    }
    layout.most = std::max(layout.most, rounds.count);
    plan.rows_per_rank[r] = rows;
    plan.total_rows += rows;
  }
  return layout;
}

/// Walks places [begin, end) of a whole queue round by round: f(round, first place, end place).
template <class F>
void for_each_part(const Spread& spread, const Rounds& rounds, std::uint64_t begin, std::uint64_t end, F&& f) {
  if (begin >= end) return;
  // Most steps have one round; else the round of the first place by bisection.
  std::uint64_t low = 0;
  for (std::uint64_t high = rounds.count; high - low > 1;) {
    const std::uint64_t middle = low + (high - low) / 2;
    (rounds.poured_before(middle) <= spread.first + begin ? low : high) = middle;
  }
  for (std::uint64_t round = low; begin < end; ++round) {
    const std::uint64_t round_end = rounds.poured_before(round + 1);
    if (round_end <= spread.first + begin) continue;
    const std::uint64_t stop = std::min(end, round_end - spread.first);
    f(round, begin, stop);
    begin = stop;
  }
}

Result<void> check_arguments(const LayerSites& sites, std::span<const std::uint32_t> counts, Rank self,
                             const Demand& demand, std::uint32_t max_rows) {
  const std::size_t n = sites.sites.size();
  if (sites.on_rank.size() != sites.ranks || self.value >= sites.ranks) {
    return fail(ErrorCode::kBadInput, "rank " + text(self.value) + " of " + text(sites.ranks) + " ranks, sites for " +
                                          text(sites.on_rank.size()));
  }
  if (max_rows == 0) return fail(ErrorCode::kBadInput, "limits.max_rows_per_round = 0; set at least 1");
  if (counts.size() != sites.ranks * n) {
    return fail(ErrorCode::kBadInput,
                text(counts.size()) + " counts for " + text(sites.ranks) + " ranks x " + text(n) + " sites");
  }
  if (demand.counts.size() != n) {
    return fail(ErrorCode::kBadInput,
                "a demand over " + text(demand.counts.size()) + " sites, the layer has " + text(n));
  }
  std::uint64_t sum = 0;
  for (std::size_t s = 0; s < n; ++s) {
    const std::uint32_t shared = counts[self.value * n + s];
    if (shared != demand.counts[s]) {
      return fail(ErrorCode::kBadInput, "site " + text(s) + ": rank " + text(self.value) + " demands " +
                                            text(demand.counts[s]) + " rows, the shared counts say " + text(shared));
    }
    sum += shared;
  }
  if (sum != demand.rows.size()) {
    return fail(ErrorCode::kBadInput,
                "a demand of " + text(demand.rows.size()) + " rows, its counts sum to " + text(sum));
  }
  return {};
}

}  // namespace

Result<StepPlan> plan_step(const LayerSites& sites, std::span<const std::uint32_t> counts, Rank self,
                           const Demand& demand, const Capacity& capacity, std::uint32_t max_rows_per_round) {
  if (auto done = check_arguments(sites, counts, self, demand, max_rows_per_round); !done) {
    return tl::unexpected(done.error());
  }
  const std::size_t n = sites.sites.size();
  // Length of each site's queue, and where this rank's own rows begin in it.
  std::vector<std::uint64_t> queue(n, 0);
  std::vector<std::uint64_t> own_first(n, 0);
  for (std::uint32_t r = 0; r < sites.ranks; ++r) {
    if (r == self.value) own_first = queue;
    for (std::size_t s = 0; s < n; ++s) queue[s] += counts[r * n + s];
  }

  StepPlan plan;
  plan.rows_per_rank.assign(sites.ranks, 0);
  auto laid = lay_out(sites, queue, capacity, max_rows_per_round, plan);
  if (!laid) return tl::unexpected(laid.error());
  const Layout& layout = *laid;
  const std::vector<std::uint32_t>& mine = sites.on_rank[self.value];
  plan.rounds.resize(layout.most);
  for (Round& round : plan.rounds) {
    round.send.resize(sites.ranks);
    round.recv_counts.assign(sites.ranks * mine.size(), 0);
  }

  // What I send: my rows of each site are places [own_first, own_first + count) of its queue.
  std::uint32_t row = 0;
  for (std::size_t s = 0; s < n; ++s) {
    const std::uint32_t count = demand.counts[s];
    if (count == 0) continue;
    const std::uint32_t dest = sites.sites[s].rank.value;
    const Spread& spread = layout.spread[s];
    const Rounds& rounds = layout.rounds[dest];
    const std::uint64_t begin = own_first[s];
    const std::uint64_t end = std::min(begin + count, spread.rows);
    if (spread.dealt) {
      for (std::uint64_t place = begin; place < end; ++place) {
        plan.rounds[(spread.first + place) % rounds.count].send[dest].push_back(
            row + static_cast<std::uint32_t>(place - begin));
      }
    } else {
      for_each_part(spread, rounds, begin, end, [&](std::uint64_t round, std::uint64_t from, std::uint64_t to) {
        std::vector<std::uint32_t>& send = plan.rounds[round].send[dest];
        for (std::uint64_t place = from; place < to; ++place)
          send.push_back(row + static_cast<std::uint32_t>(place - begin));
      });
    }
    for (std::uint64_t place = std::max(begin, spread.rows); place < begin + count; ++place) {
      plan.dropped.push_back(row + static_cast<std::uint32_t>(place - begin));
    }
    row += count;
  }

  // What I receive: the same places, seen from the other side.
  const Rounds& rounds = layout.rounds[self.value];
  for (std::size_t m = 0; m < mine.size(); ++m) {
    const std::uint32_t s = mine[m];
    const Spread& spread = layout.spread[s];
    std::uint64_t begin = 0;
    for (std::uint32_t r = 0; r < sites.ranks && begin < spread.rows; ++r) {
      const std::uint64_t end = std::min(begin + counts[r * n + s], spread.rows);
      if (spread.dealt) {
        // Of `end - begin` cards in turn each round gets an equal part, the first ones from where the dealing stands
        // one more.
        const std::uint64_t each = (end - begin) / rounds.count;
        const std::uint64_t more = (end - begin) % rounds.count;
        const std::uint64_t at = (spread.first + begin) % rounds.count;
        for (std::uint64_t i = 0; i < rounds.count && i < end - begin; ++i) {
          plan.rounds[(at + i) % rounds.count].recv_counts[r * mine.size() + m] =
              static_cast<std::uint32_t>(each + (i < more ? 1 : 0));
        }
      } else {
        for_each_part(spread, rounds, begin, end, [&](std::uint64_t round, std::uint64_t from, std::uint64_t to) {
          plan.rounds[round].recv_counts[r * mine.size() + m] = static_cast<std::uint32_t>(to - from);
        });
      }
      begin = end;
    }
  }
  return plan;
}

}  // namespace troupe::scheduling
