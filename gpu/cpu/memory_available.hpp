#pragma once

#include <cstdint>
#include <string>

/// How much memory this process can still take before the kernel starts to kill.
namespace troupe::gpu::cpu {

/// Bytes: the least of the machine's MemAvailable and what the limits of the process's control groups (v1 and v2, at
/// every level) leave. Cached file pages that the kernel would drop count as free. No answer from the kernel counts as
/// no limit. root: where /proc and /sys are, "" but for tests.
std::uint64_t available_memory_bytes(const std::string& root = "");

}  // namespace troupe::gpu::cpu
