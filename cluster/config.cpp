#include "cluster/config.hpp"

#include <algorithm>
#include <cmath>
#include <system_error>

#include "cluster/config_check.hpp"
#include "cluster/config_keys.hpp"
#include "cluster/config_source.hpp"
#include "cluster/toml_text.hpp"

namespace troupe::cluster {
namespace {

constexpr std::size_t kMostConfigText = std::size_t{1} << 20;

/// The value in the type of its key, or nullopt: an integer is a number too, an empty list is a list of anything.
std::optional<ConfigValue> as_type(const ConfigKey& key, const ConfigValue& value) {
  const auto* empty = std::get_if<std::vector<std::int64_t>>(&value);
  const bool is_empty = empty != nullptr && empty->empty();
  switch (key.type) {
    case KeyType::kBool:
      if (std::holds_alternative<bool>(value)) return value;
      break;
    case KeyType::kInteger:
      if (std::holds_alternative<std::int64_t>(value)) return value;
      break;
    case KeyType::kNumber:
      if (std::holds_alternative<double>(value)) return value;
      if (const auto* v = std::get_if<std::int64_t>(&value)) return ConfigValue{static_cast<double>(*v)};
      break;
    case KeyType::kString:
    case KeyType::kPath:
    case KeyType::kChoice:
      if (std::holds_alternative<std::string>(value)) return value;
      break;
    case KeyType::kIntegers:
      if (empty != nullptr) return value;
      break;
    case KeyType::kNumbers:
      if (std::holds_alternative<std::vector<double>>(value)) return value;
      if (empty != nullptr) return ConfigValue{std::vector<double>(empty->begin(), empty->end())};
      break;
    case KeyType::kStrings:
      if (std::holds_alternative<std::vector<std::string>>(value)) return value;
      if (is_empty) return ConfigValue{std::vector<std::string>{}};
      break;
  }
  return std::nullopt;
}

/// The nearest value within the range, or nullopt where `value` is within it.
std::optional<ConfigValue> nearest_in_range(const ConfigKey& key, const ConfigValue& value) {
  if (const auto* v = std::get_if<std::int64_t>(&value)) {
    const std::int64_t near = std::clamp(*v, key.least, key.most);
    if (near != *v) return ConfigValue{near};
  } else if (const auto* d = std::get_if<double>(&value)) {
    if (std::isnan(*d)) return ConfigValue{std::clamp(1.0, key.least_number, key.most_number)};
    const double near = std::clamp(*d, key.least_number, key.most_number);
    if (near < *d || near > *d) return ConfigValue{near};
  } else if (const auto* list = std::get_if<std::vector<std::int64_t>>(&value)) {
    for (const std::int64_t each : *list) {
      if (auto near = nearest_in_range(key, ConfigValue{each})) return near;
    }
  } else if (const auto* numbers = std::get_if<std::vector<double>>(&value)) {
    for (const double each : *numbers) {
      if (auto near = nearest_in_range(key, ConfigValue{each})) return near;
    }
  }
  return std::nullopt;
}

std::string full_name(const ConfigKey& key) {
  return std::string(key.table) + "." + std::string(key.name);
}

/// The key that was meant by one that is none: the nearest of the same table, else one of that very name elsewhere,
/// else the nearest in full.
const ConfigKey* meant_by(const ConfigEntry& entry) {
  std::vector<std::string_view> here;
  std::vector<std::string> names;
  for (const ConfigKey& key : config_keys()) {
    if (key.table == entry.table) here.push_back(key.name);
    names.push_back(full_name(key));
  }
  if (const auto near = nearest(entry.name, here)) return find_key(entry.table, *near);
  for (const ConfigKey& key : config_keys()) {
    if (key.name == entry.name) return &key;
  }
  const std::vector<std::string_view> views(names.begin(), names.end());
  const auto near = nearest(entry.table.empty() ? entry.name : entry.table + "." + entry.name, views);
  if (!near) return nullptr;
  const std::size_t dot = near->find('.');
  return find_key(near->substr(0, dot), near->substr(dot + 1));
}

std::string keys_of(const std::string& table) {
  std::string list;
  for (const ConfigKey& key : config_keys()) {
    if (key.table == table) list += (list.empty() ? "the keys of [" + table + "] are " : ", ") + std::string(key.name);
  }
  return list.empty() ? "every key stands in a table; docs/config.md lists them" : list;
}

std::filesystem::path absolute_from(const std::filesystem::path& file, const std::string& path) {
  if (path.empty()) return {};
  std::error_code ignored;  // without a current folder the path stays relative
  const std::filesystem::path base = std::filesystem::absolute(file, ignored).parent_path();
  return (base / path).lexically_normal();
}

class Decoder {
 public:
  Decoder(const ConfigSource& source, const std::filesystem::path& file, Problems& problems)
      : source_(source), file_(file), problems_(problems) {}

