#pragma once

#include <functional>
#include <string>

#include "cluster/config.hpp"
#include "cluster/progress.hpp"
#include "cluster/run_report.hpp"
#include "messages/error.hpp"

namespace troupe::cluster {

struct RunOptions {
  bool check_reference = true;
  std::function<bool()> cancelled;                                              ///< may be null
  std::function<void(const std::string& who, const std::string& line)> on_log;  ///< lines of the processes; may be null
};

/// Launches the config's cluster, drives its workload through the doors, takes the cluster down, and checks every
/// answer against a single-process reference. Errors: those of the config's workload and of the launch; kAborted. What
/// goes wrong with answers is in the report, not an error.
Result<RunReport> run_cluster(const Config& config, const RunOptions& options, Progress& progress);

}  // namespace troupe::cluster
