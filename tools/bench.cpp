#include "bench/bench.hpp"

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tools/commands.hpp"

namespace troupe::tools {
namespace {

struct BenchFlags {
  bool json = false;
  bench::Options options;
};

void print_table(const std::vector<bench::Row>& rows) {
  std::size_t width = 4;
  for (const bench::Row& row : rows) width = std::max(width, row.name.size());
  std::string text = fmt::format("{:<{}} {:>12} {:<8} {:>12} {:<22} {:>7} {:>12}  {}\n", "case", width, "value", "unit",
                                 "limit", "", "ratio", "peer", "");
  for (const bench::Row& row : rows) {
    text += fmt::format("{:<{}} {:>12.2f} {:<8} {:>12.2f} {:<22} {:>6.0f}% ", row.name, width, row.value, row.unit,
                        row.limit, row.limit_name, row.ratio * 100);
    text += row.peer > 0 ? fmt::format("{:>12.2f}  {}\n", row.peer, row.peer_name) : "\n";
  }
  std::fputs(text.c_str(), stdout);
}

void print_json(const std::vector<bench::Row>& rows) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const bench::Row& row : rows) {
    nlohmann::ordered_json j{{"case", row.name},   {"value", row.value},           {"unit", row.unit},
                             {"limit", row.limit}, {"limit_name", row.limit_name}, {"ratio", row.ratio}};
    j["peer"] = row.peer > 0 ? nlohmann::ordered_json(row.peer) : nlohmann::ordered_json(nullptr);
    j["peer_name"] = row.peer_name;
    list.push_back(std::move(j));
  }
  std::printf("%s\n", list.dump(2).c_str());
}

}  // namespace

void add_bench(Program& program) {
  CLI::App* command = program.app.add_subcommand(
      "bench", "Measure speed as ratios to limits of this machine, measured in the same run");
  command->require_subcommand(1);
  auto flags = std::make_shared<BenchFlags>();
  using Function = Result<std::vector<bench::Row>> (*)(const bench::Options&);
  struct Case {
    const char* name;
    const char* help;
    Function function;
  };
  const Case cases[] = {
      {"expert", "Expert kernels against FMA peak, memory bandwidth and OpenBLAS", &bench::bench_expert},
      {"all-to-all", "Exchange between processes against memcpy, and UCX against ucx_perftest",
       &bench::bench_all_to_all},
      {"control", "Control messages with CURVE: round trips and one-way", &bench::bench_control},
      {"step", "A step's own overhead above compute and copy", &bench::bench_step},
  };
  for (const Case& c : cases) {
    CLI::App* sub = command->add_subcommand(c.name, c.help);
    sub->add_flag("--json", flags->json, "An array of {case, value, unit, limit, peer, ratio}");
    sub->add_option("--only", flags->options.only, "Only cases whose name contains this (may be repeated)");
    sub->add_option("--seconds", flags->options.seconds_per_case, "Time per case")->check(CLI::Range(0.01, 60.0));
    sub->callback([&program, flags, function = c.function] {
      auto rows = function(flags->options);
      if (!rows) {
        print_error(rows.error().message);
        program.exit_code = kExitFailed;
        return;
      }
      if (flags->json) {
        print_json(*rows);
      } else {
        print_table(*rows);
      }
    });
  }
}

}  // namespace troupe::tools
