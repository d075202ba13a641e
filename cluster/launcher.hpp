#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cluster/client.hpp"
#include "cluster/config.hpp"
#include "messages/error.hpp"

/// Starts a cluster's processes, and takes every one of them down.
namespace troupe::cluster {

struct LaunchOptions {
  std::filesystem::path program;  ///< the troupe binary; empty: this process's own
  /// A line that a process logged, with its name: called on the launcher's thread.
  std::function<void(const std::string& who, const std::string& line)> on_line;
  /// True: stop waiting and take all down (kAborted). Asked about ten times a second; may be null.
  std::function<bool()> cancelled;
  /// Nodes that are up so far, of all: for a progress line; may be null.
  std::function<void(std::uint32_t joined, std::uint32_t nodes)> on_progress;
};

/// A running cluster. Taken down by its destructor, and by the kernel if this process dies: each child ends itself when
/// its standard input ends, and local children are killed with their parent. Thread rule: one thread.
class RunningCluster {
 public:
  /// Starts coordinator and nodes and waits until they serve.
  /// Errors: kIo (cannot start), kDeadline (names who is missing), kUnavailable (a process ended: names it, its exit
  /// code or signal, and its last lines), kAborted. Nothing is left running then.
  static Result<std::unique_ptr<RunningCluster>> launch(const Config& config, LaunchOptions options);
  virtual ~RunningCluster() = default;

  /// Doors of all nodes, in config order.
  virtual const std::vector<DoorAddress>& doors() const = 0;
  virtual const CurveKeys& client_keys() const = 0;

  struct Process {
    std::string name;
    int pid = 0;
  };
  virtual std::vector<Process> processes() const = 0;

  /// Has anything gone wrong since the launch? A process that ended, or the coordinator's word.
  virtual Result<void> health() = 0;

  /// Asks all to finish, waits at most limits.shutdown_timeout_ms, then kills what is left; all are reaped. Idempotent.
  /// Errors: names the processes that had to be killed or ended badly.
  virtual Result<void> stop() = 0;
};

}  // namespace troupe::cluster
