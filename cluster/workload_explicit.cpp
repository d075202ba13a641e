#include <algorithm>

#include "cluster/csv.hpp"
#include "cluster/toml_text.hpp"
#include "cluster/workload_parts.hpp"

/// Routes that are written down: as a formula, or one by one in a file.
namespace troupe::cluster {
namespace {

constexpr std::size_t kMostFile = std::size_t{256} << 20;
constexpr std::uint64_t kMostSlots = std::uint64_t{1} << 27;

class FormulaRoutes : public RouteSource {
 public:
  explicit FormulaRoutes(const Config& config)
      : experts_(config.model.experts),
        offsets_(config.workload.route_offsets),
        weights_(config.workload.route_weights) {
    if (weights_.empty()) weights_.assign(offsets_.size(), 1.0F / static_cast<float>(offsets_.size()));
  }

  void routes(const TokenPlace& token, std::uint32_t, std::span<std::int32_t> ids,
              std::span<float> weights) const override {
    for (std::size_t j = 0; j < ids.size(); ++j) {
      ids[j] = static_cast<std::int32_t>((token.number + offsets_[j]) % experts_);
      weights[j] = weights_[j];
    }
  }

 private:
  std::uint64_t experts_;
  std::vector<std::uint32_t> offsets_;
  std::vector<float> weights_;
};

class FileRoutes : public RouteSource {
 public:
  FileRoutes(const scheduling::ModelShape& model, std::uint64_t tokens)
      : layers_(model.layers), top_k_(model.top_k), ids_(tokens * layers_ * top_k_, -1), weights_(ids_.size()) {}

  std::size_t at(std::uint64_t number, std::uint32_t layer) const { return (number * layers_ + layer) * top_k_; }
  void set(std::size_t slot, std::int32_t id, float weight) {
    ids_[slot] = id;
    weights_[slot] = weight;
  }

  void routes(const TokenPlace& token, std::uint32_t layer, std::span<std::int32_t> ids,
              std::span<float> weights) const override {
    const auto first = static_cast<std::ptrdiff_t>(at(token.number, layer));
    std::copy_n(ids_.begin() + first, ids.size(), ids.begin());
    std::copy_n(weights_.begin() + first, weights.size(), weights.begin());
  }

 private:
  std::size_t layers_;
  std::size_t top_k_;
  std::vector<std::int32_t> ids_;  ///< [tokens x layers x top_k]
  std::vector<float> weights_;
};

class RouteFile {
 public:
  explicit RouteFile(const Config& config)
      : file_(config.workload.file.string()), model_(config.model), tokens_(config.workload.tokens) {}

  Result<std::unique_ptr<RouteSource>> read(std::string_view text) {
    const std::uint64_t cells = tokens_ * model_.layers;
    if (cells * model_.top_k > kMostSlots) {
      return fail(ErrorCode::kBadConfig, "workload.tokens = " + std::to_string(tokens_) +
                                             " with explicit routes takes " + std::to_string(cells * model_.top_k) +
                                             " route slots; at most " + std::to_string(kMostSlots) + " are held");
    }
    auto routes = std::make_unique<FileRoutes>(model_, tokens_);
    seen_.assign(cells, false);
    for (const CsvLine& line : csv_lines(text)) {
      if (line.cells[0] == "token") continue;  // a header
      if (auto ok = read_line(line, *routes); !ok) return tl::unexpected<Error>(ok.error());
    }
    const auto missing = std::find(seen_.begin(), seen_.end(), false);
    if (missing != seen_.end()) {
      const auto cell = static_cast<std::uint64_t>(missing - seen_.begin());
      return fail(ErrorCode::kBadConfig, file_ + ": token " + std::to_string(cell / model_.layers) +
                                             " has no routes in layer " + std::to_string(cell % model_.layers) +
                                             "; workload.tokens = " + std::to_string(tokens_) +
                                             " needs a line for each");
    }
    return std::unique_ptr<RouteSource>(std::move(routes));
  }

