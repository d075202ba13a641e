#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench.hpp"
#include "cluster/wire.hpp"

namespace troupe::bench {
namespace {

using Clock = std::chrono::steady_clock;
using cluster::CurveKeys;
using cluster::Wire;

constexpr std::size_t kPayload = 270;  // a usual control message
constexpr int kWindow = 1000;          // one-way messages under way

/// A child process that runs `body` and is killed and reaped with its owner.
class Fork {
 public:
  template <class Body>
  explicit Fork(Body body) {
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      body();
      ::_exit(0);
    }
  }
  ~Fork() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Fork(const Fork&) = delete;
  Fork& operator=(const Fork&) = delete;

 private:
  pid_t pid_;
};

bool read_all(int fd, void* data, std::size_t size) {
  auto* at = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t n = ::read(fd, at, size);
    if (n <= 0) return false;
    at += n;
    size -= static_cast<std::size_t>(n);
  }
  return true;
}

/// The floor: two processes and a bare TCP connection on loopback, 270 bytes each way. Round trips per second.
Result<double> tcp_round_trips(double seconds) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (listener < 0 || ::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener, 1) != 0 || ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    if (listener >= 0) ::close(listener);
    return fail(ErrorCode::kIo, "bench control: cannot listen on loopback");
  }
  const Fork echo([&] {
    const int fd = ::accept(listener, nullptr, nullptr);
    const int one = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    char buffer[kPayload];
    while (read_all(fd, buffer, sizeof buffer) && ::write(fd, buffer, sizeof buffer) > 0) {
    }
  });
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int one = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  std::uint64_t trips = 0;
  double spent = 0;
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
    char buffer[kPayload] = {};
    const auto start = Clock::now();
    while (spent<seconds&& ::write(fd, buffer, sizeof buffer)> 0 && read_all(fd, buffer, sizeof buffer)) {
      ++trips;
      spent = std::chrono::duration<double>(Clock::now() - start).count();
    }
  }
  ::close(fd);
  ::close(listener);
  if (trips == 0) return fail(ErrorCode::kIo, "bench control: the TCP echo did not answer");
  return static_cast<double>(trips) / spent;
}