  Config decode() {
    config_.file = file_;
    choose_nodes();
    choose_model();
    for (const ConfigEntry& entry : source_.entries) decode_entry(entry);
    return std::move(config_);
  }

  /// The value of a kSpecial number, if it was given and valid.
  std::optional<double> factor;

 private:
  void choose_nodes() {
    if (source_.empty_nodes) {
      problems_.add(source_.nodes_place, "nodes = [] leaves nobody to compute; give at least one [[nodes]]");
    }
    config_.nodes.resize(std::max<std::size_t>(source_.nodes, 1));
    for (std::size_t i = 0; i < config_.nodes.size(); ++i)
      config_.nodes[i].name = std::string("n").append(std::to_string(i));
  }

  void choose_model() {
    config_.model.name = "custom";
    const ConfigEntry* entry = source_.find("model", "preset");
    if (entry != nullptr) {
      const auto* name = std::get_if<std::string>(&entry->value);
      const scheduling::ModelShape* preset = name == nullptr ? nullptr : find_preset(*name);
      if (preset != nullptr) config_.model = *preset;
      return;  // a bad one is reported with the other keys
    }
    std::string missing;
    for (const std::string_view name : {"layers", "experts", "top_k", "d_model", "d_ff"}) {
      if (source_.find("model", name) == nullptr) missing += (missing.empty() ? "" : ", ") + std::string(name);
    }
    if (missing.empty()) return;
    problems_.spoil("model");
    std::string presets;
    for (const std::string_view name : preset_names()) presets += (presets.empty() ? "" : ", ") + std::string(name);
    problems_.add({source_.file, 0}, "[model] does not say which model: set model.preset to one of " + presets +
                                         ", or give the shape; missing: " + missing);
  }

  void decode_entry(const ConfigEntry& entry) {
    const ConfigKey* key = find_key(entry.table, entry.name);
    if (key == nullptr) {
      const ConfigKey* meant = meant_by(entry);
      if (meant == nullptr) {
        problems_.add(entry.place, entry.shown() + " is not a key; " + keys_of(entry.table));
        return;
      }
      problems_.spoil(full_name(*meant));
      const std::string node = entry.node && meant->table == "nodes" ? std::to_string(*entry.node) + "." : "";
      problems_.add(entry.place, entry.shown() + " is not a key; did you mean " + std::string(meant->table) + "." +
                                     node + std::string(meant->name) + "?");
      return;
    }
    if (!decode_value(entry, *key)) problems_.spoil(full_name(*key));
  }

  bool decode_value(const ConfigEntry& entry, const ConfigKey& key) {
    if (key.use == KeyUse::kRefused) {
      problems_.add(entry.place, entry.shown() + " is not available: " + std::string(key.help) + "; remove it");
      return false;
    }
    const auto value = as_type(key, entry.value);
    if (!value) {
      problems_.add(entry.place, entry.shown() + " is of the wrong type; write " + range_text(key));
      return false;
    }
    if (key.type == KeyType::kChoice && !check_choice(entry, key, std::get<std::string>(*value))) return false;
    if (const auto near = nearest_in_range(key, *value)) {
      problems_.add(entry.place, entry.shown() + " is out of range; " + std::string(key.name) + " takes " +
                                     range_text(key) + ", the nearest is " + to_text(*near));
      return false;
    }
    if (key.type == KeyType::kPath) {
      const auto path = absolute_from(file_, std::get<std::string>(*value));
      // The folder of the file is not from TOML; what to_toml writes must be read by other nodes.
      if (!parse_toml(std::string("path = ") + to_text(ConfigValue{path.string()}), "path")) {
        problems_.add(entry.place,
                      entry.shown() + " lies in a folder whose name is not UTF-8; rename it, or give another path");
        return false;
      }
      key.set(config_, 0, ConfigValue{path.string()});
      return true;
    }
    if (key.table == "capacity" && key.name == "factor") factor = std::get<double>(*value);
    key.set(config_, entry.node.value_or(0), *value);
    return true;
  }

