#include "scheduling/dispatch.hpp"

namespace troupe::scheduling {

std::string_view to_string(Overflow policy) {
  switch (policy) {
    case Overflow::kWait:
      return "wait";
    case Overflow::kDrop:
      return "drop";
    case Overflow::kNext:
      return "next";
    case Overflow::kReplica:
      return "replica";
  }
  return "unknown";
}

LoadCheck check_load(std::span<const std::uint64_t> rows_per_gpu, double threshold) {
  LoadCheck check;
  double total = 0;  // a sum of integers could wrap
  for (std::size_t g = 0; g < rows_per_gpu.size(); ++g) {
    total += static_cast<double>(rows_per_gpu[g]);
    if (rows_per_gpu[g] > rows_per_gpu[check.busiest]) check.busiest = static_cast<std::uint32_t>(g);
  }
  if (total > 0) {
    const double mean = total / static_cast<double>(rows_per_gpu.size());
    check.imbalance = static_cast<double>(rows_per_gpu[check.busiest]) / mean;
  }
  check.over = check.imbalance > threshold;
  return check;
}

}  // namespace troupe::scheduling
