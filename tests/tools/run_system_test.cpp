#define BOOST_TEST_MODULE run_system
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <boost/test/unit_test.hpp>
#include <netinet/in.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cluster/child.hpp"

// The real thing: `troupe run` with its coordinator and node processes, on loopback.

using namespace troupe;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

struct Outcome {
  bool well = false;
  std::string how;
  std::string out;
  std::string err;
};

const fs::path kSource = TROUPE_SOURCE_DIR;

/// Reads a child's streams until both end and it is gone. `at` is called with all that came on standard error so far.
template <class At>
Outcome finish(cluster::Child& child, At&& at) {
  Outcome outcome;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(240);
  while (child.out_fd() >= 0 || child.err_fd() >= 0 || !child.ended()) {
    BOOST_TEST_REQUIRE((std::chrono::steady_clock::now() < until),
                       "it did not end; so far it said: " + outcome.err + outcome.out);
    std::array<pollfd, 2> fds{{{child.out_fd(), POLLIN, 0}, {child.err_fd(), POLLIN, 0}}};
    ::poll(fds.data(), fds.size(), 100);
    for (std::size_t i = 0; i < 2; ++i) {
      if (fds[i].fd < 0 || fds[i].revents == 0) continue;
      char buffer[8192];
      const ssize_t n = ::read(fds[i].fd, buffer, sizeof buffer);
      if (n > 0) (i == 0 ? outcome.out : outcome.err).append(buffer, static_cast<std::size_t>(n));
      if (n == 0) (i == 0 ? child.close_out() : child.close_err());
    }
    at(outcome);
  }
  outcome.how = child.how();
  outcome.well = child.ended_well();
  return outcome;
}

cluster::Child start(std::vector<std::string> args) {
  args.insert(args.begin(), TROUPE_BINARY);
  auto child = cluster::Child::spawn("troupe", args);
  BOOST_TEST_REQUIRE(child.has_value());
  return std::move(*child);
}

Outcome troupe_command(std::vector<std::string> args) {
  cluster::Child child = start(std::move(args));
  child.close_input();
  return finish(child, [](const Outcome&) {});
}

json run_json(std::vector<std::string> args) {
  args.insert(args.begin(), "run");
  args.push_back("--json");
  const Outcome outcome = troupe_command(std::move(args));
  const json report = json::parse(outcome.out, nullptr, false);
  BOOST_TEST_REQUIRE(report.is_object(), outcome.how + "\n" + outcome.err + outcome.out);
  return report;
}

std::string config(const char* name) {
  return (kSource / "configs" / name).string();
}

/// Processes whose command line names this build's troupe binary.
std::set<int> troupe_processes() {
  std::set<int> pids;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::error_code error;
    if (fs::read_symlink(entry.path() / "exe", error) == fs::path(TROUPE_BINARY) && !error)
      pids.insert(std::stoi(name));
  }
  return pids;
}

/// What a cluster could leave behind: processes, run folders, shared segments, sockets in the abstract namespace.
struct Traces {
  std::set<std::string> all;
  Traces() {
    for (const int pid : troupe_processes()) all.insert("process " + std::to_string(pid));
    for (const fs::path& folder : {fs::temp_directory_path(), fs::path("/dev/shm")}) {
      for (const auto& entry : fs::directory_iterator(folder)) {
        const std::string name = entry.path().filename();
        if (name.find("troupe") != std::string::npos || name.find("ucx") != std::string::npos) all.insert(entry.path());
      }
    }
    std::ifstream sockets("/proc/net/unix");
    for (std::string line; std::getline(sockets, line);) {
      if (line.find("troupe") != std::string::npos) all.insert(line.substr(line.find_last_of(' ')));
    }
  }
};

void nothing_left_since(const Traces& before) {
  const Traces after;
  for (const std::string& trace : after.all) BOOST_TEST(before.all.contains(trace), "left behind: " + trace);
}

