#include "cluster/launcher.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include <nlohmann/json.hpp>
#include <poll.h>
#include <unistd.h>

#include "cluster/bootstrap.hpp"
#include "cluster/child.hpp"
#include "cluster/config_keys.hpp"
#include "cluster/keys.hpp"

namespace troupe::cluster {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
namespace fs = std::filesystem;

constexpr std::size_t kLinesKept = 20;
constexpr std::size_t kMaxLine = 8192;
constexpr milliseconds kPoll{50};

/// A temporary folder that goes with its owner.
class RunFolder {
 public:
  static Result<std::unique_ptr<RunFolder>> make() {
    std::error_code error;
    std::string pattern = (fs::temp_directory_path(error) / "troupe-run-XXXXXX").string();
    if (error || ::mkdtemp(pattern.data()) == nullptr) {
      return fail(ErrorCode::kIo, "cannot make a temporary folder like " + pattern + ": " + std::strerror(errno));
    }
    return std::unique_ptr<RunFolder>(new RunFolder(pattern));
  }
  ~RunFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  explicit RunFolder(fs::path path) : path_(std::move(path)) {}
  fs::path path_;
};

/// One stream of a child's output, cut into lines.
struct Lines {
  std::string rest;
  template <class F>
  void add(const char* data, std::size_t n, F&& on_line) {
    rest.append(data, n);
    std::size_t from = 0;
    for (std::size_t end = 0; (end = rest.find('\n', from)) != std::string::npos; from = end + 1)
      on_line(rest.substr(from, end - from));
    rest.erase(0, from);
    if (rest.size() > kMaxLine * 64) on_line(std::exchange(rest, {}));  // a line without end is shown in pieces
  }
};

struct Member {
  Child child;
  Lines out;
  Lines err;
  std::deque<std::string> last_lines;
  bool told_end = false;
};

std::string replace_all(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

class LocalLauncher final : public RunningCluster {
 public:
  LocalLauncher(const Config& config, LaunchOptions options) : config_(config), options_(std::move(options)) {}
  ~LocalLauncher() override { (void)stop(); }

  Result<void> begin();

  const std::vector<DoorAddress>& doors() const override { return doors_; }
  const CurveKeys& client_keys() const override { return client_keys_; }
  std::vector<Process> processes() const override {
    std::vector<Process> list;
    for (const Member& m : members_) list.push_back({m.child.name(), m.child.pid()});
    return list;
  }
  Result<void> health() override {
    pump(milliseconds{0});
    if (failure_) return tl::unexpected(*failure_);
    return {};
  }
  Result<void> stop() override;

 private:
  Result<void> start_process(const std::string& name, const std::vector<std::string>& argv, const Bootstrap& bootstrap);
  std::vector<std::string> command_for(const NodeConfig& node) const;
  /// Takes in what the children print, for at most `wait`; notices those that end.
  void pump(milliseconds wait);
  void read_from(Member& member, int fd, Lines& lines);
  void on_line(Member& member, const std::string& line);
  void on_event(const json& event);
  Result<void> wait_for(const char* what, milliseconds timeout, const std::function<bool()>& done);

  const Config config_;
  LaunchOptions options_;
  std::unique_ptr<RunFolder> folder_;
  std::vector<Member> members_;
  std::vector<DoorAddress> doors_;
  CurveKeys client_keys_;
  std::string coordinator_endpoint_;
  std::uint32_t joined_ = 0;
  bool serving_ = false;
  bool stopping_ = false;
  bool stopped_ = false;
  std::optional<Error> failure_;
};

Result<void> LocalLauncher::start_process(const std::string& name, const std::vector<std::string>& argv,
                                          const Bootstrap& bootstrap) {
  auto child = Child::spawn(name, argv);
  if (!child) return tl::unexpected(child.error());
  members_.push_back(Member{std::move(*child), {}, {}, {}, false});
  return members_.back().child.write_input(to_json_line(bootstrap));
}

std::vector<std::string> LocalLauncher::command_for(const NodeConfig& node) const {
  const std::string program = options_.program.string();
  const bool local = is_loopback(node.host);
  if (config_.launch.command.empty() || local) return {program, "node"};
  // The template runs through the shell, so that it can say `ssh {host} {command}` or anything else.
  std::string line = replace_all(config_.launch.command, "{host}", node.host);
  line = replace_all(line, "{name}", node.name);
  line = replace_all(line, "{command}", "troupe node");
  return {"/bin/sh", "-c", line};
}

Result<void> LocalLauncher::begin() {
  if (options_.program.empty()) {
    std::error_code error;
    options_.program = fs::read_symlink("/proc/self/exe", error);
    if (error) return fail(ErrorCode::kIo, "cannot find the troupe program: " + error.message());
  }
  auto folder = RunFolder::make();
  if (!folder) return tl::unexpected(folder.error());
  folder_ = std::move(*folder);

  Bootstrap bootstrap;
  bootstrap.config_toml = to_toml(config_);
  bootstrap.config_file = config_.file.string();
  bootstrap.run_folder = folder_->path().string();
  bootstrap.bulk_secret = make_secret();
  ClusterKeys keys;
  if (config_.security.curve) {
    std::vector<std::string> names{"coordinator", "client"};
    for (const NodeConfig& node : config_.nodes) names.push_back(node.name);
    auto loaded = load_or_make_keys(
        config_.security.keys.empty() ? default_key_folder(config_.name) : config_.security.keys, names);
    if (!loaded) return tl::unexpected(loaded.error());
    keys = std::move(*loaded);
    bootstrap.allowed = keys.allow_list();
    bootstrap.coordinator_key = keys.parties.at("coordinator").public_key;
    client_keys_ = keys.parties.at("client");
  }
  const auto keys_of = [&](const std::string& name) {
    return config_.security.curve ? keys.parties.at(name) : CurveKeys{};
  };

  const milliseconds timeout{config_.limits.join_timeout_ms};
  bootstrap.role = bootstrap.name = "coordinator";
  bootstrap.keys = keys_of("coordinator");
  if (auto done = start_process("coordinator", {options_.program.string(), "coordinator"}, bootstrap); !done)
    return done;
  if (auto done = wait_for("the coordinator to listen", timeout, [&] { return !coordinator_endpoint_.empty(); }); !done)
    return done;
  bootstrap.coordinator_endpoint = coordinator_endpoint_;
  bootstrap.role = "node";
  bootstrap.run_folder.clear();
  for (const NodeConfig& node : config_.nodes) {
    bootstrap.name = node.name;
    bootstrap.keys = keys_of(node.name);
    if (auto done = start_process(node.name, command_for(node), bootstrap); !done) return done;
  }
  // The coordinator's own deadline comes first, and names who is missing.
  return wait_for("all nodes to serve", timeout + milliseconds{5000}, [&] { return serving_; });
}

Result<void> LocalLauncher::wait_for(const char* what, milliseconds timeout, const std::function<bool()>& done) {
  const auto until = steady_clock::now() + timeout;
  while (!done()) {
    pump(kPoll);
    if (failure_) return tl::unexpected(*failure_);
    if (options_.cancelled && options_.cancelled()) return fail(ErrorCode::kAborted, "interrupted");
    if (steady_clock::now() > until)
      return fail(ErrorCode::kDeadline, std::string("waited ") + std::to_string(timeout.count()) + " ms for " + what);
  }
  return {};
}

void LocalLauncher::pump(milliseconds wait) {
  std::vector<pollfd> fds;
  std::vector<std::pair<std::size_t, bool>> which;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    for (const bool is_out : {true, false}) {
      const int fd = is_out ? members_[i].child.out_fd() : members_[i].child.err_fd();
      if (fd < 0) continue;
      fds.push_back({fd, POLLIN, 0});
      which.emplace_back(i, is_out);
    }
  }
  ::poll(fds.data(), fds.size(), static_cast<int>(wait.count()));
  for (std::size_t i = 0; i < fds.size(); ++i) {
    if (fds[i].revents == 0) continue;
    Member& member = members_[which[i].first];
    read_from(member, fds[i].fd, which[i].second ? member.out : member.err);
  }
  for (Member& member : members_) {
    if (member.told_end || !member.child.ended()) continue;
    member.told_end = true;
    for (const bool is_out : {true, false}) {
      const int fd = is_out ? member.child.out_fd() : member.child.err_fd();
      if (fd >= 0) read_from(member, fd, is_out ? member.out : member.err);
    }
    if (stopping_ || failure_) continue;
    std::string message = "process " + member.child.name() + " ended (" + member.child.how() + ")";
    if (!member.last_lines.empty()) message += "; its last words: " + member.last_lines.back();
    failure_ = Error{ErrorCode::kUnavailable, std::move(message)};
  }
}

void LocalLauncher::read_from(Member& member, int fd, Lines& lines) {
  char buffer[16384];
  for (;;) {
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n > 0) {
      lines.add(buffer, static_cast<std::size_t>(n), [&](const std::string& line) { on_line(member, line); });
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) {
      if (!lines.rest.empty()) on_line(member, std::exchange(lines.rest, {}));
      if (fd == member.child.out_fd()) {
        member.child.close_out();
      } else {
        member.child.close_err();
      }
    }
    return;
  }
}

