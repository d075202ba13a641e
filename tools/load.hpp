#pragma once

#include <string>

#include "cluster/config.hpp"
#include "tools/commands.hpp"

namespace troupe::tools {

/// The config with the flags' overrides.
inline Result<cluster::Config> load(const std::string& file, const OverrideFlags& flags) {
  cluster::Overrides overrides;
  if (flags.nodes != 0) overrides.nodes = flags.nodes;
  if (flags.gpus != 0) overrides.gpus = flags.gpus;
  overrides.set = flags.set;
  return cluster::load_config(file, overrides);
}

}  // namespace troupe::tools
