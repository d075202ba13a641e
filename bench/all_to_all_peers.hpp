#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "messages/error.hpp"

/// What bench_all_to_all compares with.
namespace troupe::bench {

/// A block each way between two processes by UCX's tag messages and nothing else, with peer-failure handling on and TCP
/// only: what the library gives before sizes are checked, deadlines kept and aborts heard.
class BareUcx {
 public:
  /// Errors: kIo.
  static Result<std::unique_ptr<BareUcx>> make();
  ~BareUcx();
  BareUcx(const BareUcx&) = delete;
  BareUcx& operator=(const BareUcx&) = delete;

  const std::string& address() const { return address_; }
  Result<void> connect(const std::string& peer);
  /// Sends and receives; polls until both are done.
  Result<void> exchange(std::span<const std::byte> send, std::span<std::byte> receive);

 private:
  BareUcx() = default;
  struct State;
  std::unique_ptr<State> state_;
  std::string address_;
};

/// GB/s of `ucx_perftest -e -t ucp_am_bw` over TCP between two processes of this host; 0 where it is not installed or
/// does not finish.
double ucx_perftest(std::size_t bytes, std::size_t messages);

}  // namespace troupe::bench
