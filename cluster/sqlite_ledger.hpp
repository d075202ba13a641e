#pragma once

#include <filesystem>
#include <memory>

#include "actors/hooks.hpp"

namespace troupe::cluster {

/// The coordinator's ledger: every incarnation, view and epoch that was ever issued, in SQLite, each committed before the call
/// returns. A file that another coordinator has open is refused.
/// Tables: incarnations(node, incarnation, at), views(view, members, at), epochs(epoch, view, replicas, at).
/// Errors: kIo (names the file), kRefused (in use).
Result<std::unique_ptr<actors::Ledger>> open_ledger(const std::filesystem::path& file);

}  // namespace troupe::cluster
