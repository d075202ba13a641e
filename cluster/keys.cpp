#include "cluster/keys.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <pwd.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

namespace troupe::cluster {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr std::size_t kKeyLength = 40;  // Z85 of 32 bytes
constexpr std::uintmax_t kMaxKeyFile = 16U << 20U;

Result<std::map<std::string, CurveKeys>> read_keys(const fs::path& file) {
  struct stat info {};
  if (::stat(file.c_str(), &info) != 0) return fail(ErrorCode::kIo, file.string() + ": " + std::strerror(errno));
  if ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return fail(
        ErrorCode::kRefused,
        file.string() + ": others can read these keys; run chmod 600 on it, or delete it to have new ones made");
  }
  const std::string way_out = "; delete the file to have new keys made at the next launch";
  if (static_cast<std::uintmax_t>(info.st_size) > kMaxKeyFile)
    return fail(ErrorCode::kBadInput, file.string() + ": too large for a key file" + way_out);
  std::ifstream in(file);
  const json j = json::parse(in, nullptr, false);
  if (!j.is_object()) return fail(ErrorCode::kBadInput, file.string() + ": not a JSON object" + way_out);
  std::map<std::string, CurveKeys> keys;
  for (const auto& [name, pair] : j.items()) {
    const bool ok = pair.is_object() && pair.contains("public") && pair.contains("secret") &&
                    pair["public"].is_string() && pair["secret"].is_string();
    CurveKeys k;
    if (ok) k = CurveKeys{pair["public"].get<std::string>(), pair["secret"].get<std::string>()};
    if (k.public_key.size() != kKeyLength || k.secret_key.size() != kKeyLength) {
      return fail(ErrorCode::kBadInput, file.string() + ": the keys of \"" + name + "\" are not two Z85 strings of " +
                                            std::to_string(kKeyLength) + " characters" + way_out);
    }
    keys[name] = std::move(k);
  }
  return keys;
}

/// Written beside the file and renamed, so that a launch at the same time reads either the old keys or the new ones.
Result<void> write_keys(const fs::path& file, const std::map<std::string, CurveKeys>& keys) {
  json j = json::object();
  for (const auto& [name, k] : keys) j[name] = {{"public", k.public_key}, {"secret", k.secret_key}};
  const std::string text = j.dump(2) + "\n";
  const fs::path temporary = file.string() + "." + std::to_string(::getpid());
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return fail(ErrorCode::kIo, temporary.string() + ": " + std::strerror(errno));
  const bool written = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  ::close(fd);
  if (!written || ::rename(temporary.c_str(), file.c_str()) != 0) {
    const std::string why = std::strerror(errno);
    ::unlink(temporary.c_str());
    return fail(ErrorCode::kIo, file.string() + ": " + why);
  }
  return {};
}

}  // namespace

std::vector<std::pair<std::string, std::string>> ClusterKeys::allow_list() const {
  std::vector<std::pair<std::string, std::string>> list;
  for (const auto& [name, k] : parties) list.emplace_back(name, k.public_key);
  return list;
}

fs::path default_key_folder(const std::string& cluster) {
  if (const char* state = std::getenv("XDG_STATE_HOME"); state != nullptr && *state == '/')
    return fs::path(state) / "troupe" / cluster;
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') {
    const passwd* entry = ::getpwuid(::getuid());
    home = entry != nullptr ? entry->pw_dir : "/tmp";
  }
  return fs::path(home) / ".local" / "state" / "troupe" / cluster;
}

Result<ClusterKeys> load_or_make_keys(const fs::path& folder, const std::vector<std::string>& names) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    return fail(ErrorCode::kIo, "keys: cannot make " + folder.string() + ": " + error.message() +
                                    "; set security.keys to a folder that can be written");
  const fs::path file = folder / "keys.json";
  ClusterKeys keys;
  if (fs::exists(file)) {
    auto read = read_keys(file);
    if (!read) return fail_in("keys", read.error());
    keys.parties = std::move(*read);
  }
  bool changed = false;
  std::map<std::string, CurveKeys> wanted;
  for (const std::string& name : names) {
    auto& k = keys.parties[name];
    if (k.public_key.empty()) {
      k = make_curve_keys();
      changed = true;
    }
    wanted[name] = k;
  }
  if (changed) {
    if (auto done = write_keys(file, keys.parties); !done) return fail_in("keys", done.error());
  }
  // Keys of nodes that this config does not name stay in the file, but are not on this cluster's list.
  keys.parties = std::move(wanted);
  return keys;
}

std::string make_secret() {
  unsigned char bytes[32];
  std::size_t got = 0;
  while (got < sizeof bytes) {
    const ssize_t n = ::getrandom(bytes + got, sizeof bytes - got, 0);
    if (n > 0) got += static_cast<std::size_t>(n);
  }
  static constexpr char kHex[] = "0123456789abcdef";
  std::string hex;
  for (const unsigned char b : bytes) {
    hex += kHex[b >> 4U];
    hex += kHex[b & 15U];
  }
  return hex;
}

}  // namespace troupe::cluster
