#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "messages/control.hpp"
#include "messages/error.hpp"

/// What actors ask of the process around them. cluster/ provides these for real; a single-process cluster leaves most
/// empty.
namespace troupe::actors {

enum class LogLevel { kTrace, kDebug, kInfo, kWarn, kError };
/// Must not block for long; any thread.
using Log = std::function<void(LogLevel, std::string_view)>;

/// Views and epochs are written here before anyone hears of them (docs/architecture.md, "Failure and membership").
/// Thread rule: each method may be called from any thread; calls may block for a disk write.
class Ledger {
 public:
  virtual ~Ledger() = default;
  struct Last {
    View view;
    Epoch epoch;
    Incarnation incarnation;
  };
  virtual Result<Last> last() = 0;
  virtual Result<void> write_incarnation(const std::string& node, Incarnation incarnation) = 0;
  virtual Result<void> write_view(const messages::ViewPublished& view) = 0;
  virtual Result<void> write_epoch(const messages::EpochPublished& epoch) = 0;
};

/// Makes a peer reachable: called before the first message to it. Empty in a single-process cluster.
using ConnectPeer =
    std::function<Result<void>(const std::string& node, const std::string& endpoint, const std::string& key)>;

}  // namespace troupe::actors