/// One kilobyte of noise, and a greeting that breaks off, to a port of this machine.
void send_noise(std::uint16_t port) {
  std::string noise;
  for (unsigned i = 0; i < 1024; ++i) noise += static_cast<char>(i * 2654435761U >> 13U);
  const std::string greeting("\xff\0\0\0\0\0\0\0\1\x7f\3\0CURVE", 17);
  for (const std::string& bytes : {noise, greeting}) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
      // It may close on us at any byte.
      (void)::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    }
    ::close(fd);
  }
}

const std::vector<std::string> kSmall = {"--set", "workload.tokens=1500"};

std::vector<std::string> with_small(std::vector<std::string> args) {
  args.insert(args.end(), kSmall.begin(), kSmall.end());
  return args;
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_digest_is_the_reference_s_for_any_shape_of_cluster_and_batch) {
  const Traces before;
  std::set<std::string> digests;
  const std::vector<std::vector<std::string>> shapes = {
      {"--nodes", "2", "--gpus", "2"},
      {"--nodes", "1", "--gpus", "1"},
      {"--nodes", "1", "--gpus", "4", "--set", "limits.max_tokens_per_pass=16"},
      {"--nodes", "4", "--gpus", "1", "--set", "workload.tokens_per_request=7"}};
  for (const auto& shape : shapes) {
    std::vector<std::string> args{config("demo.toml")};
    args.insert(args.end(), shape.begin(), shape.end());
    const json report = run_json(with_small(args));
    BOOST_TEST_CONTEXT(report.dump(2)) {
      BOOST_TEST(report["verdict"] == "pass");
      BOOST_TEST(report["output_digest"] == report["reference_digest"]);
      BOOST_TEST(report["tokens_completed"] == 1500);
      for (const char* key : {"tokens_lost", "tokens_duplicated", "order_violations", "tokens_dropped"})
        BOOST_TEST(report[key] == 0);
    }
    digests.insert(report["output_digest"].get<std::string>());
  }
  BOOST_TEST(digests.size() == 1u);
  nothing_left_since(before);
}

BOOST_AUTO_TEST_CASE(the_standing_example_gives_each_gpu_128_token_visits) {
  const json report = run_json({config("mixtral-256.toml")});
  BOOST_TEST(report["verdict"] == "pass", report.dump(2));
  BOOST_TEST((report["tokens_per_gpu"] == json{128, 128, 128, 128}));
}

BOOST_AUTO_TEST_CASE(the_same_bits_over_ucx_between_hosts) {
  const json report =
      run_json(with_small({config("demo.toml"), "--set", "transport.bulk=ucx", "--set", "transport.ucx_tls=tcp"}));
  BOOST_TEST(report["verdict"] == "pass", report.dump(2));
}

BOOST_AUTO_TEST_CASE(ctrl_c_takes_everything_down) {
  const Traces before;
  for (const char* moment : {"listening on", "joined", "serving view"}) {
    cluster::Child child = start({"run", config("demo.toml"), "--set", "workload.tokens=2000000", "--no-reference"});
    bool sent = false;
    const Outcome outcome = finish(child, [&](const Outcome& so_far) {
      if (sent || so_far.err.find(moment) == std::string::npos) return;
      sent = true;
      child.signal(SIGINT);
    });
    BOOST_TEST(sent);
    BOOST_TEST(outcome.how == "exit code 130", outcome.how + "\n" + outcome.err);
    nothing_left_since(before);
  }
}

BOOST_AUTO_TEST_CASE(a_killed_launcher_leaves_nothing_running) {
  const Traces before;
  cluster::Child child = start({"run", config("demo.toml"), "--set", "workload.tokens=2000000", "--no-reference"});
  bool sent = false;
  (void)finish(child, [&](const Outcome& so_far) {
    if (sent || so_far.err.find("serving view") == std::string::npos) return;
    sent = true;
    child.signal(SIGKILL);
  });
  BOOST_TEST(sent);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  const std::size_t had = before.all.size();
  while (std::chrono::steady_clock::now() < until) {
    bool more = false;
    for (const int pid : troupe_processes()) more |= !before.all.contains("process " + std::to_string(pid));
    if (!more) break;
    std::this_thread::yield();
  }
  for (const int pid : troupe_processes())
    BOOST_TEST(before.all.contains("process " + std::to_string(pid)), "still runs: " + std::to_string(pid));
  BOOST_TEST(before.all.size() == had);
  // Its own temporary folder stays after SIGKILL; take it away as the next boot would.
  for (const auto& entry : fs::directory_iterator(fs::temp_directory_path())) {
    if (entry.path().filename().string().rfind("troupe-run-", 0) == 0 && !before.all.contains(entry.path().string()))
      fs::remove_all(entry.path());
  }
}

