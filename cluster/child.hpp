#pragma once

#include <optional>
#include <string>
#include <vector>

#include "messages/error.hpp"

namespace troupe::cluster {

/// A child process with pipes on its standard input, output and error.
/// Thread rule: spawn children from a thread that outlives them: the kernel kills them when that thread ends.
class Child {
 public:
  /// Errors: kIo (names the program and why).
  static Result<Child> spawn(std::string name, const std::vector<std::string>& argv);
  Child(Child&& other) noexcept;
  Child& operator=(Child&& other) noexcept;
  ~Child();

  const std::string& name() const { return name_; }
  int pid() const { return pid_; }
  int out_fd() const { return out_; }
  int err_fd() const { return err_; }
  void close_out();
  void close_err();

  /// All of `text` to its standard input. Errors: kIo (it has gone).
  Result<void> write_input(const std::string& text);
  /// Ends its standard input: a child of the launcher finishes then.
  void close_input();
  void signal(int number) const;
  /// Reaps it if it has ended; true when it has.
  bool ended();
  /// "exit code 1", "killed by signal 9 (Killed)"; empty while it runs.
  std::string how() const;
  bool ended_well() const { return status_.has_value() && *status_ == 0; }

 private:
  Child() = default;
  std::string name_;
  int pid_ = -1;
  int in_ = -1;
  int out_ = -1;
  int err_ = -1;
  std::optional<int> status_;
};

}  // namespace troupe::cluster