 private:
  tl::unexpected<Error> wrong(const CsvLine& line, const std::string& text) const {
    return fail(ErrorCode::kBadConfig, file_ + ":" + std::to_string(line.number) + ": " + text);
  }

  Result<void> read_line(const CsvLine& line, FileRoutes& routes) {
    const std::size_t k = model_.top_k;
    if (line.cells.size() != 2 + 2 * k) {
      return wrong(line, std::to_string(line.cells.size()) + " cells; with model.top_k = " + std::to_string(k) +
                             " a line has " + std::to_string(2 + 2 * k) +
                             ": token,layer, then the experts, then their weights");
    }
    const auto token = csv_integer(line.cells[0]);
    if (!token || *token < 0) return wrong(line, "token \"" + std::string(line.cells[0]) + "\" is not a number from 0");
    if (static_cast<std::uint64_t>(*token) >= tokens_) return {};  // beyond this run
    const bool all_layers = line.cells[1] == "*";
    const auto layer = all_layers ? std::optional<std::int64_t>(0) : csv_integer(line.cells[1]);
    if (!layer || *layer < 0 || *layer >= static_cast<std::int64_t>(model_.layers)) {
      return wrong(line, "layer \"" + std::string(line.cells[1]) + "\" is not one of 0 to " +
                             std::to_string(model_.layers - 1) + ", nor * for all");
    }
    if (auto ok = check_experts(line); !ok) return ok;
    const auto first = static_cast<std::uint32_t>(*layer);
    for (std::uint32_t l = first; l < (all_layers ? model_.layers : first + 1); ++l) {
      const std::uint64_t cell = static_cast<std::uint64_t>(*token) * model_.layers + l;
      if (seen_[cell]) {
        return wrong(line,
                     "token " + std::to_string(*token) + " has routes in layer " + std::to_string(l) + " already");
      }
      seen_[cell] = true;
      for (std::size_t j = 0; j < k; ++j) {
        routes.set(routes.at(static_cast<std::uint64_t>(*token), l) + j,
                   static_cast<std::int32_t>(*csv_integer(line.cells[2 + j])),
                   static_cast<float>(*csv_number(line.cells[2 + k + j])));
      }
    }
    return {};
  }

  Result<void> check_experts(const CsvLine& line) const {
    const std::size_t k = model_.top_k;
    std::vector<std::int64_t> experts;
    for (std::size_t j = 0; j < k; ++j) {
      const auto expert = csv_integer(line.cells[2 + j]);
      if (!expert || *expert < -1 || *expert >= static_cast<std::int64_t>(model_.experts)) {
        return wrong(line, "expert \"" + std::string(line.cells[2 + j]) + "\" is not one of 0 to " +
                               std::to_string(model_.experts - 1) + ", nor -1 for none");
      }
      if (*expert >= 0 && std::find(experts.begin(), experts.end(), *expert) != experts.end()) {
        return wrong(line, "expert " + std::to_string(*expert) + " stands here twice; a token's experts are distinct");
      }
      experts.push_back(*expert);
      const auto weight = csv_number(line.cells[2 + k + j]);
      if (!weight || *weight < -1e6 || *weight > 1e6) {
        return wrong(line, "weight \"" + std::string(line.cells[2 + k + j]) + "\" is not a number from -1e6 to 1e6");
      }
    }
    return {};
  }

  std::string file_;
  const scheduling::ModelShape& model_;
  std::uint64_t tokens_;
  std::vector<bool> seen_;  ///< [tokens x layers]
};

}  // namespace

Result<std::unique_ptr<RouteSource>> make_explicit_routes(const Config& config) {
  if (config.workload.file.empty()) {
    return std::unique_ptr<RouteSource>(std::make_unique<FormulaRoutes>(config));
  }
  auto text = read_text_file(config.workload.file, kMostFile);
  if (!text) return tl::unexpected<Error>(text.error());
  return RouteFile(config).read(*text);
}

}  // namespace troupe::cluster
