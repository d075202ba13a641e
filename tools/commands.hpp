#pragma once

#include <functional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

/// The subcommands of `troupe`, one file each. Each adds itself to the program and leaves its exit code in `exit_code`.
namespace troupe::tools {

struct Program {
  CLI::App app{"Troupe: a distributed runtime for Mixture-of-Experts inference. Same bits, whatever happens."};
  int exit_code = 0;
};

/// Exit codes: 0 all well (for `run`: a pass); 1 the work failed; 2 wrong usage or config; 130 interrupted.
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitInterrupted = 130;

void add_run(Program& program);
void add_check(Program& program);
void add_bench(Program& program);
/// `troupe coordinator` and `troupe node`: what the launcher starts.
void add_processes(Program& program);

/// --nodes, --gpus and --set, as `run` and `check` take them.
struct OverrideFlags {
  std::uint32_t nodes = 0;
  std::uint32_t gpus = 0;
  std::vector<std::string> set;
};
void add_overrides(CLI::App& command, OverrideFlags& flags);

/// Prints "troupe: message" to standard error.
void print_error(const std::string& message);

}  // namespace troupe::tools