void LocalLauncher::on_line(Member& member, const std::string& line) {
  if (line.rfind(kEventPrefix, 0) == 0) {
    // Only the coordinator's events count; a line of a node that looks like one is just a line.
    if (member.child.name() == "coordinator") {
      const json event = json::parse(line.substr(std::strlen(kEventPrefix)), nullptr, false);
      if (event.is_object()) on_event(event);
      return;
    }
  }
  member.last_lines.push_back(line.substr(0, kMaxLine));
  if (member.last_lines.size() > kLinesKept) member.last_lines.pop_front();
  if (options_.on_line) options_.on_line(member.child.name(), line);
}

void LocalLauncher::on_event(const json& event) {
  const std::string kind = event.value("event", "");
  if (kind == "listening") {
    coordinator_endpoint_ = event.value("endpoint", "");
  } else if (kind == "joined") {
    ++joined_;
    if (options_.on_progress) options_.on_progress(joined_, static_cast<std::uint32_t>(config_.nodes.size()));
  } else if (kind == "serving" && event.contains("nodes") && event["nodes"].is_array()) {
    doors_.clear();
    for (const json& node : event["nodes"])
      doors_.push_back({node.value("node", ""), node.value("door", ""), node.value("key", "")});
    serving_ = true;
  } else if (kind == "failed" && !failure_ && !stopping_) {
    failure_ = Error{static_cast<ErrorCode>(event.value("code", 1)), event.value("message", "the coordinator gave up")};
  }
}

