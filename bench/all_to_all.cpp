#include "gpu/all_to_all.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <new>
#include <thread>
#include <vector>

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/all_to_all_peers.hpp"
#include "bench/bench.hpp"

namespace troupe::bench {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

struct Size {
  std::size_t bytes;
  const char* name;
};
constexpr std::array<Size, 4> kSizes{Size{std::size_t{8} << 10, "8 KB"}, Size{std::size_t{256} << 10, "256 KB"},
                                     Size{std::size_t{2} << 20, "2 MB"}, Size{std::size_t{16} << 20, "16 MB"}};
constexpr std::uint32_t kRanks = 2;

/// What the two processes and the one that waits for them share.
struct Board {
  struct Post {
    std::array<char, 4096> address;
    std::array<char, 4096> bare_address;
    std::array<std::size_t, 4> lengths;  ///< host key, socket name, UCX address; bare UCX address
    std::array<char, 512> error;
    std::array<double, kSizes.size()> exchange_us;
    std::array<double, kSizes.size()> copy_us;
    std::array<double, kSizes.size()> bare_us;
  };
  std::atomic<std::uint32_t> arrived;
  std::array<std::atomic<std::uint32_t>, kRanks> failed;
  std::array<Post, kRanks> posts;
};

class SharedBoard {
 public:
  SharedBoard() : memory_(::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {}
  ~SharedBoard() {
    if (memory_ != MAP_FAILED) ::munmap(memory_, sizeof(Board));
  }
  SharedBoard(const SharedBoard&) = delete;
  SharedBoard& operator=(const SharedBoard&) = delete;
  bool there() const { return memory_ != MAP_FAILED; }
  Board& board() const { return *static_cast<Board*>(memory_); }

 private:
  void* memory_;
};

double median(std::vector<double>& times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

/// One of the two processes.
class Worker {
 public:
  Worker(Board& board, std::uint32_t self, gpu::BulkTransport transport, const Options& options,
         std::span<const std::size_t> sizes)
      : board_(board), self_(self), transport_(transport), options_(options), sizes_(sizes) {}

  Result<void> run();

 private:
  void pin() const;
  bool meet();
  Result<void> connect();
  Result<void> measure(std::size_t index);
  Result<double> exchange_us(std::size_t bytes);
  Result<double> bare_us(std::size_t bytes);
  double copy_us(std::size_t bytes, std::size_t turn);

  Board& board_;
  const std::uint32_t self_;
  const gpu::BulkTransport transport_;
  const Options& options_;
  const std::span<const std::size_t> sizes_;
  std::uint32_t meetings_ = 0;
  std::unique_ptr<gpu::BulkEndpoint> endpoint_;
  std::unique_ptr<gpu::AllToAll> all_;
  std::unique_ptr<BareUcx> bare_;
  std::vector<std::byte> block_;
  std::vector<std::byte> received_;
  std::uint64_t step_ = 0;
};

// Each on a core of its own where there are two, so that "the same cores" holds for all that is compared.
void Worker::pin() const {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < 2) return;
  std::uint32_t seen = 0;
  for (std::size_t core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed) || seen++ != self_) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    ::sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

// False: the other one has failed or is gone.
bool Worker::meet() {
  ++board_.arrived;
  ++meetings_;
  const auto deadline = Clock::now() + 60s;
  while (board_.arrived < meetings_ * kRanks) {
    if (board_.failed[1 - self_] != 0 || Clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

Result<void> Worker::connect() {
  gpu::BulkOptions options;
  options.transport = transport_;
  auto endpoint = gpu::make_bulk_endpoint(options, "bench");
  if (!endpoint) return tl::unexpected(endpoint.error());
  endpoint_ = std::move(*endpoint);
  const messages::BulkAddress own = endpoint_->address();
  Board::Post& post = board_.posts[self_];
  const std::string all_of_it = own.host_key + own.shm_name + own.ucx_address;
  if (all_of_it.size() > post.address.size())
    return fail(ErrorCode::kLimit, "a bulk address is too long for the bench");
  std::memcpy(post.address.data(), all_of_it.data(), all_of_it.size());
  post.lengths = {own.host_key.size(), own.shm_name.size(), own.ucx_address.size(), 0};
  if (transport_ == gpu::BulkTransport::kUcx) {
    auto bare = BareUcx::make();
    if (!bare) return tl::unexpected(bare.error());
    bare_ = std::move(*bare);
    post.lengths[3] = std::min(bare_->address().size(), post.bare_address.size());
    std::memcpy(post.bare_address.data(), bare_->address().data(), post.lengths[3]);
  }
  if (!meet()) return fail(ErrorCode::kUnavailable, "the other process is gone");
  std::vector<messages::BulkAddress> addresses;
  for (const Board::Post& from : board_.posts) {
    const std::string text(from.address.data(), from.lengths[0] + from.lengths[1] + from.lengths[2]);
    addresses.push_back({text.substr(0, from.lengths[0]), text.substr(from.lengths[0], from.lengths[1]),
                         text.substr(from.lengths[0] + from.lengths[1])});
  }
  auto all = endpoint_->connect(View(1), Rank(self_), addresses, Clock::now() + 60s);
  if (!all) return tl::unexpected(all.error());
  all_ = std::move(*all);
  if (bare_) {
    const Board::Post& peer = board_.posts[1 - self_];
    if (auto ok = bare_->connect(std::string(peer.bare_address.data(), peer.lengths[3])); !ok) return ok;
  }
  return {};
}

Result<double> Worker::exchange_us(std::size_t bytes) {
  std::array<gpu::SendBlock, kRanks> sends;
  std::array<std::size_t, kRanks> receive{};
  sends[1 - self_].base = std::span(block_).first(bytes);
  receive[1 - self_] = bytes;
  const auto begin = Clock::now();
  auto got = all_->exchange({StepId{PassNumber(++step_), 0}, 0}, sends, receive, begin + 60s);
  if (!got) return tl::unexpected(got.error());
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

Result<double> Worker::bare_us(std::size_t bytes) {
  const auto begin = Clock::now();
  auto ok = bare_->exchange(std::span(block_).first(bytes), std::span(received_).first(bytes));
  if (!ok) return tl::unexpected(ok.error());
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

// From the same block to two places in turn, as an inbox has them; the other process does the same meanwhile.
double Worker::copy_us(std::size_t bytes, std::size_t turn) {
  std::byte* to = received_.data() + (turn % 2) * (received_.size() / 2);
  const auto begin = Clock::now();
  std::memcpy(to, block_.data(), bytes);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

// What is compared takes turns, so that a change of the machine's load meets all of it alike.
Result<void> Worker::measure(std::size_t index) {
  const std::size_t bytes = kSizes[index].bytes;
  const std::size_t per_turn = std::max<std::size_t>(2, (std::size_t{4} << 20) / bytes);
  std::vector<double> exchanges;
  std::vector<double> copies;
  std::vector<double> bares;
  const auto start = Clock::now();
  for (std::size_t turn = 0;; ++turn) {
    const bool warm = turn > 0;
    if (!meet()) return fail(ErrorCode::kUnavailable, "the other process is gone");
    for (std::size_t i = 0; i < per_turn; ++i) {
      auto us = exchange_us(bytes);
      if (!us) return tl::unexpected(us.error());
      if (warm) exchanges.push_back(*us);
    }
    if (!meet()) return fail(ErrorCode::kUnavailable, "the other process is gone");
    for (std::size_t i = 0; i < per_turn; ++i) {
      const double us = copy_us(bytes, i);
      if (warm) copies.push_back(us);
    }
    if (bare_) {
      if (!meet()) return fail(ErrorCode::kUnavailable, "the other process is gone");
      for (std::size_t i = 0; i < per_turn; ++i) {
        auto us = bare_us(bytes);
        if (!us) return tl::unexpected(us.error());
        if (warm) bares.push_back(*us);
      }
    }
    // Rank 0 decides for both when it is enough; the word travels in an exchange of its own.
    const std::byte more{static_cast<unsigned char>(
        turn < 3 || std::chrono::duration<double>(Clock::now() - start).count() < options_.seconds_per_case)};
    std::array<gpu::SendBlock, kRanks> sends;
    std::array<std::size_t, kRanks> receive{};
    if (self_ == 0) sends[1].base = std::span(&more, 1);
    if (self_ == 1) receive[0] = 1;
    auto got = all_->exchange({StepId{PassNumber(++step_), 0}, 1}, sends, receive, Clock::now() + 60s);
    if (!got) return tl::unexpected(got.error());
    if ((self_ == 0 ? more : (*got)[0][0]) == std::byte{0}) break;
  }
  Board::Post& post = board_.posts[self_];
  post.exchange_us[index] = median(exchanges);
  post.copy_us[index] = median(copies);
  post.bare_us[index] = bares.empty() ? 0 : median(bares);
  return {};
}

Result<void> Worker::run() {
  pin();
  block_.assign(kSizes.back().bytes, std::byte{1});
  received_.assign(2 * kSizes.back().bytes, std::byte{2});
  if (auto ok = connect(); !ok) return ok;
  for (const std::size_t index : sizes_) {
    if (auto ok = measure(index); !ok) return ok;
  }
  meet();  // so that neither closes its end while the other still reads
  return {};
}

/// Forks the two processes and waits for them.
Result<void> run_pair(Board& board, gpu::BulkTransport transport, const Options& options,
                      std::span<const std::size_t> sizes) {
  std::array<pid_t, kRanks> pids{};
  for (std::uint32_t self = 0; self < kRanks; ++self) {
    pids[self] = ::fork();
    if (pids[self] == 0) {
      auto ok = Worker(board, self, transport, options, sizes).run();
      if (!ok) {
        ok.error().message.copy(board.posts[self].error.data(), board.posts[self].error.size() - 1);
        board.failed[self] = 1;
      }
      ::_exit(0);
    }
    if (pids[self] < 0) board.failed[self] = 1;
  }
  for (std::uint32_t self = 0; self < kRanks; ++self) {
    int status = 0;
    if (pids[self] > 0) ::waitpid(pids[self], &status, 0);
    if (pids[self] > 0 && !WIFEXITED(status)) board.failed[self] = 1;
  }
  for (std::uint32_t self = 0; self < kRanks; ++self)
    if (board.failed[self] != 0)
      return fail(ErrorCode::kIo,
                  "all-to-all bench, rank " + std::to_string(self) + ": " +
                      (board.posts[self].error[0] != 0 ? board.posts[self].error.data() : "its process died"));
  return {};
}

double gb_per_s(std::size_t bytes, double us) {
  return us > 0 ? static_cast<double>(bytes) / us / 1e3 : 0;
}

bool wanted(const Options& options, const std::string& name) {
  return options.only.empty() || std::any_of(options.only.begin(), options.only.end(), [&](const std::string& part) {
           return name.find(part) != std::string::npos;
         });
}

}  // namespace

/// Each of two processes sends a block to the other and waits for the other's: bytes one way by the median time of the
/// slower. Shared memory against a memcpy of the block on the same two cores at the same time; UCX against UCX alone
/// doing the same, and beside it the stream rate of ucx_perftest, which sends one way only.
Result<std::vector<Row>> bench_all_to_all(const Options& options) {
  std::vector<Row> rows;
  for (const gpu::BulkTransport transport : {gpu::BulkTransport::kShm, gpu::BulkTransport::kUcx}) {
    const bool shm = transport == gpu::BulkTransport::kShm;
    const std::string kind = shm ? "all-to-all shared memory " : "all-to-all UCX ";
    std::vector<std::size_t> sizes;
    for (std::size_t i = 0; i < kSizes.size(); ++i)
      if (wanted(options, kind + kSizes[i].name)) sizes.push_back(i);
    if (sizes.empty()) continue;
    const SharedBoard shared;
    if (!shared.there()) return fail(ErrorCode::kIo, "no shared memory for the all-to-all bench");
    Board& board = shared.board();
    if (auto ok = run_pair(board, transport, options, sizes); !ok) return tl::unexpected(ok.error());
    for (const std::size_t i : sizes) {
      const auto slower = [&](const auto Board::Post::*times) {
        return gb_per_s(kSizes[i].bytes, std::max((board.posts[0].*times)[i], (board.posts[1].*times)[i]));
      };
      Row row;
      row.name = kind + kSizes[i].name;
      row.unit = "GB/s";
      row.value = slower(&Board::Post::exchange_us);
      row.limit = slower(shm ? &Board::Post::copy_us : &Board::Post::bare_us);
      row.limit_name = shm ? "memcpy" : "UCX alone";
      if (!shm) {
        row.peer =
            ucx_perftest(kSizes[i].bytes, std::max<std::size_t>(50, (std::size_t{256} << 20) / kSizes[i].bytes / 4));
        row.peer_name = row.peer > 0 ? "ucx_perftest -e" : "";
      }
      row.ratio = row.limit > 0 ? row.value / row.limit : 0;
      rows.push_back(row);
    }
  }
  return rows;
}

}  // namespace troupe::bench