/// Counts what comes back, and lets a sender wait for it.
class Counter {
 public:
  void add() {
    const std::lock_guard lock(mutex_);
    ++count_;
    come_.notify_one();
  }
  bool wait_for(std::uint64_t count, std::chrono::seconds limit) {
    std::unique_lock lock(mutex_);
    return come_.wait_for(lock, limit, [&] { return count_ >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable come_;
  std::uint64_t count_ = 0;
};

messages::Frame make_frame(bool ping) {
  messages::Frame frame;
  frame.envelope.from = "client";
  frame.envelope.to = "membership";
  if (ping) {
    frame.payload = messages::Ping{1};
  } else {
    frame.payload = messages::Leave{"client", std::string(kPayload - 60, 'x')};
  }
  return frame;
}

struct Rates {
  double round_trips = 0;
  double one_way = 0;
};

/// Round trips and one-way messages per second between two processes over Troupe's own wire.
Result<Rates> wire_rates(bool curve, double seconds) {
  const CurveKeys server = curve ? cluster::make_curve_keys() : CurveKeys{};
  const CurveKeys client = curve ? cluster::make_curve_keys() : CurveKeys{};
  int pipe_fds[2];
  if (::pipe(pipe_fds) != 0) return fail(ErrorCode::kIo, "bench control: no pipe");
  const Fork peer([&] {
    cluster::WireOptions options;
    options.self = "server";
    options.keys = server;
    options.allowed_keys = {{"client", client.public_key}};
    std::atomic<Wire*> wire{nullptr};
    std::uint64_t one_way = 0;
    auto started = Wire::start(options, [&](const messages::Frame& frame, const cluster::PeerHandle& from) {
      // A Ping is answered; of one-way messages each window's last, so that the sender never runs away.
      const bool ping = std::holds_alternative<messages::Ping>(frame.payload);
      if (!ping && ++one_way % kWindow != 0) return;
      messages::Frame answer;
      answer.envelope.from = "server";
      answer.payload = messages::Pong{1};
      while (wire.load() == nullptr) ::usleep(100);
      (void)wire.load()->reply(from, std::move(answer));
    });
    std::string endpoint = started ? (*started)->endpoint() : std::string();
    if (started) wire = started->get();
    endpoint.resize(64, '\0');
    [[maybe_unused]] const ssize_t n = ::write(pipe_fds[1], endpoint.data(), endpoint.size());
    ::pause();
  });
  char text[65] = {};
  const bool told = read_all(pipe_fds[0], text, 64);
  ::close(pipe_fds[0]);
  ::close(pipe_fds[1]);
  if (!told || text[0] == '\0') return fail(ErrorCode::kIo, "bench control: the peer process did not listen");

  Counter counter;
  cluster::WireOptions options;
  options.self = "client";
  options.listen = false;
  options.keys = client;
  auto wire = Wire::start(options, [&](const messages::Frame&, const cluster::PeerHandle&) { counter.add(); });
  if (!wire) return tl::unexpected(wire.error());
  if (auto done = (*wire)->connect("server", text, server.public_key); !done) return tl::unexpected(done.error());

  constexpr std::chrono::seconds kLimit{10};
  std::uint64_t answers = 0;
  const auto trip = [&]() -> bool {
    return (*wire)->send("server", make_frame(true)).has_value() && counter.wait_for(++answers, kLimit);
  };
  if (!trip()) return fail(ErrorCode::kDeadline, "bench control: the peer process did not answer");
  Rates rates;
  auto start = Clock::now();
  double spent = 0;
  std::uint64_t n = 0;
  for (; spent < seconds; spent = std::chrono::duration<double>(Clock::now() - start).count(), ++n) {
    if (!trip()) return fail(ErrorCode::kDeadline, "bench control: a round trip took longer than 10 s");
  }
  rates.round_trips = static_cast<double>(n) / spent;
  start = Clock::now();
  spent = 0;
  n = 0;
  const std::uint64_t before = answers;
  while (spent < seconds) {
    for (int i = 0; i < kWindow; ++i) {
      if (auto sent = (*wire)->send("server", make_frame(false)); !sent) return tl::unexpected(sent.error());
    }
    n += kWindow;
    // At most two windows are under way: fewer than the high-water mark.
    if (++answers > before + 1 && !counter.wait_for(answers - 1, kLimit))
      return fail(ErrorCode::kDeadline, "bench control: the peer stopped reading");
    spent = std::chrono::duration<double>(Clock::now() - start).count();
  }
  if (!counter.wait_for(answers, kLimit)) return fail(ErrorCode::kDeadline, "bench control: the peer stopped reading");
  rates.one_way = static_cast<double>(n) / std::chrono::duration<double>(Clock::now() - start).count();
  return rates;
}

}  // namespace

Result<std::vector<Row>> bench_control(const Options& options) {
  auto tcp = tcp_round_trips(options.seconds_per_case);
  if (!tcp) return tl::unexpected(tcp.error());
  auto curve = wire_rates(true, options.seconds_per_case);
  if (!curve) return tl::unexpected(curve.error());
  auto plain = wire_rates(false, options.seconds_per_case);
  if (!plain) return tl::unexpected(plain.error());
  std::vector<Row> rows;
  rows.push_back({"round trips, CURVE", curve->round_trips, "1/s", *tcp, "bare TCP ping-pong", plain->round_trips,
                  "the same wire without CURVE", curve->round_trips / *tcp});
  rows.push_back({"one-way 270 B, CURVE", curve->one_way, "1/s", plain->one_way, "without CURVE", 0, "",
                  curve->one_way / plain->one_way});
  return rows;
}

}  // namespace troupe::bench
