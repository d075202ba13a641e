#define BOOST_TEST_MODULE all_to_all_network
#include <cstdlib>
#include <sstream>

#include <arpa/inet.h>
#include <boost/test/unit_test.hpp>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/gpu/all_to_all_processes.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::gpu::testing;

namespace {

bool shell(const std::string& command) {
  return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
}

/// Into a network namespace of its own. UCX finds devices in /sys, which shows those of the namespace that mounted it.
bool move_out() {
  return ::unshare(CLONE_NEWNET | CLONE_NEWNS) == 0 &&
         ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("sysfs", "/sys", "sysfs", 0, nullptr) == 0 && shell("ip link set lo up");
}

/// Two ranks, each in a network namespace of its own, joined by a pair of virtual devices: two hosts, as far as
/// transports can tell. The namespaces have no names, so they end with their processes, and the devices with them.
class TwoHosts {
 public:
  explicit TwoHosts(std::function<std::string(Child&, BulkEndpoint&, const std::vector<messages::BulkAddress>&)> body)
      : processes_(2, [body = std::move(body)](Child& child) -> std::string {
          child.tell(move_out() ? "apart" : "not permitted");
          child.hear();  // the devices are there
          const std::string device = "troupe" + std::to_string(child.rank);
          const bool up = shell("ip addr add 10.77.0." + std::to_string(child.rank + 1) + "/24 dev " + device) &&
                          shell("ip link set " + device + " up");
          child.tell(up ? "up" : "not permitted");
          child.hear();
          // Both ends are up; the link itself a moment later, and only then does UCX take the device.
          const std::string state = "grep -q up /sys/class/net/" + device + "/operstate";
          for (const auto limit = soon_enough(); !shell(state) && Clock::now() < limit;) std::this_thread::yield();
          auto endpoint = make_bulk_endpoint({}, "secret");
          if (!endpoint) {
            child.meet({});
            return endpoint.error().message;
          }
          return body(child, **endpoint, child.meet((*endpoint)->address()));
        }) {
    bool good = processes_.hear(0) == "apart";
    good = processes_.hear(1) == "apart" && good;
    const auto end = [&](std::uint32_t r) {
      return "name troupe" + std::to_string(r) + " netns " + std::to_string(processes_.pid(r));
    };
    good = good && shell("ip link add " + end(0) + " type veth peer " + end(1));
    for (std::uint32_t r = 0; r < 2; ++r) processes_.tell(r, "joined");
    for (std::uint32_t r = 0; r < 2; ++r) good = processes_.hear(r) == "up" && good;
    permitted_ = good;
    if (!good) return;
    for (std::uint32_t r = 0; r < 2; ++r) processes_.tell(r, "go");
    addresses_ = processes_.introduce();
  }

  bool permitted() const {
    if (!permitted_) BOOST_TEST_MESSAGE("skipped: network namespaces need root and iproute2");
    return permitted_;
  }
  Processes& processes() { return processes_; }
  const std::vector<messages::BulkAddress>& addresses() const { return addresses_; }

 private:
  Processes processes_;
  std::vector<messages::BulkAddress> addresses_;
  bool permitted_ = false;
};

/// Whether a TCP connection from one address to another comes about while nobody would expect it to take longer.
bool reaches(const std::string& from, const std::string& to, std::uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_in own{};
  own.sin_family = AF_INET;
  ::inet_pton(AF_INET, from.c_str(), &own.sin_addr);
  sockaddr_in peer = own;
  ::inet_pton(AF_INET, to.c_str(), &peer.sin_addr);
  peer.sin_port = htons(port);
  pollfd event{fd, POLLOUT, 0};
  const bool there = ::bind(fd, reinterpret_cast<sockaddr*>(&own), sizeof own) == 0 &&
                     (::connect(fd, reinterpret_cast<sockaddr*>(&peer), sizeof peer) == 0 || errno == EINPROGRESS) &&
                     ::poll(&event, 1, 300) == 1 && (event.revents & (POLLERR | POLLHUP)) == 0;
  ::close(fd);
  return there;
}

}  // namespace

