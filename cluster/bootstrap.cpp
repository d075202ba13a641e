#include "cluster/bootstrap.hpp"

#include <cerrno>
#include <cstring>
#include <mutex>

#include <nlohmann/json.hpp>
#include <poll.h>
#include <unistd.h>

namespace troupe::cluster {

using nlohmann::json;

std::string to_json_line(const Bootstrap& b) {
  json allowed = json::array();
  for (const auto& [name, key] : b.allowed) allowed.push_back({name, key});
  const json j{{"role", b.role},
               {"name", b.name},
               {"config_toml", b.config_toml},
               {"config_file", b.config_file},
               {"run_folder", b.run_folder},
               {"public_key", b.keys.public_key},
               {"secret_key", b.keys.secret_key},
               {"allowed", allowed},
               {"coordinator_endpoint", b.coordinator_endpoint},
               {"coordinator_key", b.coordinator_key},
               {"bulk_secret", b.bulk_secret}};
  return j.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

Result<Bootstrap> parse_bootstrap(const std::string& line) {
  const json j = json::parse(line, nullptr, false);
  if (!j.is_object()) return fail(ErrorCode::kBadInput, "bootstrap: the line on standard input is not a JSON object");
  Bootstrap b;
  const std::pair<const char*, std::string*> strings[] = {{"role", &b.role},
                                                          {"name", &b.name},
                                                          {"config_toml", &b.config_toml},
                                                          {"config_file", &b.config_file},
                                                          {"run_folder", &b.run_folder},
                                                          {"public_key", &b.keys.public_key},
                                                          {"secret_key", &b.keys.secret_key},
                                                          {"coordinator_endpoint", &b.coordinator_endpoint},
                                                          {"coordinator_key", &b.coordinator_key},
                                                          {"bulk_secret", &b.bulk_secret}};
  for (const auto& [key, into] : strings) {
    const auto found = j.find(key);
    if (found == j.end() || !found->is_string())
      return fail(ErrorCode::kBadInput, std::string("bootstrap: ") + key + " is missing or no string");
    *into = found->get<std::string>();
  }
  const auto allowed = j.find("allowed");
  if (allowed == j.end() || !allowed->is_array())
    return fail(ErrorCode::kBadInput, "bootstrap: allowed is missing or no array");
  for (const json& pair : *allowed) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string()) {
      return fail(ErrorCode::kBadInput, "bootstrap: allowed must hold pairs of a name and a key");
    }
    b.allowed.emplace_back(pair[0].get<std::string>(), pair[1].get<std::string>());
  }
  return b;
}

Result<Bootstrap> read_bootstrap(int fd, std::chrono::milliseconds deadline) {
  const auto until = std::chrono::steady_clock::now() + deadline;
  std::string line;
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
    if (left <= 0)
      return fail(ErrorCode::kDeadline,
                  "bootstrap: no line on standard input; this command is started by `troupe run` or `troupe launch`");
    pollfd p{fd, POLLIN, 0};
    if (::poll(&p, 1, static_cast<int>(left)) <= 0) continue;
    // Byte by byte would be slow for a large config, but nothing after the line may be taken: reads stop at its end
    // because the launcher writes nothing else.
    char buffer[4096];
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      return fail(ErrorCode::kBadInput,
                  "bootstrap: standard input ended before a whole line came; this command is started by `troupe run`");
    line.append(buffer, static_cast<std::size_t>(n));
    if (line.back() == '\n') break;
    if (line.size() > kMaxBootstrapBytes)
      return fail(ErrorCode::kLimit,
                  "bootstrap: the line is longer than " + std::to_string(kMaxBootstrapBytes) + " bytes");
  }
  return parse_bootstrap(line);
}

void write_event(const std::string& json_text) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const std::string line = kEventPrefix + json_text + "\n";
  std::size_t done = 0;
  while (done < line.size()) {
    const ssize_t n = ::write(STDOUT_FILENO, line.data() + done, line.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // the launcher has gone; the end of standard input says so too
    done += static_cast<std::size_t>(n);
  }
}

}  // namespace troupe::cluster
