#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "messages/error.hpp"

namespace troupe::actors {

/// The thread that a device belongs to. A gpu actor only hands jobs to it and gets messages back, so no actor ever
/// blocks on compute or on an exchange. Jobs run one after another, in order.
class DeviceThread {
 public:
  /// Most jobs waiting: one pass and the loading of a placement's experts; more is a fault of the owner.
  static constexpr std::size_t kMaxJobs = 1U << 16;

  DeviceThread();
  /// Drops what has not begun, waits for the job that runs. Whoever destroys it first aborts what that job may wait
  /// for.
  ~DeviceThread();
  DeviceThread(const DeviceThread&) = delete;
  DeviceThread& operator=(const DeviceThread&) = delete;

  /// Errors: kLimit (queue full), kAborted (stopping).
  Result<void> post(std::function<void()> job);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace troupe::actors
