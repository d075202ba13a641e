#include "cluster/config_source.hpp"

#include <algorithm>

#include "cluster/toml_text.hpp"

namespace troupe::cluster {
namespace {

constexpr std::size_t kMostEntries = 20'000;
constexpr std::size_t kMostList = 65'536;
constexpr std::size_t kMostProblems = 50;

template <class T>
ConfigValue list_of(const toml::array& array) {
  std::vector<T> list;
  for (const toml::node& each : array) {
    if constexpr (std::is_same_v<T, double>) {
      list.push_back(*each.value<double>());  // takes integers too
    } else {
      list.push_back(*each.value_exact<T>());
    }
  }
  return list;
}

ConfigValue value_of(const toml::node& node) {
  if (const auto v = node.value_exact<bool>()) return *v;
  if (const auto v = node.value_exact<std::int64_t>()) return *v;
  if (const auto v = node.value_exact<double>()) return *v;
  if (const auto v = node.value_exact<std::string>()) return *v;
  const toml::array* array = node.as_array();
  if (array == nullptr || array->size() > kMostList) return std::monostate{};
  bool integers = true;
  bool numbers = true;
  bool strings = true;
  for (const toml::node& each : *array) {
    integers = integers && each.is_integer();
    numbers = numbers && each.is_number();
    strings = strings && each.is_string();
  }
  if (integers) return list_of<std::int64_t>(*array);  // an empty list too
  if (numbers) return list_of<double>(*array);
  if (strings) return list_of<std::string>(*array);
  return std::monostate{};
}

class Reader {
 public:
  Reader(ConfigSource& source, Problems& problems) : source_(source), problems_(problems) {}

  void read(const toml::table& root) {
    for (const auto& [key, node] : root) {
      const std::string name(key.str());
      const ConfigPlace place = place_of(node);
      if (name == "nodes") {
        read_nodes(node);
      } else if (const toml::table* table = node.as_table()) {
        const auto tables = config_tables();
        if (std::find(tables.begin(), tables.end(), name) == tables.end()) {
          const auto near = nearest(name, tables);
          if (near) problems_.spoil(std::string(*near));
          problems_.add(place, std::string("[") + ConfigEntry{"", {}, name, {}, {}}.path() +
                                   "] is not a table of the config; " +
                                   (near ? "did you mean [" + std::string(*near) + "]?" : "remove it"));
          continue;
        }
        read_table(name, std::nullopt, *table);
      } else {
        add({"", std::nullopt, name, value_of(node), place});
      }
    }
  }

 private:
  void read_nodes(const toml::node& node) {
    source_.nodes_place = place_of(node);
    const toml::array* array = node.as_array();
    if (array == nullptr) {
      problems_.spoil("nodes");
      problems_.add(source_.nodes_place, "nodes is a list: write [[nodes]] in double brackets, one for each node");
      return;
    }
    source_.empty_nodes = array->empty();
    if (array->size() > kMostNodes) {
      problems_.add(source_.nodes_place, "nodes lists " + std::to_string(array->size()) + " nodes; at most " +
                                             std::to_string(kMostNodes) + " are supported");
      return;
    }
    for (const toml::node& each : *array) {
      const toml::table* table = each.as_table();
      if (table == nullptr) {
        problems_.add(place_of(each), std::string("nodes.") + std::to_string(source_.nodes) + " = " +
                                          to_text(value_of(each)) +
                                          " is not a table; write [[nodes]], one for each node");
        continue;
      }
      read_table("nodes", source_.nodes++, *table);
    }
    source_.nodes_given = source_.nodes;
  }

  void read_table(const std::string& name, std::optional<std::size_t> node, const toml::table& table) {
    for (const auto& [key, each] : table) {
      add({name, node, std::string(key.str()), value_of(each), place_of(each)});
    }
  }

  void add(ConfigEntry entry) {
    if (source_.entries.size() >= kMostEntries) {
      if (!overflow_)
        problems_.add(entry.place, "more than " + std::to_string(kMostEntries) + " keys; no config has so many");
      overflow_ = true;
      return;
    }
    source_.entries.push_back(std::move(entry));
  }

  ConfigPlace place_of(const toml::node& node) const {
    const auto line = node.source().begin.line;
    return {source_.file + ":" + std::to_string(line), line};
  }

  ConfigSource& source_;
  Problems& problems_;
  bool overflow_ = false;
};

// Overrides come after all lines of a file.
ConfigPlace override_place(std::string text) {
  return {std::move(text), UINT32_MAX};
}

void put(ConfigSource& source, ConfigEntry entry) {
  for (ConfigEntry& each : source.entries) {
    if (each.table == entry.table && each.node == entry.node && each.name == entry.name) {
      each = std::move(entry);
      return;
    }
  }
  source.entries.push_back(std::move(entry));
}

std::string shortened(std::string_view text) {
  constexpr std::size_t kMost = 120;
  return text.size() <= kMost ? std::string(text) : std::string(text.substr(0, kMost)) + "...";
}

// "n1" to "n2", "node09" to "node10", "alpha" to "alpha2".
std::string next_name(const std::string& name) {
  std::size_t digits = name.size();
  while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9' && name.size() - digits < 9) --digits;
  if (digits == name.size()) return name + "2";
  std::string number = std::to_string(std::stoul(name.substr(digits)) + 1);
  if (number.size() < name.size() - digits) number.insert(0, name.size() - digits - number.size(), '0');
  return name.substr(0, digits) + number;
}

class NodeMaker {
 public:
  explicit NodeMaker(ConfigSource& source) : source_(source) {}

