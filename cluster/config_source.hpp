#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/config_keys.hpp"
#include "messages/error.hpp"

/// From TOML text and overrides to a flat list of what was written where. Knows TOML, but no key.
namespace troupe::cluster {

/// Where something was written: "configs/a.toml:12", or "--set limits.max_tokens_per_pass=64".
struct ConfigPlace {
  std::string text;
  std::uint32_t order = 0;  ///< by which problems are sorted
};

struct ConfigEntry {
  std::string table;
  std::optional<std::size_t> node;  ///< number of the [[nodes]] table
  std::string name;
  ConfigValue value;
  ConfigPlace place;
  /// "nodes.0.gpus", "limits.max_tokens_per_pass".
  std::string path() const;
  /// "limits.max_tokens_per_pass = 64", long values shortened: how messages begin.
  std::string shown() const;
};

/// Collects everything that is wrong, to be told at once.
class Problems {
 public:
  /// text: what, which value, the way out; the place goes in front.
  void add(const ConfigPlace& place, std::string text);
  bool empty() const { return list_.empty(); }
  /// What stands at this key or table ("model.top_k", "model") is not what was meant: checks that build on it are left
  /// out, so that one mistake is not told twice.
  void spoil(std::string key) { spoilt_.insert(std::move(key)); }
  bool spoilt(std::string_view table, std::string_view name) const;
  /// One problem a line, in the order of the file.
  Error error() const;

 private:
  struct Problem {
    std::uint32_t order;
    std::string line;
  };
  std::vector<Problem> list_;
  std::set<std::string, std::less<>> spoilt_;
};

struct ConfigSource {
  std::string file;  ///< as shown
  std::vector<ConfigEntry> entries;
  std::size_t nodes = 0;        ///< [[nodes]] tables; 0 where the file has none
  std::size_t nodes_given = 0;  ///< of these, written in the file
  bool empty_nodes = false;     ///< the file says nodes = []
  ConfigPlace nodes_place;

  const ConfigEntry* find(std::string_view table, std::string_view name, std::optional<std::size_t> node = {}) const;
  /// Where the key was written, else the file.
  ConfigPlace place(std::string_view table, std::string_view name, std::optional<std::size_t> node = {}) const;
};

/// Errors: kBadConfig where the text is not TOML. Structure that fits no config goes to `problems`.
Result<ConfigSource> read_source(std::string_view text, const std::string& file, Problems& problems);

/// Applies --nodes, --gpus and --set, in that order.
void apply_overrides(const Overrides& overrides, ConfigSource& source, Problems& problems);

inline constexpr std::uint32_t kMostNodes = 256;

}  // namespace troupe::cluster
