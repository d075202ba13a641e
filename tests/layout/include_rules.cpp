#include "tests/layout/include_rules.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <regex>

namespace troupe::layout {
namespace {

/// Height of the folders that hold code: a folder includes those of lower height, and itself.
const std::map<std::string, int, std::less<>> kHeights = {
    {"messages", 0}, {"scheduling", 1}, {"gpu", 2}, {"actors", 3}, {"cluster", 4}, {"bench", 5}, {"tools", 6}};

/// A library that only some folders see. `headers` matches the name in an include line from its start; a file may
/// include it where its path begins with one of `allowed`.
struct Fence {
  std::string_view what;
  std::regex headers;
  std::vector<std::string_view> allowed;
};

const std::vector<Fence>& fences() {
  static const std::vector<Fence> kFences = {
      {"CAF",
       std::regex("caf/.*"),
       {"actors/", "cluster/", "bench/", "tools/", "examples/", "tests/actors/", "tests/cluster/", "tests/tools/"}},
      // bench/control*.cpp compare Troupe's wire with a bare socket; the tests play strangers and noise on one.
      {"ZeroMQ", std::regex("zmq.*"), {"cluster/", "bench/control", "tests/cluster/", "tests/tools/"}},
      {"CUDA or NCCL", std::regex("(cuda|cublas|nccl|nvtx|nvml|curand).*"), {"gpu/cuda/", "tests/gpu/cuda/"}},
      {"UCX", std::regex("uc[pst]/.*"), {"gpu/", "bench/", "tests/gpu/"}},
      {"Highway", std::regex("hwy/.*"), {"gpu/", "bench/", "tests/gpu/"}},
      {"SQLite", std::regex("(SQLiteCpp/.*|sqlite3\\.h)"), {"cluster/", "tests/cluster/"}},
      {"toml++", std::regex("toml\\+\\+/.*"), {"cluster/", "tests/cluster/"}},
      {"msgpack",
       std::regex("msgpack.*"),
       {"messages/", "bench/", "tests/messages/", "tests/cluster/", "tests/tools/"}},
      {"CLI11", std::regex("CLI/.*"), {"tools/"}},
      {"Boost.Test or RapidCheck", std::regex("(boost/test/.*|rapidcheck.*)"), {"tests/"}},
      // Callers see gpu/device.hpp and gpu/all_to_all.hpp; which backend answers is not theirs to know.
      {"a device backend", std::regex("gpu/(cpu|cuda)/.*"), {"gpu/", "bench/", "tests/gpu/"}},
  };
  return kFences;
}

/// scheduling/ is pure: time and randomness come in as arguments, decisions go out as values.
const std::regex& impure_headers() {
  static const std::regex kHeaders(
      "(thread|mutex|shared_mutex|condition_variable|future|semaphore|latch|barrier|stop_token|atomic|chrono|ctime|"
      "time\\.h|"
      "fstream|filesystem|iostream|unistd\\.h|fcntl\\.h|pthread\\.h|poll\\.h|netdb\\.h|(sys|netinet|"
      "arpa|net)/.*|"
      "spdlog/.*|caf/.*|zmq.*|hwy/.*|uc[pst]/.*)");
  return kHeaders;
}
const std::regex& impure_names() {
  static const std::regex kNames(
      "\\b(random_device|s?rand\\s*\\(|getenv|[a-z_]+_clock::now|this_thread|thread_local|gettimeofday|clock_gettime|"
      "time\\s*\\(\\s*(nullptr|NULL|0)\\s*\\)|fopen|f?printf|f?puts)");
  return kNames;
}

bool begins_with_any(std::string_view path, const std::vector<std::string_view>& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](std::string_view prefix) { return path.starts_with(prefix); });
}

/// The folder whose rules hold for a file: tests/<folder>/ counts as <folder>, so that tests of a layer need nothing
/// above it.
std::optional<std::string> folder_of(std::string_view path) {
  if (path.starts_with("tests/")) path.remove_prefix(6);
  const std::size_t slash = path.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  return std::string(path.substr(0, slash));
}