  void make_until(std::size_t count, const ConfigPlace& place) {
    if (source_.nodes == 0) {
      source_.nodes = 1;
      put(source_, {"nodes", 0, "name", std::string("n0"), place});
    }
    while (source_.nodes < count) add_one(place);
  }

 private:
  std::string text(std::size_t node, std::string_view name, std::string otherwise) const {
    const ConfigEntry* entry = source_.find("nodes", name, node);
    const auto* value = entry == nullptr ? nullptr : std::get_if<std::string>(&entry->value);
    return value == nullptr ? otherwise : *value;
  }
  std::int64_t port(std::size_t node, std::string_view name) const {
    const ConfigEntry* entry = source_.find("nodes", name, node);
    const auto* value = entry == nullptr ? nullptr : std::get_if<std::int64_t>(&entry->value);
    return value == nullptr ? 0 : *value;
  }
  std::string host(std::size_t node) const { return std::string(canonical_host(text(node, "host", "127.0.0.1"))); }
  std::string name(std::size_t node) const { return text(node, "name", std::string("n").append(std::to_string(node))); }

  bool name_used(const std::string& wanted) const {
    for (std::size_t i = 0; i < source_.nodes; ++i) {
      if (name(i) == wanted) return true;
    }
    return false;
  }
  bool port_used(const std::string& on_host, std::int64_t wanted) const {
    for (std::size_t i = 0; i < source_.nodes; ++i) {
      if (host(i) == on_host && (port(i, "control_port") == wanted || port(i, "door_port") == wanted)) return true;
    }
    const ConfigEntry* coordinator = source_.find("coordinator", "port");
    const auto* value = coordinator == nullptr ? nullptr : std::get_if<std::int64_t>(&coordinator->value);
    return value != nullptr && *value == wanted;
  }
  // The step between the last two nodes on this host, else past both ports of the one that is there.
  std::int64_t step(std::size_t last, std::string_view key) const {
    if (last > 0 && host(last - 1) == host(last)) {
      const std::int64_t difference = port(last, key) - port(last - 1, key);
      if (port(last - 1, key) > 0 && difference > 0) return difference;
    }
    return 1;
  }

  void add_one(const ConfigPlace& place) {
    const std::size_t last = source_.nodes - 1;
    std::string new_name = next_name(name(last));
    while (name_used(new_name)) new_name = next_name(new_name);
    std::int64_t ports[2] = {0, 0};
    const std::string_view keys[2] = {"control_port", "door_port"};
    for (int i = 0; i < 2; ++i) {
      if (port(last, keys[i]) <= 0) continue;
      const std::int64_t by = step(last, keys[i]);
      ports[i] = port(last, keys[i]) + by;
      while (ports[i] <= 65535 && (port_used(host(last), ports[i]) || (i == 1 && ports[1] == ports[0]))) ports[i] += by;
    }
    std::vector<ConfigEntry> made;
    for (const ConfigEntry& entry : source_.entries) {
      if (entry.table == "nodes" && entry.node == last) made.push_back(entry);
    }
    const std::size_t self = source_.nodes++;
    for (ConfigEntry& entry : made) {
      entry.node = self;
      entry.place = place;
      for (int i = 0; i < 2; ++i) {
        if (entry.name == keys[i] && ports[i] > 0) entry.value = ports[i];
      }
      put(source_, std::move(entry));
    }
    put(source_, {"nodes", self, "name", std::move(new_name), place});
  }

