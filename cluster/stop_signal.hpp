#pragma once

#include <functional>
#include <string>
#include <thread>

namespace troupe::cluster {

/// Watches for the ends that come from outside: end of standard input (the launcher is gone) and SIGTERM or SIGINT.
/// `on_stop` is called once, on the watcher's thread, with the reason.
class StopWatch {
 public:
  /// watch_stdin: children of the launcher. Signals are blocked in the calling thread and all it makes later, so make
  /// this first.
  StopWatch(bool watch_stdin, std::function<void(std::string)> on_stop);
  ~StopWatch();
  StopWatch(const StopWatch&) = delete;
  StopWatch& operator=(const StopWatch&) = delete;

 private:
  void run(bool watch_stdin);
  std::function<void(std::string)> on_stop_;
  int signals_ = -1;
  int wake_ = -1;
  std::thread thread_;
};

/// SIGTERM and SIGINT are held for StopWatch from now on; SIGPIPE is ignored. Called first in a process's main.
void block_stop_signals();

}  // namespace troupe::cluster
