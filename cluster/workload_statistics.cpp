#include <algorithm>
#include <optional>

#include "cluster/config_keys.hpp"
#include "cluster/csv.hpp"
#include "cluster/toml_text.hpp"
#include "cluster/workload_parts.hpp"

/// Routes drawn from recorded expert frequencies.
namespace troupe::cluster {
namespace {

constexpr std::size_t kMostFile = std::size_t{16} << 20;
constexpr std::int64_t kMostCount = std::int64_t{1} << 48;  // 4096 of them still sum below 2^63

struct Row {
  std::vector<std::uint64_t> counts;
  std::size_t line = 0;
};
struct Domain {
  std::string name;
  std::vector<Row> rows;  ///< one per recorded layer
};

class TableReader {
 public:
  TableReader(const std::filesystem::path& file, const scheduling::ModelShape& model)
      : file_(file.string()), model_(model) {}

  Result<std::vector<Domain>> read(const std::string& text, bool csv) {
    auto domains = csv ? read_csv(text) : read_toml(text);
    if (!domains) return domains;
    if (domains->empty()) return wrong(1, "holds no domain; see docs/config.md for the format");
    for (const Domain& domain : *domains) {
      if (domain.rows.empty()) return wrong(1, "domain \"" + domain.name + "\" has no row of counts");
      for (const Row& row : domain.rows) {
        if (auto ok = check_row(domain, row); !ok) return tl::unexpected<Error>(ok.error());
      }
    }
    return domains;
  }

 private:
  tl::unexpected<Error> wrong(std::size_t line, const std::string& text) const {
    return fail(ErrorCode::kBadConfig, file_ + ":" + std::to_string(line) + ": " + text);
  }

  Result<void> check_row(const Domain& domain, const Row& row) const {
    const std::string which = "domain \"" + domain.name + "\": ";
    if (row.counts.size() != model_.experts) {
      return wrong(row.line, which + std::to_string(row.counts.size()) + " counts, but model.experts = " +
                                 std::to_string(model_.experts) + "; use a table of that model, or set model.experts");
    }
    const auto used = std::count_if(row.counts.begin(), row.counts.end(), [](std::uint64_t c) { return c > 0; });
    if (used < static_cast<std::ptrdiff_t>(model_.top_k)) {
      return wrong(row.line, which + std::to_string(used) + " experts have a count above 0, but model.top_k = " +
                                 std::to_string(model_.top_k) + " distinct ones are drawn for each token");
    }
    return {};
  }

  Result<std::vector<Domain>> read_toml(const std::string& text) {
    auto root = parse_toml(text, file_);
    if (!root) return tl::unexpected<Error>(root.error());
    std::vector<Domain> domains;
    for (const auto& [key, node] : *root) {
      const std::string_view name = key.str();
      if (name == "source" || name == "licence" || name == "note") continue;
      if (name != "domains" || !node.is_array_of_tables()) {
        return wrong(node.source().begin.line,
                     to_text(ConfigValue{std::string(name)}) +
                         " is not expected here; a table has source, licence, note and [[domains]]");
      }
      for (const toml::node& each : *node.as_array()) {
        auto domain = read_domain(*each.as_table());
        if (!domain) return tl::unexpected<Error>(domain.error());
        const auto same = [&](const Domain& d) { return d.name == domain->name; };
        if (std::any_of(domains.begin(), domains.end(), same)) {
          return wrong(each.source().begin.line, "domain \"" + domain->name + "\" stands here twice");
        }
        domains.push_back(std::move(*domain));
      }
    }
    return domains;
  }

  Result<Domain> read_domain(const toml::table& table) const {
    Domain domain;
    const std::size_t line = table.source().begin.line;
    for (const auto& [key, node] : table) {
      if (key.str() != "name" && key.str() != "counts") {
        return wrong(node.source().begin.line,
                     to_text(ConfigValue{std::string(key.str())}) + " is no key of a domain; it has name and counts");
      }
    }
    domain.name = table["name"].value_or(std::string());
    if (domain.name.empty()) return wrong(line, "a domain needs a name");
    const toml::array* rows = table["counts"].as_array();
    if (rows == nullptr)
      return wrong(line, "domain \"" + domain.name + "\" needs counts: a list of rows, one per layer");
    for (const toml::node& each : *rows) {
      Row row;
      row.line = each.source().begin.line;
      const toml::array* cells = each.as_array();
      if (cells == nullptr) return wrong(row.line, "counts holds a list for each layer, such as [[10, 20], [30, 40]]");
      for (const toml::node& cell : *cells) {
        const auto count = cell.value_exact<std::int64_t>();
        if (!count || *count < 0 || *count > kMostCount) {
          return wrong(cell.source().begin.line, "a count is an integer from 0 to 2^48");
        }
        row.counts.push_back(static_cast<std::uint64_t>(*count));
      }
      domain.rows.push_back(std::move(row));
    }
    return domain;
  }

