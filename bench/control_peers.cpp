#include "bench/control_peers.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.hpp>

#include "cluster/wire.hpp"

namespace troupe::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Message = std::array<char, kMessageBytes>;

/// Of how many one-way messages the receiver answers the last.
constexpr int kWindow = 1'000;
constexpr int kDeadlineMs = 10'000;
// The first byte of a message.
constexpr char kQuestion = 'q';
constexpr char kTelling = 't';

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

tl::unexpected<Error> io(const std::string& what) {
  return fail(ErrorCode::kIo, "bench control: " + what + ": " + std::strerror(errno));
}

bool read_all(int fd, char* data, std::size_t size) {
  while (size > 0) {
    pollfd item{fd, POLLIN, 0};
    if (::poll(&item, 1, kDeadlineMs) != 1) return false;
    const ssize_t got = ::read(fd, data, size);
    if (got <= 0) return false;
    data += got;
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

bool write_all(int fd, const char* data, std::size_t size) {
  while (size > 0) {
    const ssize_t put = ::send(fd, data, size, MSG_NOSIGNAL);
    if (put <= 0) return false;
    data += put;
    size -= static_cast<std::size_t>(put);
  }
  return true;
}

void no_delay(int fd) {
  const int one = 1;
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

void tcp_serve(const Tell& tell) {
  const Descriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(listener.get(), generic, length) != 0 || ::listen(listener.get(), 1) != 0 ||
      ::getsockname(listener.get(), generic, &length) != 0) {
    return tell("");
  }
  tell(std::to_string(ntohs(address.sin_port)));
  const Descriptor peer(::accept(listener.get(), nullptr, nullptr));
  no_delay(peer.get());
  Message message{};
  std::uint64_t one_way = 0;
  while (read_all(peer.get(), message.data(), message.size())) {
    if (message[0] == kTelling && ++one_way % kWindow != 0) continue;
    if (!write_all(peer.get(), message.data(), message.size())) break;
  }
}

void zmq_serve(const cluster::CurveKeys& keys, const Tell& tell) {
  zmq::context_t context(1);
  zmq::socket_t router(context, zmq::socket_type::router);
  if (!keys.secret_key.empty()) {
    router.set(zmq::sockopt::curve_server, true);
    router.set(zmq::sockopt::curve_secretkey, keys.secret_key);
  }
  router.bind("tcp://127.0.0.1:*");
  tell(router.get(zmq::sockopt::last_endpoint));
  std::uint64_t one_way = 0;
  for (;;) {
    zmq::message_t id;
    zmq::message_t message;
    if (!router.recv(id) || !router.recv(message)) return;
    if (*message.data<char>() == kTelling && ++one_way % kWindow != 0) continue;
    (void)router.send(id, zmq::send_flags::sndmore);
    (void)router.send(message, zmq::send_flags::none);
  }
}

/// Both rates of a peer that `send`s messages and waits for answers by `receive`.
Result<Rates> rates_of(double seconds, const std::function<bool(const Message&)>& send,
                       const std::function<bool()>& receive) {
  const auto lost = [] { return fail(ErrorCode::kDeadline, "bench control: a peer process stopped answering"); };
  Message message{};
  message[0] = kQuestion;
  const auto trip = [&]() -> Result<void> {
    if (send(message) && receive()) return {};
    return lost();
  };
  if (auto first = rate_over(0, 1, trip); !first) return tl::unexpected<Error>(first.error());  // connects
  const auto trips = rate_over(seconds, 1, trip);
  if (!trips) return tl::unexpected<Error>(trips.error());
  message[0] = kTelling;
  bool under_way = false;  // one window
  const auto one_way = rate_over(seconds, kWindow, [&]() -> Result<void> {
    for (int i = 0; i < kWindow; ++i) {
      if (!send(message)) return lost();
    }
    if (std::exchange(under_way, true) && !receive()) return lost();
    return {};
  });
  if (!one_way) return tl::unexpected<Error>(one_way.error());
  return Rates{*trips, *one_way};
}

}  // namespace

Result<double> rate_over(double seconds, int each, const std::function<Result<void>()>& batch) {
  const auto start = Clock::now();
  std::uint64_t count = 0;
  double spent = 0;
  do {
    if (auto done = batch(); !done) return tl::unexpected<Error>(done.error());
    count += static_cast<std::uint64_t>(each);
    spent = std::chrono::duration<double>(Clock::now() - start).count();
  } while (spent < seconds);
  return static_cast<double>(count) / spent;
}

Result<Rates> tcp_rates(double seconds) {
  auto child = Child::start(tcp_serve);
  if (!child) return tl::unexpected<Error>(child.error());
  const Descriptor connection(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(std::stoi((*child)->told())));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(connection.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return io("cannot connect on loopback");
  }
  no_delay(connection.get());
  Message answer{};
  return rates_of(
      seconds, [&](const Message& message) { return write_all(connection.get(), message.data(), message.size()); },
      [&] { return read_all(connection.get(), answer.data(), answer.size()); });
}

Result<Rates> zmq_rates(bool curve, double seconds) {
  const auto server = curve ? cluster::make_curve_keys() : cluster::CurveKeys{};
  const auto client = curve ? cluster::make_curve_keys() : cluster::CurveKeys{};
  auto child = Child::start([&](const Tell& tell) {
    try {
      zmq_serve(server, tell);
    } catch (const zmq::error_t&) {
      tell("");
    }
  });
  if (!child) return tl::unexpected<Error>(child.error());
  try {
    zmq::context_t context(1);
    zmq::socket_t dealer(context, zmq::socket_type::dealer);
    dealer.set(zmq::sockopt::linger, 0);
    dealer.set(zmq::sockopt::sndtimeo, kDeadlineMs);
    dealer.set(zmq::sockopt::rcvtimeo, kDeadlineMs);
    if (curve) {
      dealer.set(zmq::sockopt::curve_publickey, client.public_key);
      dealer.set(zmq::sockopt::curve_secretkey, client.secret_key);
      dealer.set(zmq::sockopt::curve_serverkey, server.public_key);
    }
    dealer.connect((*child)->told());
    zmq::message_t answer;
    return rates_of(
        seconds,
        [&](const Message& message) { return dealer.send(zmq::buffer(message), zmq::send_flags::none).has_value(); },
        [&] { return dealer.recv(answer).has_value(); });
  } catch (const zmq::error_t& error) {
    return fail(ErrorCode::kIo, std::string("bench control: ZeroMQ: ") + error.what());
  }
}

void wait_to_be_killed() {
  for (;;) ::pause();
}

Result<std::unique_ptr<Child>> Child::start(const std::function<void(const Tell&)>& body) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return io("no pipe");
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {
    (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(0);  // it died before prctl
    ::close(ends[0]);
    body([&](const std::string& text) {
      std::array<char, 256> line{};
      std::memcpy(line.data(), text.data(), std::min(text.size(), line.size() - 1));
      [[maybe_unused]] const ssize_t put = ::write(ends[1], line.data(), line.size());
    });
    ::_exit(0);
  }
  ::close(ends[1]);
  const Descriptor reading(ends[0]);
  if (pid < 0) return io("no process");
  std::unique_ptr<Child> child(new Child(pid));
  std::array<char, 256> line{};
  if (!read_all(reading.get(), line.data(), line.size()) || line[0] == '\0') {
    return fail(ErrorCode::kUnavailable, "bench control: a peer process did not come up");
  }
  child->told_ = line.data();
  return child;
}

Child::~Child() {
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

}  // namespace troupe::bench
