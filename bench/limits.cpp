#include "bench/limits.hpp"

#include "gpu/cpu/targets.hpp"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/limits.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

HWY_BEFORE_NAMESPACE();
namespace troupe::bench::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Twelve independent chains, enough for two units of latency four to six. Returns something that depends on all of
/// them.
float fma_loop(std::size_t turns) {
  const hn::ScalableTag<float> d;
  const auto a = hn::Set(d, 0.999F);
  const auto b = hn::Set(d, 1e-3F);
  auto s0 = hn::Set(d, 0.0F);
  auto s1 = hn::Set(d, 1.0F);
  auto s2 = hn::Set(d, 2.0F);
  auto s3 = hn::Set(d, 3.0F);
  auto s4 = hn::Set(d, 4.0F);
  auto s5 = hn::Set(d, 5.0F);
  auto s6 = hn::Set(d, 6.0F);
  auto s7 = hn::Set(d, 7.0F);
  auto s8 = hn::Set(d, 8.0F);
  auto s9 = hn::Set(d, 9.0F);
  auto s10 = hn::Set(d, 10.0F);
  auto s11 = hn::Set(d, 11.0F);
  for (std::size_t i = 0; i < turns; ++i) {
    s0 = hn::MulAdd(s0, a, b);
    s1 = hn::MulAdd(s1, a, b);
    s2 = hn::MulAdd(s2, a, b);
    s3 = hn::MulAdd(s3, a, b);
    s4 = hn::MulAdd(s4, a, b);
    s5 = hn::MulAdd(s5, a, b);
    s6 = hn::MulAdd(s6, a, b);
    s7 = hn::MulAdd(s7, a, b);
    s8 = hn::MulAdd(s8, a, b);
    s9 = hn::MulAdd(s9, a, b);
    s10 = hn::MulAdd(s10, a, b);
    s11 = hn::MulAdd(s11, a, b);
  }
  s0 = hn::Add(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)), hn::Add(hn::Add(s4, s5), hn::Add(s6, s7)));
  s0 = hn::Add(s0, hn::Add(hn::Add(s8, s9), hn::Add(s10, s11)));
  return hn::GetLane(s0);
}

std::size_t fma_flops_per_turn() {
  return 12 * 2 * hn::Lanes(hn::ScalableTag<float>());
}

/// Sums `bytes` (a multiple of 1024) of 32-bit words, prefetching `ahead` bytes on; 0: not at all.
std::uint32_t read_loop(const std::byte* from, std::size_t bytes, std::size_t ahead) {
  const hn::ScalableTag<std::uint32_t> d;
  constexpr std::size_t kStep = HWY_LANES(std::uint32_t);
  const auto* at = reinterpret_cast<const std::uint32_t*>(from);
  auto s0 = hn::Zero(d);
  auto s1 = hn::Zero(d);
  auto s2 = hn::Zero(d);
  auto s3 = hn::Zero(d);
  for (const auto* const end = at + bytes / 4; at < end;) {
    const auto* const line = reinterpret_cast<const std::byte*>(at) + ahead;
    if (ahead > 0) {
      for (std::size_t i = 0; i < 4; ++i) __builtin_prefetch(line + 64 * i, 0, 2);
    }
    for (std::size_t words = 0; words < 64; words += 4 * kStep, at += 4 * kStep) {
      s0 = hn::Add(s0, hn::Load(d, at));
      s1 = hn::Add(s1, hn::Load(d, at + kStep));
      s2 = hn::Add(s2, hn::Load(d, at + 2 * kStep));
      s3 = hn::Add(s3, hn::Load(d, at + 3 * kStep));
    }
  }
  return hn::GetLane(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
}

}  // namespace troupe::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace troupe::bench {
namespace {

HWY_EXPORT(fma_loop);
HWY_EXPORT(fma_flops_per_turn);
HWY_EXPORT(read_loop);

constexpr std::size_t kBuffer = std::size_t{256} << 20U;
/// Prefetch distances of the read loops, in bytes.
constexpr std::size_t kAhead[] = {0, 512, 1024, 2048, 4096, 8192};
constexpr int kReadLoops = static_cast<int>(std::size(kAhead));

/// Keeps the compiler from leaving a result, and so its computation, out.
template <class T>
void keep(const T& value) {
  asm volatile("" : : "r,m"(value) : "memory");
}

/// Speed of `work(turns)`, which returns how much it did: turns are doubled until they fill the time.
template <class Work>
double per_second(double seconds, const Work& work) {
  double amount = 0;
  const double start = thread_seconds();
  for (std::size_t turns = 1;; turns *= 2) {
    amount += work(turns);
    const double took = thread_seconds() - start;
    if (took >= seconds / 2) return amount / took;
  }
}

}  // namespace

