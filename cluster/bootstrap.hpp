#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cluster/wire.hpp"
#include "messages/error.hpp"

/// What a coordinator or node process is given by the launcher: one line of JSON on its standard input. Secrets so
/// never stand in an argument, the environment or a file on another host; and the end of the input says that the
/// launcher is gone.
namespace troupe::cluster {

struct Bootstrap {
  std::string role;         ///< "coordinator" or "node"
  std::string name;         ///< node's name in the config; "coordinator"
  std::string config_toml;  ///< the effective config (to_toml)
  std::string config_file;  ///< for messages, and for paths relative to it
  std::string run_folder;   ///< coordinator: folder for the ledger where the config names none
  CurveKeys keys;
  std::vector<std::pair<std::string, std::string>> allowed;  ///< (name, public key) of all parties
  std::string coordinator_endpoint;                          ///< node: where the coordinator listens
  std::string coordinator_key;
  std::string bulk_secret;  ///< shared by the cluster's GPU workers
};

/// Most bytes of the line; a config of thousands of nodes fits.
inline constexpr std::size_t kMaxBootstrapBytes = std::size_t{16} << 20;

std::string to_json_line(const Bootstrap& bootstrap);
/// Errors: kBadInput (names the field).
Result<Bootstrap> parse_bootstrap(const std::string& line);

/// Reads the line from `fd`. Errors: kBadInput, kLimit, kDeadline.
Result<Bootstrap> read_bootstrap(int fd, std::chrono::milliseconds deadline);

/// What a child process says to its launcher: a line "@troupe {json}" on standard output, apart from its log lines.
inline constexpr const char* kEventPrefix = "@troupe ";
/// Writes such a line at once. Any thread.
void write_event(const std::string& json);

}  // namespace troupe::cluster
