#include "cluster/stop_signal.hpp"

#include <csignal>
#include <utility>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace troupe::cluster {
namespace {

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGHUP);
  return set;
}

}  // namespace

void block_stop_signals() {
  const sigset_t set = stop_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

StopWatch::StopWatch(bool watch_stdin, std::function<void(std::string)> on_stop) : on_stop_(std::move(on_stop)) {
  const sigset_t set = stop_signals();
  signals_ = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  wake_ = ::eventfd(0, EFD_CLOEXEC);
  thread_ = std::thread([this, watch_stdin] { run(watch_stdin); });
}

StopWatch::~StopWatch() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(wake_, &one, sizeof one);
  thread_.join();
  ::close(signals_);
  ::close(wake_);
}

void StopWatch::run(bool watch_stdin) {
  pollfd fds[3] = {{wake_, POLLIN, 0}, {signals_, POLLIN, 0}, {watch_stdin ? STDIN_FILENO : -1, POLLIN, 0}};
  for (;;) {
    if (::poll(fds, 3, -1) < 0) continue;
    if (fds[0].revents != 0) return;
    if (fds[1].revents != 0) {
      signalfd_siginfo info{};
      if (::read(signals_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
        on_stop_(info.ssi_signo == SIGINT ? "SIGINT" : info.ssi_signo == SIGHUP ? "SIGHUP" : "SIGTERM");
      }
    }
    if (fds[2].revents != 0) {
      char buffer[256];
      const ssize_t n = ::read(STDIN_FILENO, buffer, sizeof buffer);
      if (n > 0) continue;  // nothing is expected; what comes is ignored
      fds[2].fd = -1;
      on_stop_("standard input has ended: the launcher is done, or gone");
    }
  }
}

}  // namespace troupe::cluster
