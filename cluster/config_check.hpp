#pragma once

#include "cluster/config_source.hpp"

/// What no single key can know: contradictions, settings without effect, sums that do not fit.
namespace troupe::cluster {

/// Checks a config whose every value is within its key's range. Whatever is wrong goes to `problems`, at the place
/// where it was written.
void check_config(const Config& config, const ConfigSource& source, Problems& problems);

/// Letters, digits, '_', '-' and '.', 1 to 64 of them, not a reserved name: fit for file names, logs and the
/// environment.
bool is_plain_name(std::string_view name);

}  // namespace troupe::cluster