BOOST_AUTO_TEST_CASE(a_killed_node_fails_the_run_with_its_name) {
  const Traces before;
  cluster::Child child =
      start({"run", config("demo.toml"), "--set", "workload.tokens=2000000", "--no-reference", "--json"});
  bool sent = false;
  const Outcome outcome = finish(child, [&](const Outcome& so_far) {
    if (sent || so_far.err.find("serving view") == std::string::npos) return;
    sent = true;
    // The newest process of this binary is a node: coordinator and launcher were started before it.
    int newest = 0;
    for (const int pid : troupe_processes()) {
      if (!before.all.contains("process " + std::to_string(pid))) newest = std::max(newest, pid);
    }
    BOOST_TEST_REQUIRE(newest != child.pid());
    ::kill(newest, SIGKILL);
  });
  BOOST_TEST(sent);
  BOOST_TEST(outcome.how == "exit code 1");
  const json report = json::parse(outcome.out, nullptr, false);
  BOOST_TEST_REQUIRE(report.is_object(), outcome.out + outcome.err);
  BOOST_TEST(report["verdict"] == "fail");
  BOOST_TEST(report["reasons"].dump().find("ended (killed by signal 9") != std::string::npos, report["reasons"].dump());
  nothing_left_since(before);
}

BOOST_AUTO_TEST_CASE(C37_noise_to_every_port_is_refused_and_counted_and_the_cluster_serves_on) {
  cluster::Child child = start({"run", config("demo.toml"), "--set", "workload.tokens=3000", "--json"});
  child.close_input();
  bool sent = false;
  std::size_t ports = 0;
  const Outcome outcome = finish(child, [&](const Outcome& so_far) {
    if (sent || so_far.err.find("serving view") == std::string::npos) return;
    sent = true;
    const std::string prefix = "tcp://127.0.0.1:";
    for (std::size_t at = 0; (at = so_far.err.find(prefix, at)) != std::string::npos; ++at) {
      send_noise(static_cast<std::uint16_t>(std::stoi(so_far.err.substr(at + prefix.size(), 5))));
      ++ports;
    }
  });
  BOOST_TEST(ports == 5u);  // the coordinator's, and a control port and a door for each of two nodes
  const json report = json::parse(outcome.out, nullptr, false);
  BOOST_TEST_REQUIRE(report.is_object(), outcome.out + outcome.err);
  BOOST_TEST(report["verdict"] == "pass", outcome.out);
  BOOST_TEST(report["refused_frames"] >= 4);
}

BOOST_AUTO_TEST_CASE(launches_in_a_row_leave_nothing_behind) {
  const Traces before;
  for (int i = 0; i < 5; ++i) {
    const json report = run_json({config("mixtral-256.toml"), "--no-reference", "--quiet"});
    BOOST_TEST(report["verdict"] == "pass", report.dump());
  }
  nothing_left_since(before);
}

BOOST_AUTO_TEST_CASE(check_prints_the_plan_and_starts_nothing) {
  const Outcome outcome = troupe_command({"check", config("mixtral-8x7b.toml")});
  BOOST_TEST(outcome.well, outcome.err);
  BOOST_TEST(outcome.out.find("4096") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(C38_a_misspelt_key_is_named_with_the_nearest_one) {
  const Outcome outcome = troupe_command({"check", config("demo.toml"), "--set", "limits.max_tokns_per_pass=64"});
  BOOST_TEST(outcome.how == "exit code 2");
  BOOST_TEST(outcome.err.find("limits.max_tokens_per_pass") != std::string::npos, outcome.err);
}
