#include <cstdio>
#include <exception>

#include "tools/commands.hpp"

int main(int argc, char** argv) {
  using namespace troupe::tools;
  Program program;
  program.app.set_version_flag("--version", "troupe " TROUPE_VERSION);
  program.app.require_subcommand(1);
  program.app.footer(
      "A first run:\n"
      "  troupe check configs/demo.toml        what would run where, in how much memory\n"
      "  troupe run configs/demo.toml          launch a cluster, serve, check every answer\n"
      "  troupe bench expert                   how close the kernels are to this machine's limits\n"
      "`troupe COMMAND --help` explains each command.");
  add_run(program);
  add_check(program);
  add_bench(program);
  add_processes(program);
  try {
    program.app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    const int code = program.app.exit(e);
    return code == 0 ? 0 : kExitUsage;
  } catch (const std::exception& e) {
    print_error(e.what());
    return kExitFailed;
  }
  return program.exit_code;
}
