#include "cluster/child.hpp"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace troupe::cluster {
namespace {

struct Pipe {
  int read = -1;
  int write = -1;
  bool open() {
    int fds[2];
    if (::pipe2(fds, O_CLOEXEC) != 0) return false;
    read = fds[0];
    write = fds[1];
    return true;
  }
};

void close_fd(int& fd) {
  if (fd >= 0) ::close(fd);
  fd = -1;
}

}  // namespace

Result<Child> Child::spawn(std::string name, const std::vector<std::string>& argv) {
  Pipe in;
  Pipe out;
  Pipe err;
  Pipe exec_error;
  if (!in.open() || !out.open() || !err.open() || !exec_error.open()) {
    const std::string why = std::strerror(errno);
    for (Pipe* p : {&in, &out, &err, &exec_error}) {
      close_fd(p->read);
      close_fd(p->write);
    }
    return fail(ErrorCode::kIo, "cannot start " + name + ": " + why);
  }
  // Everything that allocates is done before the fork: between fork and exec only async-signal-safe calls are allowed.
  std::vector<char*> args;
  for (const std::string& arg : argv) args.push_back(const_cast<char*>(arg.c_str()));
  args.push_back(nullptr);
  sigset_t none;
  sigemptyset(&none);
  const pid_t parent = ::getpid();

  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(in.read, STDIN_FILENO);
    ::dup2(out.write, STDOUT_FILENO);
    ::dup2(err.write, STDERR_FILENO);
    // A group of its own: Ctrl-C in a terminal reaches the launcher only, which takes the children down in order.
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::signal(SIGPIPE, SIG_DFL);
    ::execvp(args[0], args.data());
    const int code = errno;
    [[maybe_unused]] const ssize_t n = ::write(exec_error.write, &code, sizeof code);
    ::_exit(127);
  }
  const int fork_errno = errno;
  close_fd(in.read);
  close_fd(out.write);
  close_fd(err.write);
  close_fd(exec_error.write);
  Child child;
  child.name_ = std::move(name);
  child.in_ = in.write;
  child.out_ = out.read;
  child.err_ = err.read;
  if (pid < 0) {
    close_fd(exec_error.read);
    return fail(ErrorCode::kIo, "cannot start " + child.name_ + ": " + std::strerror(fork_errno));
  }
  child.pid_ = pid;
  ::setpgid(pid, pid);
  ::fcntl(child.out_, F_SETFL, O_NONBLOCK);
  ::fcntl(child.err_, F_SETFL, O_NONBLOCK);
  // The pipe closes at a successful exec; otherwise it brings the reason.
  int code = 0;
  ssize_t n = 0;
  do {
    n = ::read(exec_error.read, &code, sizeof code);
  } while (n < 0 && errno == EINTR);
  close_fd(exec_error.read);
  if (n == static_cast<ssize_t>(sizeof code)) {
    return fail(ErrorCode::kIo, "cannot start " + child.name_ + ": " + argv[0] + ": " + std::strerror(code));
  }
  return child;
}

Child::Child(Child&& other) noexcept {
  *this = std::move(other);
}

Child& Child::operator=(Child&& other) noexcept {
  std::swap(name_, other.name_);
  std::swap(pid_, other.pid_);
  std::swap(in_, other.in_);
  std::swap(out_, other.out_);
  std::swap(err_, other.err_);
  std::swap(status_, other.status_);
  return *this;
}

Child::~Child() {
  close_fd(in_);
  if (pid_ > 0 && !ended()) {
    ::kill(pid_, SIGKILL);
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
  }
  close_fd(out_);
  close_fd(err_);
}

void Child::close_out() {
  close_fd(out_);
}
void Child::close_err() {
  close_fd(err_);
}
void Child::close_input() {
  close_fd(in_);
}

Result<void> Child::write_input(const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::write(in_, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return fail(ErrorCode::kIo, name_ + ": cannot give it its bootstrap: " + std::strerror(errno));
    done += static_cast<std::size_t>(n);
  }
  return {};
}

void Child::signal(int number) const {
  if (pid_ > 0 && !status_) ::kill(pid_, number);
}

bool Child::ended() {
  if (status_ || pid_ <= 0) return true;
  int status = 0;
  const pid_t got = ::waitpid(pid_, &status, WNOHANG);
  if (got == pid_) status_ = status;
  return status_.has_value();
}

std::string Child::how() const {
  if (!status_) return "";
  if (WIFSIGNALED(*status_)) {
    const int number = WTERMSIG(*status_);
    return "killed by signal " + std::to_string(number) + " (" + ::strsignal(number) + ")";
  }
  return "exit code " + std::to_string(WEXITSTATUS(*status_));
}

}  // namespace troupe::cluster