  ConfigSource& source_;
};

void set_node_count(std::uint32_t count, ConfigSource& source, Problems& problems) {
  const ConfigPlace place = override_place(std::string("--nodes ") + std::to_string(count));
  if (count < 1 || count > kMostNodes) {
    problems.add(place, std::to_string(count) + " nodes; set 1 to " + std::to_string(kMostNodes));
    return;
  }
  source.empty_nodes = false;
  const auto beyond = [&](const ConfigEntry& e) { return e.table == "nodes" && e.node && *e.node >= count; };
  source.entries.erase(std::remove_if(source.entries.begin(), source.entries.end(), beyond), source.entries.end());
  source.nodes = std::min<std::size_t>(source.nodes, count);
  NodeMaker(source).make_until(count, place);
}

// The value of --set: TOML, or else a bare string.
std::optional<ConfigValue> set_value(const std::string& text) {
  if (text.find_first_of("\r\n") == std::string::npos) {
    if (const auto table = parse_toml("v = " + text, "--set"); table && table->size() == 1) {
      return value_of(*table->get("v"));
    }
  }
  const auto as_string = parse_toml(std::string("v = ") + to_text(ConfigValue{text}), "--set");
  if (!as_string) return std::nullopt;  // not UTF-8
  return value_of(*as_string->get("v"));
}

void set_key(const std::string& assignment, ConfigSource& source, Problems& problems) {
  const ConfigPlace place = override_place(std::string("--set ") + shortened(assignment));
  const std::size_t equals = assignment.find('=');
  const std::string path = assignment.substr(0, equals);
  const std::size_t dot = path.find('.');
  if (equals == std::string::npos || dot == std::string::npos) {
    problems.add(place, "not of the form table.key=value; write for instance limits.max_tokens_per_pass=64");
    return;
  }
  const std::optional<ConfigValue> value = set_value(assignment.substr(equals + 1));
  if (!value) {
    problems.add(place, "the value is not valid UTF-8 text");
    return;
  }
  std::string table = path.substr(0, dot);
  std::string name = path.substr(dot + 1);
  std::optional<std::size_t> node;
  if (table == "nodes") {
    const std::size_t second = name.find('.');
    const std::string number = name.substr(0, second);
    const bool digits =
        !number.empty() && number.size() < 6 && number.find_first_not_of("0123456789") == std::string::npos;
    if (second == std::string::npos || !digits) {
      problems.add(place, "a node's key is written nodes.NUMBER.key, from 0; for instance nodes.0.gpus=2");
      return;
    }
    node = std::stoul(number);
    name = name.substr(second + 1);
    if (source.nodes == 0 && *node == 0) NodeMaker(source).make_until(1, place);
    if (*node >= source.nodes) {
      problems.add(place, "there is no node " + number + "; the nodes are numbered 0 to " +
                              std::to_string(std::max<std::size_t>(source.nodes, 1) - 1) + " (--nodes makes more)");
      return;
    }
  }
  put(source, {std::move(table), node, std::move(name), *value, place});
}

}  // namespace

std::string ConfigEntry::path() const {
  // A key may be any quoted text: what is no bare key is shown in quotes, so that a message stays one line.
  const bool bare =
      name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") == std::string::npos;
  const std::string last = shortened(bare ? name : to_text(ConfigValue{name}));
  if (table.empty()) return last;
  return node ? table + "." + std::to_string(*node) + "." + last : table + "." + last;
}

std::string ConfigEntry::shown() const {
  return path() + " = " + shortened(to_text(value));
}

void Problems::add(const ConfigPlace& place, std::string text) {
  list_.push_back({place.order, place.text + ": " + std::move(text)});
}

bool Problems::spoilt(std::string_view table, std::string_view name) const {
  if (spoilt_.empty()) return false;
  return spoilt_.contains(table) || spoilt_.contains(std::string(table) + "." + std::string(name));
}

Error Problems::error() const {
  std::vector<Problem> sorted = list_;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Problem& a, const Problem& b) { return a.order < b.order; });
  std::string message;
  for (std::size_t i = 0; i < sorted.size() && i < kMostProblems; ++i) {
    if (i > 0) message += '\n';
    message += sorted[i].line;
  }
  if (sorted.size() > kMostProblems) {
    message += "\nand " + std::to_string(sorted.size() - kMostProblems) + " more problems";
  }
  return {ErrorCode::kBadConfig, std::move(message)};
}

const ConfigEntry* ConfigSource::find(std::string_view table, std::string_view name,
                                      std::optional<std::size_t> node) const {
  for (const ConfigEntry& entry : entries) {
    if (entry.table == table && entry.name == name && entry.node == node) return &entry;
  }
  return nullptr;
}

ConfigPlace ConfigSource::place(std::string_view table, std::string_view name, std::optional<std::size_t> node) const {
  const ConfigEntry* entry = find(table, name, node);
  return entry == nullptr ? ConfigPlace{file, 0} : entry->place;
}

Result<ConfigSource> read_source(std::string_view text, const std::string& file, Problems& problems) {
  auto root = parse_toml(text, file);
  if (!root) return tl::unexpected<Error>(root.error());
  ConfigSource source;
  source.file = file;
  Reader(source, problems).read(*root);
  return source;
}

void apply_overrides(const Overrides& overrides, ConfigSource& source, Problems& problems) {
  if (overrides.nodes) set_node_count(*overrides.nodes, source, problems);
  if (overrides.gpus) {
    const ConfigPlace place = override_place(std::string("--gpus ") + std::to_string(*overrides.gpus));
    if (source.nodes == 0) NodeMaker(source).make_until(1, place);
    for (std::size_t i = 0; i < source.nodes; ++i) {
      put(source, {"nodes", i, "gpus", std::int64_t{*overrides.gpus}, place});
    }
  }
  for (const std::string& assignment : overrides.set) set_key(assignment, source, problems);
}

}  // namespace troupe::cluster
