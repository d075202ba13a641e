#pragma once

#include <string>

#include "actors/hooks.hpp"

namespace troupe::cluster {

/// The process's one logger: lines on standard error, with time and level. level: as telemetry.log_level. who: a name
/// put in front of each line, or empty where the launcher puts one. Thread rule: the returned function may be called
/// from any thread.
actors::Log make_logger(const std::string& level, const std::string& who);

}  // namespace troupe::cluster