  bool check_choice(const ConfigEntry& entry, const ConfigKey& key, const std::string& word) {
    if (std::find(key.choices.begin(), key.choices.end(), word) != key.choices.end()) return true;
    const auto near = nearest(word, key.choices);
    problems_.add(entry.place, entry.shown() + " is not " + range_text(key) +
                                   (near ? "; did you mean " + to_text(ConfigValue{std::string(*near)}) + "?" : ""));
    return false;
  }

  const ConfigSource& source_;
  const std::filesystem::path& file_;
  Problems& problems_;
  Config config_;
};

/// capacity.factor in tokens: so many times a replica's even share of a full pass, one replica per expert.
std::uint32_t limit_of(const Config& config, double factor) {
  const double share = static_cast<double>(config.limits.max_tokens_per_pass) * config.total_gpus() *
                       config.model.top_k / config.model.experts;
  return static_cast<std::uint32_t>(std::clamp(std::ceil(factor * share), 1.0, double{1 << 24}));
}

}  // namespace

std::uint32_t Config::total_gpus() const {
  std::uint32_t total = 0;
  for (const NodeConfig& node : nodes) total += node.gpus;
  return total;
}

std::vector<scheduling::GpuSlots> Config::gpu_slots() const {
  std::uint32_t slots = placement.slots_per_gpu;
  if (slots == 0) {
    std::uint64_t held = 0;  // by nodes with a number of their own
    std::uint64_t open = 0;  // GPUs without
    for (const NodeConfig& node : nodes) {
      if (node.slots_per_gpu) {
        held += std::uint64_t{*node.slots_per_gpu} * node.gpus;
      } else {
        open += node.gpus;
      }
    }
    const std::uint64_t left = model.experts > held ? model.experts - held : 0;
    slots = static_cast<std::uint32_t>(open == 0 ? 1 : std::max<std::uint64_t>(1, (left + open - 1) / open));
  }
  std::vector<scheduling::GpuSlots> result;
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    for (std::uint32_t g = 0; g < nodes[n].gpus; ++g) {
      const GpuId gpu{NodeId{static_cast<std::uint16_t>(n)}, static_cast<std::uint16_t>(g)};
      result.push_back({gpu, nodes[n].slots_per_gpu.value_or(slots)});
    }
  }
  return result;
}

bool operator==(const Config& a, const Config& b) {
  return a.file == b.file && a.name == b.name && a.model == b.model && a.nodes == b.nodes &&
         a.coordinator_host == b.coordinator_host && a.coordinator_port == b.coordinator_port && a.ledger == b.ledger &&
         a.transport == b.transport && a.placement == b.placement &&
         a.capacity.tokens_per_replica == b.capacity.tokens_per_replica && a.capacity.overflow == b.capacity.overflow &&
         a.heat == b.heat && a.migration == b.migration && a.security == b.security && a.limits == b.limits &&
         a.telemetry == b.telemetry && a.launch == b.launch && a.workload == b.workload;
}

Result<Config> parse_config(std::string_view text, const std::filesystem::path& file, const Overrides& overrides) {
  const std::string name = file.empty() ? "config" : file.string();
  if (text.size() > kMostConfigText) {
    return fail(ErrorCode::kBadConfig, name + ": " + std::to_string(text.size()) + " bytes of config; at most " +
                                           std::to_string(kMostConfigText) + " are read");
  }
  Problems problems;
  auto source = read_source(text, name, problems);
  if (!source) return tl::unexpected<Error>(source.error());
  apply_overrides(overrides, *source, problems);
  Decoder decoder(*source, file, problems);
  Config config = decoder.decode();
  if (decoder.factor) config.capacity.tokens_per_replica = limit_of(config, *decoder.factor);
  check_config(config, *source, problems);
  if (!problems.empty()) return tl::unexpected<Error>(problems.error());
  return config;
}

Result<Config> load_config(const std::filesystem::path& file, const Overrides& overrides) {
  auto text = read_text_file(file, kMostConfigText);
  if (!text) return tl::unexpected<Error>(text.error());
  return parse_config(*text, file, overrides);
}

}  // namespace troupe::cluster