  Result<std::vector<Domain>> read_csv(const std::string& text) {
    std::vector<Domain> domains;
    for (const CsvLine& line : csv_lines(text)) {
      if (line.cells[0] == "domain") continue;  // a header
      if (line.cells.size() < 3) return wrong(line.number, "a row is domain,layer,count,count,...");
      const std::string name(line.cells[0]);
      if (name.empty()) return wrong(line.number, "a domain needs a name");
      auto domain = std::find_if(domains.begin(), domains.end(), [&](const Domain& d) { return d.name == name; });
      if (domain == domains.end()) domain = domains.insert(domains.end(), Domain{name, {}});
      const auto layer = csv_integer(line.cells[1]);
      if (!layer || *layer != static_cast<std::int64_t>(domain->rows.size())) {
        return wrong(line.number, "layer \"" + std::string(line.cells[1]) + "\" of domain \"" + name +
                                      "\": the next is " + std::to_string(domain->rows.size()) +
                                      "; rows stand in order, from layer 0");
      }
      Row row;
      row.line = line.number;
      for (std::size_t i = 2; i < line.cells.size(); ++i) {
        const auto count = csv_integer(line.cells[i]);
        if (!count || *count < 0 || *count > kMostCount) {
          return wrong(line.number, "count \"" + std::string(line.cells[i]) + "\" is not an integer from 0 to 2^48");
        }
        row.counts.push_back(static_cast<std::uint64_t>(*count));
      }
      domain->rows.push_back(std::move(row));
    }
    return domains;
  }

  std::string file_;
  const scheduling::ModelShape& model_;
};

class StatisticsRoutes : public RouteSource {
 public:
  StatisticsRoutes(const WorkloadConfig& workload, std::vector<std::vector<WeightedDraw>> domains)
      : seed_(workload.seed), tokens_(workload.tokens), domains_(std::move(domains)) {}

  void routes(const TokenPlace& token, std::uint32_t layer, std::span<std::int32_t> ids,
              std::span<float> weights) const override {
    // tokens <= 10^9 and there are at most as many domains: the product fits.
    const std::uint64_t part = std::min<std::uint64_t>(token.number * domains_.size() / tokens_, domains_.size() - 1);
    const std::vector<WeightedDraw>& rows = domains_[part];
    const std::uint64_t key = token_key(token, layer);
    rows[layer % rows.size()].draw(seed_, key, ids);
    draw_weights(seed_, key, weights);
  }

 private:
  std::uint64_t seed_;
  std::uint64_t tokens_;
  std::vector<std::vector<WeightedDraw>> domains_;  ///< in the order in which they come
};

}  // namespace

Result<std::unique_ptr<RouteSource>> make_statistics_routes(const Config& config) {
  const WorkloadConfig& w = config.workload;
  auto text = read_text_file(w.file, kMostFile);
  if (!text) return tl::unexpected<Error>(text.error());
  const bool csv = w.file.extension() == ".csv";
  if (!csv && w.file.extension() != ".toml") {
    return fail(ErrorCode::kBadConfig, w.file.string() + ": a table of frequencies is a .toml or a .csv file");
  }
  auto table = TableReader(w.file, config.model).read(*text, csv);
  if (!table) return tl::unexpected<Error>(table.error());
  std::vector<std::string_view> names;
  for (const Domain& domain : *table) names.emplace_back(domain.name);
  std::vector<std::string> wanted = w.domains;
  if (wanted.empty()) wanted.assign(names.begin(), names.end());
  std::vector<std::vector<WeightedDraw>> draws;
  for (const std::string& name : wanted) {
    const auto domain = std::find_if(table->begin(), table->end(), [&](const Domain& d) { return d.name == name; });
    if (domain == table->end()) {
      std::string all;
      for (const std::string_view each : names) all.append(all.empty() ? "" : ", ").append(each);
      const auto near = nearest(name, names);
      return fail(ErrorCode::kBadConfig, w.file.string() + ": workload.domains names \"" + name +
                                             "\", but the domains here are " + all +
                                             (near ? "; did you mean \"" + std::string(*near) + "\"?" : ""));
    }
    std::vector<WeightedDraw> rows;
    for (const Row& row : domain->rows) rows.emplace_back(row.counts);
    draws.push_back(std::move(rows));
  }
  return std::unique_ptr<RouteSource>(std::make_unique<StatisticsRoutes>(w, std::move(draws)));
}

}  // namespace troupe::cluster
