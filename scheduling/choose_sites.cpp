#include <algorithm>
#include <cmath>

#include "scheduling/dispatch.hpp"

namespace troupe::scheduling {
namespace {

/// A number in [0, 1) that walks evenly over the interval as `token` counts on: multiples of the golden section, in
/// 64-bit fixed point. Another multiplier per expert, so that experts of equal shares do not favour the same ranks at
/// once.
double start_of(std::uint64_t token, std::uint32_t expert) {
  const std::uint64_t fraction = token * 0x9E3779B97F4A7C15U + std::uint64_t{expert} * 0xD1B54A32D192ED03U;
  // 53 bits, so that the conversion is exact and the result stays below 1.
  return static_cast<double>(fraction >> 11) * 0x1.0p-53;
}

/// Writes how many of `rows` each site in [first, end) takes. Row j lies at j + start on a line of length `rows`, on
/// which the sites have stretches as long as their shares.
void share_out(const LayerSites& sites, std::uint32_t first, std::uint32_t end, std::uint32_t rows, double start,
               std::vector<std::uint32_t>& counts) {
  double total = 0;
  for (std::uint32_t s = first; s < end; ++s) total += sites.sites[s].share;
  double cumulative = 0;
  std::uint32_t taken = 0;
  for (std::uint32_t s = first; s < end; ++s) {
    cumulative += sites.sites[s].share;
    std::uint32_t upto = rows;
    if (s + 1 < end) {
      const double below = std::ceil(cumulative / total * rows - start);
      upto = below > taken ? static_cast<std::uint32_t>(std::min<double>(below, rows)) : taken;
    }
    counts[s] = upto - taken;
    taken = upto;
  }
}

}  // namespace

Demand choose_sites(const Routes& routes, const LayerSites& sites, std::uint64_t first_token_number) {
  const std::size_t experts = sites.first_site.empty() ? 0 : sites.first_site.size() - 1;
  const auto valid = [&](std::int32_t id) { return id >= 0 && static_cast<std::size_t>(id) < experts; };

  Demand demand;
  demand.counts.assign(sites.sites.size(), 0);
  std::vector<std::uint32_t> visits(experts, 0);
  for (const std::int32_t id : routes.ids) {
    if (valid(id)) ++visits[static_cast<std::size_t>(id)];
  }
  for (std::uint32_t e = 0; e < experts; ++e) {
    const std::uint32_t first = sites.first_site[e];
    const std::uint32_t end = sites.first_site[e + 1];
    if (visits[e] == 0 || first == end) continue;
    if (end - first == 1) {
      demand.counts[first] = visits[e];
    } else {
      share_out(sites, first, end, visits[e], start_of(first_token_number, e), demand.counts);
    }
  }

  // Sites are sorted by expert, so an expert's rows are one stretch of the demand, cut where the next replica begins:
  // filling it in the order of (token, k) leaves the rows sorted by (site, token, k).
  std::vector<std::uint32_t> next_row(experts, 0);
  std::vector<std::uint32_t> site_of;
  std::uint32_t total = 0;
  for (std::uint32_t e = 0; e < experts; ++e) {
    next_row[e] = total;
    for (std::uint32_t s = sites.first_site[e]; s < sites.first_site[e + 1]; ++s) {
      site_of.insert(site_of.end(), demand.counts[s], s);
      total += demand.counts[s];
    }
  }
  demand.rows.resize(total);
  for (std::uint32_t token = 0; token < routes.tokens; ++token) {
    for (std::uint32_t k = 0; k < routes.top_k; ++k) {
      const std::int32_t id = routes.ids[std::size_t{token} * routes.top_k + k];
      if (!valid(id)) continue;
      const auto e = static_cast<std::size_t>(id);
      // Without a site (resolve makes no such layer) there is nowhere to go.
      if (sites.first_site[e] == sites.first_site[e + 1]) continue;
      const std::uint32_t row = next_row[e]++;
      demand.rows[row] = {site_of[row], token, k};
    }
  }
  return demand;
}

}  // namespace troupe::scheduling
