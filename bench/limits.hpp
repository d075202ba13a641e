#pragma once

#include <cstddef>
#include <memory>

#include "messages/error.hpp"

/// What one core of this machine can do at most, measured: the denominators of all ratios.
namespace troupe::bench {

/// Time that this thread has spent on a processor, in seconds. Other programs on the machine take it away from the wall
/// clock, not from this one; so it is what single-threaded kernels are timed with.
double thread_seconds();

/// Measures limits again whenever asked: on a shared machine they move, so ask right beside what is compared with them.
/// Thread rule: one thread at a time; each call takes about `seconds`, and the larger limit of several slices is
/// returned.
class Limits {
 public:
  /// Takes 2 x 256 MiB of shared memory (memfd), the kind that expert weights lie in.
  /// Errors: kIo (the memory is not there; names the bytes).
  static Result<std::unique_ptr<Limits>> make();
  ~Limits();
  Limits(const Limits&) = delete;
  Limits& operator=(const Limits&) = delete;

  /// f32 fused multiply-adds on registers, by the widest instruction set; two operations each. GFLOP/s.
  double fma_peak(double seconds = 0.01) const;
  /// A sum over a buffer far larger than the caches, by the best of several vector loops. GB/s.
  double memory_read(double seconds = 0.02) const;
  /// memcpy of blocks of `bytes` (at most 256 MiB) between buffers that are in the cache where they fit. GB/s copied.
  double copy(std::size_t bytes, double seconds = 0.02) const;

 private:
  Limits() = default;
  std::byte* memory_ = nullptr;
  int best_read_ = 0;                ///< which read loop was the fastest
  mutable std::size_t read_at_ = 0;  ///< where the next read begins
};

}  // namespace troupe::bench
