#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "cluster/config.hpp"

/// Any bytes are a config or an error, and a config that is taken reads back equal from what to_toml writes of it. The
/// part after a NUL byte, if there is one, is given as --set.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe::cluster;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::size_t end = bytes.find('\0');
  Overrides overrides;
  if (end != std::string_view::npos) overrides.set.emplace_back(bytes.substr(end + 1));
  const auto config = parse_config(bytes.substr(0, end), "fuzz.toml", overrides);
  if (!config) return 0;
  const auto again = parse_config(to_toml(*config), config->file);
  if (!again || !(*again == *config) || plan_digest(*again) != plan_digest(*config)) std::abort();
  return 0;
}
