#include "tests/gpu/all_to_all_processes.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace troupe::gpu::testing {
namespace {

constexpr std::string_view kVerdict = "verdict:";
constexpr int kPatienceMs = 60'000;

std::string pack(const std::vector<std::string>& texts) {
  std::string packed;
  for (const auto& text : texts) packed += std::to_string(text.size()) + ":" + text;
  return packed;
}

std::vector<std::string> unpack(const std::string& packed) {
  std::vector<std::string> texts;
  for (std::size_t at = 0; at < packed.size();) {
    const std::size_t colon = packed.find(':', at);
    if (colon == std::string::npos) break;
    const std::size_t bytes = std::stoul(packed.substr(at, colon - at));
    texts.push_back(packed.substr(colon + 1, bytes));
    at = colon + 1 + bytes;
  }
  return texts;
}

std::optional<std::string> read_packet(int fd, int patience_ms) {
  pollfd event{fd, POLLIN, 0};
  int ready = 0;
  do ready = ::poll(&event, 1, patience_ms);
  while (ready < 0 && errno == EINTR);
  if (ready <= 0) return "(silent)";
  static std::array<char, 1 << 20> buffer;
  const auto bytes = ::recv(fd, buffer.data(), buffer.size(), 0);
  if (bytes <= 0) return std::nullopt;
  return std::string(buffer.data(), static_cast<std::size_t>(bytes));
}

void write_packet(int fd, const std::string& message) {
  [[maybe_unused]] const auto sent = ::send(fd, message.data(), message.size(), MSG_NOSIGNAL);
}

}  // namespace

void Child::tell(const std::string& message) const {
  write_packet(fd_, message);
}

std::string Child::hear() const {
  auto message = read_packet(fd_, -1);
  if (!message) ::_exit(3);
  return *message;
}

std::vector<messages::BulkAddress> Child::meet(const messages::BulkAddress& own) const {
  tell(pack({own.host_key, own.shm_name, own.ucx_address}));
  const auto texts = unpack(hear());
  std::vector<messages::BulkAddress> addresses;
  for (std::size_t i = 0; i + 2 < texts.size(); i += 3) addresses.push_back({texts[i], texts[i + 1], texts[i + 2]});
  return addresses;
}

Processes::Processes(std::uint32_t ranks, std::function<std::string(Child&)> body) {
  std::fflush(nullptr);
  for (std::uint32_t r = 0; r < ranks; ++r) {
    std::array<int, 2> pair{};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.data()) != 0) std::abort();
    const pid_t pid = ::fork();
    if (pid < 0) std::abort();
    if (pid == 0) {
      for (const int fd : fds_) ::close(fd);
      ::close(pair[0]);
      Child child(r, pair[1]);
      const std::string wrong = body(child);
      child.tell(std::string(kVerdict) + wrong);
      std::fflush(nullptr);
      ::_exit(0);
    }
    ::close(pair[1]);
    pids_.push_back(pid);
    fds_.push_back(pair[0]);
  }
}

Processes::~Processes() {
  for (std::size_t r = 0; r < pids_.size(); ++r) {
    if (pids_[r] > 0) {
      ::kill(pids_[r], SIGKILL);
      ::waitpid(pids_[r], nullptr, 0);
    }
    ::close(fds_[r]);
  }
}

void Processes::tell(std::uint32_t rank, const std::string& message) const {
  write_packet(fds_[rank], message);
}

std::string Processes::hear(std::uint32_t rank) const {
  return read_packet(fds_[rank], kPatienceMs).value_or("(gone)");
}

void Processes::signal(std::uint32_t rank, int number) const {
  ::kill(pids_[rank], number);
}

std::vector<messages::BulkAddress> Processes::introduce() const {
  std::vector<std::string> texts;
  std::vector<messages::BulkAddress> addresses;
  for (std::uint32_t r = 0; r < size(); ++r) {
    const auto parts = unpack(hear(r));
    if (parts.size() != 3) return {};
    addresses.push_back({parts[0], parts[1], parts[2]});
    texts.insert(texts.end(), parts.begin(), parts.end());
  }
  for (std::uint32_t r = 0; r < size(); ++r) tell(r, pack(texts));
  return addresses;
}

std::string Processes::verdict(std::uint32_t rank) {
  std::string last = hear(rank);
  int status = 0;
  if (pids_[rank] <= 0) return "ended before";
  if (last == "(silent)") ::kill(pids_[rank], SIGKILL);
  ::waitpid(pids_[rank], &status, 0);
  pids_[rank] = -1;
  if (WIFSIGNALED(status)) return last + " killed by signal " + std::to_string(WTERMSIG(status));
  if (WEXITSTATUS(status) != 0) return last + " exit code " + std::to_string(WEXITSTATUS(status));
  if (last.compare(0, kVerdict.size(), kVerdict) != 0) return "no verdict: " + last;
  return last.substr(kVerdict.size());
}

std::vector<std::string> Processes::verdicts() {
  std::vector<std::string> all;
  for (std::uint32_t r = 0; r < size(); ++r) all.push_back(verdict(r));
  return all;
}

std::size_t count_fds() {
  const auto fds = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(std::filesystem::begin(fds), std::filesystem::end(fds)));
}

std::size_t count_maps() {
  std::ifstream file("/proc/self/maps");
  std::size_t lines = 0;
  for (std::string line; std::getline(file, line);) ++lines;
  return lines;
}

std::vector<std::string> shared_segments() {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", none)) {
    std::string name = entry.path().filename().string();
    if (name.find("troupe") != std::string::npos || name.find("ucx") != std::string::npos)
      names.push_back(std::move(name));
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::uint16_t> listening_ports(pid_t pid) {
  std::set<std::string> sockets;
  std::error_code none;
  const std::string proc = "/proc/" + std::to_string(pid);
  for (const auto& fd : std::filesystem::directory_iterator(proc + "/fd", none))
    sockets.insert(std::filesystem::read_symlink(fd, none).string());
  std::vector<std::uint16_t> ports;
  std::ifstream table(proc + "/net/tcp");
  for (std::string line; std::getline(table, line);) {
    std::istringstream words(line);
    std::string number, local, remote, state, skip, inode;
    words >> number >> local >> remote >> state >> skip >> skip >> skip >> skip >> skip >> inode;
    if (state == "0A" && sockets.count("socket:[" + inode + "]") > 0)
      ports.push_back(static_cast<std::uint16_t>(std::stoul(local.substr(local.find(':') + 1), nullptr, 16)));
  }
  return ports;
}

}  // namespace troupe::gpu::testing
