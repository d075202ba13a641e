#include <xxhash.h>

#include "cluster/config_keys.hpp"

namespace troupe::cluster {
namespace {

/// Calls f(key, node number, value) for every key that is there and has an effect, in canonical order.
template <class F>
void for_each_value(const Config& config, F&& f) {
  const auto keys = config_keys();
  for (std::size_t first = 0; first < keys.size();) {
    std::size_t last = first;
    while (last < keys.size() && keys[last].table == keys[first].table) ++last;
    const std::size_t times = keys[first].table == "nodes" ? config.nodes.size() : 1;
    for (std::size_t node = 0; node < times; ++node) {
      for (std::size_t i = first; i < last; ++i) {
        if (keys[i].condition.holds != nullptr && !keys[i].condition.holds(config)) continue;
        if (const auto value = keys[i].get(config, node)) f(keys[i], node, *value);
      }
    }
    first = last;
  }
}

std::string default_of(const ConfigKey& key) {
  if (!key.default_text.empty()) return std::string(key.default_text);
  static const Config defaults = [] {
    Config config;
    config.nodes.resize(1);
    return config;
  }();
  const auto value = key.get(defaults, 0);
  return value ? std::string("`").append(to_text(*value)).append("`") : "none";
}

std::string in_cell(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

std::string to_toml(const Config& config) {
  std::string out;
  std::string_view table;
  std::size_t node_written = 0;
  for_each_value(config, [&](const ConfigKey& key, std::size_t node, const ConfigValue& value) {
    const bool nodes = key.table == "nodes";
    if (key.table != table || (nodes && node != node_written)) {
      out += out.empty() ? "" : "\n";
      out += nodes ? std::string("[[nodes]]\n") : std::string("[").append(key.table).append("]\n");
      table = key.table;
      node_written = node;
    }
    out += std::string(key.name) + " = " + to_text(value) + "\n";
  });
  return out;
}

std::uint64_t plan_digest(const Config& config) {
  std::string agreed;
  for_each_value(config, [&](const ConfigKey& key, std::size_t node, const ConfigValue& value) {
    if (!key.agreed) return;
    agreed +=
        std::string(key.table) + "." + std::to_string(node) + "." + std::string(key.name) + "=" + to_text(value) + "\n";
  });
  return XXH3_64bits(agreed.data(), agreed.size());
}

std::string config_reference() {
  std::string out;
  std::string_view table;
  for (const ConfigKey& key : config_keys()) {
    if (key.table != table) {
      table = key.table;
      const std::string title(table);
      out += out.empty() ? "" : "\n";
      out += std::string("### ") + (table == "nodes" ? std::string("[[nodes]]") : "[" + title + "]") + "\n\n";
      out += "| key | takes | default | meaning |\n|---|---|---|---|\n";
    }
    const bool refused = key.use == KeyUse::kRefused;
    std::string help(key.help);
    if (refused) help = "Refused: " + help + ".";
    if (key.condition.holds != nullptr) help += " Refused " + std::string(key.condition.otherwise) + ".";
    out += "| `" + std::string(key.name) + "` | " + in_cell(range_text(key)) + " | " +
           (refused ? "none" : default_of(key)) + " | " + in_cell(help) + " |\n";
  }
  return out;
}

}  // namespace troupe::cluster