BOOST_AUTO_TEST_CASE(ranks_on_two_hosts_find_each_other_by_ucx) {
  TwoHosts hosts(
      [](Child& child, BulkEndpoint& endpoint, const std::vector<messages::BulkAddress>& addresses) -> std::string {
        for (std::uint64_t view = 1; view <= 3; ++view) {
          auto all = endpoint.connect(View(view), Rank(child.rank), addresses, soon_enough());
          if (!all) return all.error().message;
          for (std::uint64_t round = 1; round <= 10; ++round) {
            std::string wrong = exchange_and_check(**all, round, [&](std::uint32_t from, std::uint32_t to) {
              return static_cast<std::size_t>((from + 2 * to + round) % 4 * 700'001);
            });
            if (!wrong.empty()) return wrong;
          }
        }
        return {};
      });
  if (!hosts.permitted()) return;
  BOOST_TEST(hosts.addresses()[0].host_key != hosts.addresses()[1].host_key);
  for (const auto& verdict : hosts.processes().verdicts()) BOOST_TEST(verdict == "");
}

BOOST_AUTO_TEST_CASE(a_cut_cable_is_a_deadline_that_names_the_rank) {
  TwoHosts hosts(
      [](Child& child, BulkEndpoint& endpoint, const std::vector<messages::BulkAddress>& addresses) -> std::string {
        auto all = endpoint.connect(View(1), Rank(child.rank), addresses, soon_enough());
        if (!all) return all.error().message;
        const auto bytes = [](std::uint32_t, std::uint32_t) { return std::size_t{300'000}; };
        std::string wrong = exchange_and_check(**all, 1, bytes);
        if (!wrong.empty()) return wrong;
        child.tell("connected");
        child.hear();
        if (child.rank == 0 && !shell("ip link set troupe0 down")) return "cannot cut";
        child.tell("cut");
        child.hear();
        wrong = exchange_and_check(**all, 2, bytes, Clock::now() + 300ms);
        const std::string peer = "rank " + std::to_string(1 - child.rank);
        return (wrong.rfind("deadline", 0) == 0 || wrong.rfind("unavailable", 0) == 0) && wrong.find(peer) != wrong.npos
                   ? ""
                   : wrong;
      });
  if (!hosts.permitted()) return;
  for (const char* stage : {"connected", "cut"}) {
    for (std::uint32_t r = 0; r < 2; ++r) {
      const std::string said = hosts.processes().hear(r);
      BOOST_TEST(said == stage, "rank " << r << ": " << said);
    }
    for (std::uint32_t r = 0; r < 2; ++r) hosts.processes().tell(r, "on");
  }
  for (const auto& verdict : hosts.processes().verdicts()) BOOST_TEST(verdict == "");
}

BOOST_AUTO_TEST_CASE(C37_once_a_view_is_connected_only_its_hosts_reach_ucx) {
  TwoHosts hosts([](Child& child, BulkEndpoint& endpoint,
                    const std::vector<messages::BulkAddress>& addresses) -> std::string {
    auto all = endpoint.connect(View(1), Rank(child.rank), addresses, soon_enough());
    if (!all) return all.error().message;
    child.tell("connected");
    std::istringstream ports(child.hear());
    if (child.rank == 0) return {};
    // A third host, as far as the other can tell.
    if (!shell("ip addr add 10.77.0.99/24 dev troupe1")) return "no address for the stranger";
    int member = 0;
    int stranger = 0;
    for (std::uint16_t port = 0; ports >> port;) {
      member += reaches("10.77.0.2", "10.77.0.1", port);
      stranger += reaches("10.77.0.99", "10.77.0.1", port);
    }
    return member > 0 && stranger == 0
               ? ""
               : std::to_string(member) + " ports for the member, " + std::to_string(stranger) + " for the stranger";
  });
  if (!hosts.permitted()) return;
  Processes& processes = hosts.processes();
  for (std::uint32_t r = 0; r < 2; ++r) BOOST_TEST(processes.hear(r) == "connected");
  std::string ports;
  for (const std::uint16_t port : listening_ports(processes.pid(0))) ports += std::to_string(port) + " ";
  processes.tell(1, ports);
  BOOST_TEST(processes.verdict(1) == "");
  processes.tell(0, "end");
  BOOST_TEST(processes.verdict(0) == "");
}

BOOST_AUTO_TEST_CASE(C37_a_view_without_ucx_shuts_its_ports) {
  // Alone, or with ranks that share memory: nobody has any business there, not even on this host.
  auto endpoint = make_bulk_endpoint({}, "secret");
  BOOST_REQUIRE(endpoint.has_value());
  const auto open = [] {
    int count = 0;
    for (const std::uint16_t port : listening_ports(::getpid())) count += reaches("127.0.0.1", "127.0.0.1", port);
    return count;
  };
  BOOST_TEST(open() > 0);
  const std::vector<messages::BulkAddress> addresses{(*endpoint)->address()};
  auto all = (*endpoint)->connect(View(1), Rank(0), addresses, soon_enough());
  BOOST_REQUIRE(all.has_value());
  BOOST_TEST(open() == 0);
}