Result<void> LocalLauncher::stop() {
  if (stopped_) return {};
  stopped_ = true;
  stopping_ = true;
  std::string trouble;
  const auto note = [&](const std::string& text) { trouble += (trouble.empty() ? "" : "; ") + text; };
  const auto all_ended = [&] {
    return std::all_of(members_.begin(), members_.end(), [](const Member& m) { return m.told_end; });
  };
  // Nodes finish when their input ends; the coordinator last, so that it can hear them leave.
  for (Member& member : members_) {
    if (member.child.name() != "coordinator") member.child.close_input();
  }
  const auto start = steady_clock::now();
  const milliseconds limit{config_.limits.shutdown_timeout_ms};
  bool termed = false;
  while (!all_ended()) {
    pump(kPoll);
    const bool nodes_ended = std::all_of(members_.begin(), members_.end(),
                                         [](const Member& m) { return m.told_end || m.child.name() == "coordinator"; });
    if (nodes_ended || steady_clock::now() - start > limit / 2) {
      for (Member& member : members_) member.child.close_input();
    }
    if (!termed && steady_clock::now() - start > limit) {
      termed = true;
      for (Member& member : members_) {
        if (!member.told_end) member.child.signal(SIGTERM);
      }
    }
    if (steady_clock::now() - start > limit + limit / 2) break;
  }
  for (Member& member : members_) {
    if (!member.told_end) {
      note(member.child.name() + " did not end within " + std::to_string(limit.count()) + " ms and was killed");
      member.child.signal(SIGCONT);
      member.child.signal(SIGKILL);
    } else if (!member.child.ended_well() && !failure_) {
      note(member.child.name() + " ended with " + member.child.how());
    }
  }
  members_.clear();  // reaps
  folder_.reset();
  if (!trouble.empty()) return fail(ErrorCode::kInternal, trouble);
  return {};
}

}  // namespace

Result<std::unique_ptr<RunningCluster>> RunningCluster::launch(const Config& config, LaunchOptions options) {
  auto cluster = std::make_unique<LocalLauncher>(config, std::move(options));
  if (auto done = cluster->begin(); !done) return tl::unexpected(done.error());
  return cluster;
}

}  // namespace troupe::cluster
