#include "gpu/cpu/memory_available.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>
#include <string_view>

namespace troupe::gpu::cpu {
namespace {

constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

std::optional<std::uint64_t> number_in(std::string_view text) {
  const std::size_t begin = text.find_first_of("0123456789");
  if (begin == std::string_view::npos) return std::nullopt;
  text.remove_prefix(begin);
  std::uint64_t value = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc{}) return std::nullopt;
  return value;
}

/// The number in a file of one number; nothing where there is no file or no number in it ("max").
std::optional<std::uint64_t> number_in_file(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return number_in(line);
}

/// The number after `key` in a file of lines "key number".
std::optional<std::uint64_t> number_of_key(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (std::string_view(line).starts_with(key)) return number_in(std::string_view(line).substr(key.size()));
  }
  return std::nullopt;
}

/// Least room under the limits of a group and of all groups above it. `mount`: the hierarchy's root; `group`: "/a/b".
std::uint64_t room_in_groups(const std::string& mount, std::string group, const char* limit_file, const char* use_file,
                             const char* cache_key) {
  std::uint64_t room = kNoLimit;
  while (true) {
    const std::string folder = mount + (group == "/" ? "" : group) + "/";
    const auto limit = number_in_file(folder + limit_file);
    const auto use = number_in_file(folder + use_file);
    if (limit && use) {
      const std::uint64_t droppable = number_of_key(folder + "memory.stat", cache_key).value_or(0);
      const std::uint64_t held = *use > droppable ? *use - droppable : 0;
      room = std::min(room, *limit > held ? *limit - held : 0);
    }
    if (group.empty() || group == "/") return room;
    group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
  }
}

}  // namespace

std::uint64_t available_memory_bytes(const std::string& root) {
  std::uint64_t available = kNoLimit;
  if (const auto kib = number_of_key(root + "/proc/meminfo", "MemAvailable:")) available = *kib * 1024;

  // Lines "number:controllers:path"; v2 has number 0 and no controllers.
  std::ifstream groups(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(groups, line)) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    std::string controllers = ",";
    controllers.append(line, first + 1, second - first - 1).append(",");
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") {
      available = std::min(
          available, room_in_groups(root + "/sys/fs/cgroup", path, "memory.max", "memory.current", "inactive_file"));
    } else if (controllers.find(",memory,") != std::string::npos) {
      available = std::min(available, room_in_groups(root + "/sys/fs/cgroup/memory", path, "memory.limit_in_bytes",
                                                     "memory.usage_in_bytes", "total_inactive_file"));
    }
  }
  return available;
}

}  // namespace troupe::gpu::cpu
