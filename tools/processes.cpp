#include "cluster/process.hpp"
#include "tools/commands.hpp"

namespace troupe::tools {

void add_processes(Program& program) {
  CLI::App* coordinator = program.app.add_subcommand(
      "coordinator", "Process of a cluster: views, epochs, ledger (started by `troupe run`)");
  coordinator->footer("Reads its bootstrap, one line of JSON, from standard input, and ends when that ends.");
  coordinator->group("Processes");
  coordinator->callback([&program] { program.exit_code = cluster::run_coordinator_process(); });
  CLI::App* node = program.app.add_subcommand(
      "node", "Process of a cluster: GPUs, experts, a client door (started by `troupe run`)");
  node->footer("Reads its bootstrap, one line of JSON, from standard input, and ends when that ends.");
  node->group("Processes");
  node->callback([&program] { program.exit_code = cluster::run_node_process(); });
}

}  // namespace troupe::tools
