#include <cstdio>
#include <memory>
#include <string>

#include "cluster/config.hpp"
#include "tools/commands.hpp"
#include "tools/load.hpp"

namespace troupe::tools {
namespace {

struct CheckFlags {
  std::string file;
  OverrideFlags overrides;
  bool json = false;
};

int check(const CheckFlags& flags) {
  auto config = load(flags.file, flags.overrides);
  if (!config) {
    print_error(config.error().message);
    return kExitUsage;
  }
  auto text = cluster::describe_plan(*config, flags.json);
  if (!text) {
    print_error(text.error().message);
    return kExitUsage;
  }
  std::printf("%s\n", text->c_str());
  return 0;
}

}  // namespace

void add_check(Program& program) {
  CLI::App* command =
      program.app.add_subcommand("check", "Print the effective plan of a config without starting anything");
  auto flags = std::make_shared<CheckFlags>();
  command->add_option("config", flags->file, "The cluster's TOML file")->required();
  command->add_flag("--json", flags->json, "One JSON object");
  add_overrides(*command, flags->overrides);
  command->footer(
      "Shows which expert sits in which slot of which GPU, the memory each GPU takes, ports, and what is on and off.\n"
      "Exit code 0 when the config is sound, 2 with every problem named otherwise.");
  command->callback([&program, flags] { program.exit_code = check(*flags); });
}

}  // namespace troupe::tools
