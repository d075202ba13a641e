#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cluster/config.hpp"

/// The one table of all config keys. It drives reading, checking, suggestions, to_toml, --set and docs/config.md.
namespace troupe::cluster {

/// A value as TOML has it. monostate: a kind of value that no key takes (a date, a nested table, a mixed array).
using ConfigValue = std::variant<std::monostate, bool, std::int64_t, double, std::string, std::vector<std::int64_t>,
                                 std::vector<double>, std::vector<std::string>>;

/// kPath: a string; relative to the folder of the config file. kChoice: a string out of ConfigKey::choices.
enum class KeyType { kBool, kInteger, kNumber, kString, kPath, kChoice, kIntegers, kNumbers, kStrings };

enum class KeyUse {
  kPlain,
  kSpecial,  ///< read by the loader itself (a preset, a factor): it lives on in what it sets
  kRefused   ///< known, but not to be had: `help` says why
};

/// When a key has an effect. `otherwise` ends the sentence "has no effect ..." for a key that was given for nothing.
struct KeyCondition {
  bool (*holds)(const Config& config) = nullptr;  ///< null: always
  std::string_view otherwise;
};

struct ConfigKey {
  std::string_view table;  ///< "nodes" stands for each [[nodes]]
  std::string_view name;
  KeyType type = KeyType::kString;
  KeyUse use = KeyUse::kPlain;
  std::int64_t least = 0;  ///< kInteger, kIntegers
  std::int64_t most = 0;
  double least_number = 0;  ///< kNumber, kNumbers
  double most_number = 0;
  std::string_view unit;
  std::string_view help;
  std::string_view default_text;  ///< for the reference, where the default is not a plain value
  std::vector<std::string_view> choices;
  bool agreed = false;  ///< part of plan_digest
  KeyCondition condition;
  /// nullopt: not there to be written (empty, or lives on elsewhere). `node` counts for table "nodes" only.
  std::optional<ConfigValue> (*get)(const Config& config, std::size_t node) = nullptr;
  /// `value` has passed the checks of type, range and choice.
  void (*set)(Config& config, std::size_t node, const ConfigValue& value) = nullptr;

  bool list() const { return type == KeyType::kIntegers || type == KeyType::kNumbers || type == KeyType::kStrings; }
};

/// All keys, grouped by table, in the order in which to_toml writes them. Built once; safe from any thread.
std::span<const ConfigKey> config_keys();
const ConfigKey* find_key(std::string_view table, std::string_view name);
/// The tables in order.
std::span<const std::string_view> config_tables();

/// The preset of that name, or null. preset_names() lists them.
const scheduling::ModelShape* find_preset(std::string_view name);
std::span<const std::string_view> preset_names();

/// The text of a value of an enum of the config, for messages and plans.
std::string_view name_of(DeviceKind value);
std::string_view name_of(PlacementStrategy value);
std::string_view name_of(WorkloadKind value);
std::string_view name_of(gpu::BulkTransport value);
std::string_view name_of(scheduling::UniformOrder value);
std::string_view name_of(scheduling::Overflow value);
std::string_view name_of(scheduling::WeightType value);
std::string_view name_of(scheduling::TransportType value);
std::string_view name_of(scheduling::GateKind value);

/// The value as TOML writes it; floats in the shortest form that reads back equal.
std::string to_text(const ConfigValue& value);
/// The double that is written like the f32, 0.6 for 0.6F, and reads back as that f32.
double shortest_double(float value);
/// "an integer from 1 to 512", "one of auto, shm, ucx": what the key takes.
std::string range_text(const ConfigKey& key);

/// The candidate nearest to `word` by edit distance, where one is near enough to be what was meant.
std::optional<std::string_view> nearest(std::string_view word, std::span<const std::string_view> candidates);
std::size_t edit_distance(std::string_view a, std::string_view b);

/// One way to write a host, so that two spellings of this machine compare equal.
std::string_view canonical_host(std::string_view host);

}  // namespace troupe::cluster