/// Calls f(line number, line) for each line.
template <class F>
void for_each_line(std::string_view text, F&& f) {
  std::size_t number = 1;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    f(number++, std::string(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

void check_include(std::string_view path, std::size_t line, char bracket, const std::string& header,
                   std::vector<Finding>& findings) {
  auto found = [&](std::string message) { findings.push_back({std::string(path), line, std::move(message)}); };
  const std::optional<std::string> folder = folder_of(path);
  const std::string top = header.substr(0, header.find('/'));
  const auto target = kHeights.find(top);
  const bool of_project = header.find('/') != std::string::npos && (target != kHeights.end() || top == "tests");

  if (of_project && bracket == '<') found("includes <" + header + ">; a header of Troupe is included with quotes");
  // Highway's own headers are written with quotes in its manual, and one of them includes the file again.
  if (bracket == '"' && !of_project && top != "hwy") {
    found("includes \"" + header + "\"; with quotes come Troupe's own headers, by their path from the project's root");
  }
  if (top == "tests" && of_project && !path.starts_with("tests/"))
    found("includes \"" + header + "\", which belongs to the tests");
  if (folder && target != kHeights.end() && of_project) {
    const auto own = kHeights.find(*folder);
    if (own != kHeights.end() && target->second > own->second) {
      found(*folder + "/ may not include \"" + header + "\": " + top + "/ stands above it");
    }
  }
  for (const Fence& fence : fences()) {
    if (std::regex_match(header, fence.headers) && !begins_with_any(path, fence.allowed)) {
      found("includes " + std::string(fence.what) + " (" + header + "), which is not for " +
            (folder ? *folder : "the root") + "/");
    }
  }
  if (path.starts_with("scheduling/") && std::regex_match(header, impure_headers())) {
    found("scheduling/ is pure and may not include <" + header + ">");
  }
}

}  // namespace

std::string without_comments(std::string_view text) {
  enum class In { kCode, kString, kChar, kLineComment, kBlockComment };
  std::string out;
  out.reserve(text.size());
  In in = In::kCode;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const char next = i + 1 < text.size() ? text[i + 1] : '\0';
    switch (in) {
      case In::kCode:
        if (c == '/' && next == '/') {
          in = In::kLineComment;
        } else if (c == '/' && next == '*') {
          in = In::kBlockComment;
          ++i;
        } else {
          // A quote between digits separates them: 1'000.
          const bool separator = c == '\'' && i > 0 && std::isalnum(static_cast<unsigned char>(text[i - 1])) != 0;
          if (c == '"') in = In::kString;
          if (c == '\'' && !separator) in = In::kChar;
          out += c;
        }
        break;
      case In::kString:
      case In::kChar:
        out += c;
        if (c == '\\' && next != '\0') {
          out += next;
          ++i;
        } else if (c == (in == In::kString ? '"' : '\'') || c == '\n') {
          in = In::kCode;
        }
        break;
      case In::kLineComment:
        if (c == '\n') {
          in = In::kCode;
          out += c;
        }
        break;
      case In::kBlockComment:
        if (c == '\n') out += c;
        if (c == '*' && next == '/') {
          in = In::kCode;
          ++i;
        }
        break;
    }
  }
  return out;
}

std::vector<Finding> check_source(std::string_view path, std::string_view text) {
  static const std::regex kInclude("\\s*#\\s*include\\s*([<\"])([^>\"]+)[>\"].*");
  std::vector<Finding> findings;
  for_each_line(without_comments(text), [&](std::size_t number, const std::string& line) {
    std::smatch match;
    if (std::regex_match(line, match, kInclude)) {
      check_include(path, number, match[1].str().front(), match[2].str(), findings);
    } else if (path.starts_with("scheduling/") && std::regex_search(line, match, impure_names())) {
      findings.push_back({std::string(path), number, "scheduling/ is pure and may not use " + match[1].str()});
    }
  });
  return findings;
}

std::vector<Finding> check_machine_paths(std::string_view path, std::string_view text, std::string_view source_dir) {
  // A slash, one of these, a slash, where no path goes on from the left ("../work/x" and "usr/home/x" are other
  // things).
  static const std::regex kPlaces("(^|[^A-Za-z0-9_.~/}-])(/(home|root|Users|work|builds|mnt|scratch)/[A-Za-z0-9_.]*)");
  std::vector<Finding> findings;
  for_each_line(text, [&](std::size_t number, const std::string& line) {
    std::smatch match;
    if (std::regex_search(line, match, kPlaces)) {
      findings.push_back({std::string(path), number, "names a place of one machine: " + match[2].str()});
    } else if (source_dir.size() > 4 && line.find(std::string(source_dir) + "/") != std::string::npos) {
      findings.push_back({std::string(path), number, "names the folder of this checkout: " + std::string(source_dir)});
    }
  });
  return findings;
}

}  // namespace troupe::layout
