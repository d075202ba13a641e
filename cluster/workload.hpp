#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cluster/config.hpp"
#include "messages/client.hpp"
#include "messages/error.hpp"

/// What a run submits: deterministic from the config, so that the reference can make it again.
namespace troupe::cluster {

struct WorkItem {
  messages::Submit submit;
  std::uint64_t at_ns = 0;  ///< not before this time after the start (arrivals); 0: at once
};

/// The same config gives the same items, in the same order, for any number of nodes and GPUs. Tokens of a stream carry
/// consecutive sequence numbers from 0. The content of a token (hidden state, routes) depends on (seed, stream,
/// sequence) and its place in the run only, never on how tokens are cut into requests.
class Workload {
 public:
  virtual ~Workload() = default;
  virtual std::uint64_t total_tokens() const = 0;
  virtual std::uint64_t total_requests() const = 0;
  /// Item `index` of 0 .. total_requests()-1. Pure.
  virtual WorkItem item(std::uint64_t index) const = 0;
};

/// Errors: kBadConfig (file missing or malformed: file, line, what would do; layers or experts that do not fit the
/// model).
Result<std::unique_ptr<Workload>> make_workload(const Config& config);

}  // namespace troupe::cluster
