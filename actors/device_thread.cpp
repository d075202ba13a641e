#include "actors/device_thread.hpp"

#include <utility>

namespace troupe::actors {

DeviceThread::DeviceThread() : thread_([this] { run(); }) {}

DeviceThread::~DeviceThread() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    jobs_.clear();
  }
  wake_.notify_all();
  thread_.join();
}

Result<void> DeviceThread::post(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    if (stop_) return fail(ErrorCode::kAborted, "device thread: it is stopping");
    if (jobs_.size() >= kMaxJobs)
      return fail(ErrorCode::kLimit, "device thread: " + std::to_string(kMaxJobs) + " jobs are waiting");
    jobs_.push_back(std::move(job));
  }
  wake_.notify_one();
  return {};
}

void DeviceThread::run() {
  for (;;) {
    std::function<void()> job;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
      if (stop_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job();
  }
}

}  // namespace troupe::actors
