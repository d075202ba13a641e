#include "gpu/cpu/kernels.hpp"

#include <mutex>

#include "gpu/cpu/kernels_units.hpp"
#include "gpu/cpu/targets.hpp"
#include "hwy/highway.h"

namespace troupe::gpu::cpu {
namespace {

/// Bits of the instruction sets that can run here, fastest first. Code for the baseline always can, though Highway's
/// library may have been compiled with another idea of what the baseline is.
std::vector<std::int64_t> runnable_targets() {
  std::vector<std::int64_t> found;
  for (std::int64_t left = (hwy::SupportedTargets() | HWY_STATIC_TARGET) & HWY_TARGETS; left != 0; left &= left - 1) {
    found.push_back(left & ~(left - 1));
  }
  return found;
}

}  // namespace

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  for (const std::int64_t target : runnable_targets()) names.emplace_back(hwy::TargetName(target));
  return names;
}

Result<Kernels> kernels_for(const std::string& instruction_set) {
  std::int64_t chosen = 0;
  std::string known;
  for (const std::int64_t target : runnable_targets()) {
    const std::string name = hwy::TargetName(target);
    if (chosen == 0 && (instruction_set.empty() || instruction_set == name)) chosen = target;
    known += (known.empty() ? "" : ", ") + name;
  }
  if (chosen == 0) {
    return fail(ErrorCode::kBadInput, "instruction set '" + instruction_set +
                                          "' is not one of those this processor and build have: " + known);
  }
  // Highway's choice is one for the process, so it is changed for the length of two look-ups only.
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  Kernels kernels{};
  hwy::GetChosenTarget().Update(chosen);
  product_kernels(kernels);
  row_kernels(kernels);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  return kernels;
}

}  // namespace troupe::gpu::cpu