double thread_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

Result<std::unique_ptr<Limits>> Limits::make() {
  const auto failed = [](const char* what) {
    return fail(ErrorCode::kIo, std::string("measuring limits: ") + what + " of " + std::to_string(2 * kBuffer) +
                                    " bytes: " + std::strerror(errno));
  };
  const int fd = ::memfd_create("troupe-bench", MFD_CLOEXEC);
  if (fd < 0) return failed("memfd");
  void* mapped = MAP_FAILED;
  if (::ftruncate(fd, 2 * kBuffer) == 0)
    mapped = ::mmap(nullptr, 2 * kBuffer, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) {
    auto error = failed("mapping");
    ::close(fd);
    return error;
  }
  ::close(fd);
  static_cast<void>(::madvise(mapped, 2 * kBuffer, MADV_HUGEPAGE));
  std::memset(mapped, 1, 2 * kBuffer);
  std::unique_ptr<Limits> limits(new Limits());
  limits->memory_ = static_cast<std::byte*>(mapped);
  double best = 0;
  for (int round = 0; round < 2; ++round) {
    for (int loop = 0; loop < kReadLoops; ++loop) {
      const int before = limits->best_read_;
      limits->best_read_ = loop;
      const double speed = limits->memory_read(0.02);
      if (speed > best) {
        best = speed;
      } else {
        limits->best_read_ = before;
      }
    }
  }
  return limits;
}

Limits::~Limits() {
  ::munmap(memory_, 2 * kBuffer);
}

double Limits::fma_peak(double seconds) const {
  const double flops = static_cast<double>(HWY_DYNAMIC_DISPATCH(fma_flops_per_turn)());
  return per_second(seconds,
                    [&](std::size_t turns) {
                      keep(HWY_DYNAMIC_DISPATCH(fma_loop)(turns * 1000));
                      return 1000 * flops * static_cast<double>(turns);
                    }) *
         1e-9;
}

double Limits::memory_read(double seconds) const {
  // Each turn walks on through the buffer, so that none finds its data in a cache.
  constexpr std::size_t kTurnBytes = std::size_t{1} << 20U;
  return per_second(seconds,
                    [&](std::size_t turns) {
                      for (std::size_t i = 0; i < turns; ++i) {
                        keep(HWY_DYNAMIC_DISPATCH(read_loop)(memory_ + read_at_, kTurnBytes, kAhead[best_read_]));
                        read_at_ = (read_at_ + kTurnBytes) % (2 * kBuffer);
                      }
                      return static_cast<double>(turns * kTurnBytes);
                    }) *
         1e-9;
}

double Limits::copy(std::size_t bytes, double seconds) const {
  bytes = std::min(bytes, kBuffer);
  return per_second(seconds,
                    [&](std::size_t turns) {
                      for (std::size_t i = 0; i < turns; ++i) {
                        std::memcpy(memory_ + kBuffer, memory_, bytes);
                        keep(memory_);
                      }
                      return static_cast<double>(turns * bytes);
                    }) *
         1e-9;
}

}  // namespace troupe::bench
#endif
