#pragma once

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include <unistd.h>

#include "messages/error.hpp"

namespace troupe::gpu::cpu {

/// Owns a file descriptor and closes it. -1: none.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
};

/// kIo with `what` and errno's text: "memfd_create: Too many open files".
inline tl::unexpected<Error> fail_errno(const std::string& what, int error = errno) {
  return fail(ErrorCode::kIo, what + ": " + std::system_category().message(error));
}

}  // namespace troupe::gpu::cpu
