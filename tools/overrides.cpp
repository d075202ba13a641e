#include <cstdio>

#include "tools/commands.hpp"

namespace troupe::tools {

void add_overrides(CLI::App& command, OverrideFlags& flags) {
  command
      .add_option("--nodes", flags.nodes, "Number of nodes: the first N of the config, or more of the last one's kind")
      ->check(CLI::Range(1, 1024));
  command.add_option("--gpus", flags.gpus, "GPUs per node")->check(CLI::Range(1, 64));
  command.add_option("--set", flags.set, "Override a key: --set limits.max_tokens_per_pass=64 (may be repeated)")
      ->allow_extra_args(false);
}

void print_error(const std::string& message) {
  std::fprintf(stderr, "troupe: %s\n", message.c_str());
}

}  // namespace troupe::tools
