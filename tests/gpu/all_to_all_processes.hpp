#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "tests/gpu/all_to_all_support.hpp"

/// Ranks as processes: forked before any thread is made, each with its own endpoint, joined to the test by a socket.
namespace troupe::gpu::testing {

/// What a rank's process can do.
class Child {
 public:
  Child(std::uint32_t number, int fd) : rank(number), fd_(fd) {}
  const std::uint32_t rank;

  void tell(const std::string& message) const;  ///< to the test
  std::string hear() const;                     ///< from the test; ends the process if the test is gone
  /// Hands its own addresses in and gets those of all ranks.
  std::vector<messages::BulkAddress> meet(const messages::BulkAddress& own) const;

 private:
  int fd_;
};

/// The processes, as the test sees them. The destructor kills and reaps what is left.
class Processes {
 public:
  /// body's result is the process's verdict: empty where all is well.
  Processes(std::uint32_t ranks, std::function<std::string(Child&)> body);
  ~Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  std::uint32_t size() const { return static_cast<std::uint32_t>(fds_.size()); }
  pid_t pid(std::uint32_t rank) const { return pids_[rank]; }
  void tell(std::uint32_t rank, const std::string& message) const;
  std::string hear(std::uint32_t rank) const;  ///< the next message, "(gone)" or "(silent)"
  void signal(std::uint32_t rank, int number) const;
  /// Collects all addresses and hands the list to all; the other half of Child::meet.
  std::vector<messages::BulkAddress> introduce() const;
  std::string verdict(std::uint32_t rank);  ///< waits for its end
  std::vector<std::string> verdicts();      ///< of all

 private:
  std::vector<pid_t> pids_;
  std::vector<int> fds_;
};

/// Numbers that must not grow: open descriptors and mapped regions of this process.
std::size_t count_fds();
std::size_t count_maps();
/// TCP ports that a process listens on.
std::vector<std::uint16_t> listening_ports(pid_t pid);
/// Names in /dev/shm that Troupe or UCX could have left.
std::vector<std::string> shared_segments();

}  // namespace troupe::gpu::testing
