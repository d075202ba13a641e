#include "cluster/run.hpp"

#include <atomic>
#include <cstdio>
#include <memory>
#include <string>

#include "cluster/stop_signal.hpp"
#include "tools/commands.hpp"
#include "tools/load.hpp"

namespace troupe::tools {
namespace {

struct RunFlags {
  std::string file;
  OverrideFlags overrides;
  bool json = false;
  bool no_reference = false;
  bool quiet = false;
};

int run(const RunFlags& flags) {
  auto config = load(flags.file, flags.overrides);
  if (!config) {
    print_error(config.error().message);
    return kExitUsage;
  }
  cluster::block_stop_signals();
  std::atomic<int> interrupts{0};
  const cluster::StopWatch watch(false, [&](const std::string&) {
    // Once: take the cluster down in order. Again: the impatient get an immediate end; children die with this process.
    if (interrupts.fetch_add(1) > 0) std::_Exit(kExitInterrupted);
  });
  cluster::Progress progress(flags.quiet ? cluster::Progress::Mode::kSilent : cluster::Progress::Mode::kAuto);
  cluster::RunOptions options;
  options.check_reference = !flags.no_reference;
  options.cancelled = [&] { return interrupts.load() > 0; };
  if (!flags.quiet)
    options.on_log = [&](const std::string& who, const std::string& line) { progress.line("[" + who + "] " + line); };

  auto report = cluster::run_cluster(*config, options, progress);
  progress.clear();
  if (!report) {
    print_error(report.error().message);
    if (report.error().code == ErrorCode::kAborted) return kExitInterrupted;
    return report.error().code == ErrorCode::kBadConfig ? kExitUsage : kExitFailed;
  }
  std::printf("%s\n", flags.json ? cluster::to_json(*report).c_str() : cluster::to_text(*report, *config).c_str());
  return report->pass ? 0 : kExitFailed;
}

}  // namespace

void add_run(Program& program) {
  CLI::App* command =
      program.app.add_subcommand("run", "Launch a cluster, drive its workload, check every answer, take it down");
  auto flags = std::make_shared<RunFlags>();
  command->add_option("config", flags->file, "The cluster's TOML file")->required();
  command->add_flag("--json", flags->json, "Print one JSON object instead of a table");
  command->add_flag("--quiet,-q", flags->quiet, "No progress, no log lines");
  command->add_flag("--no-reference", flags->no_reference, "Do not compute the single-process reference");
  add_overrides(*command, flags->overrides);
  command->footer(
      "Logs and progress go to standard error, the report to standard output.\n"
      "Exit code 0 only on a pass: no token lost, doubled or out of order, and every bit that of the reference.\n"
      "Examples:\n"
      "  troupe run configs/demo.toml\n"
      "  troupe run configs/demo.toml --nodes 4 --gpus 1 --json\n"
      "  troupe run configs/demo.toml --set limits.max_tokens_per_pass=64 --set workload.tokens=5000");
  command->callback([&program, flags] { program.exit_code = run(*flags); });
}

}  // namespace troupe::tools
