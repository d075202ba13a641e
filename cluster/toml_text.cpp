#include "cluster/toml_text.hpp"

#include <cerrno>
#include <cstring>
#include <exception>
#include <fstream>
#include <optional>
#include <system_error>

namespace troupe::cluster {
namespace {

constexpr std::size_t kMostText = std::size_t{16} << 20;
constexpr int kMostDots = 8;

// The parser limits the nesting of brackets, but a key like a.a.a.(...).a nests as deep as the text is long, and its
// tables are destroyed recursively. No key of ours has more than two dots. Returns the line of the first key that is
// too deep.
std::optional<std::size_t> line_of_deep_key(std::string_view text) {
  std::size_t line = 1;
  int dots = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') {
      ++line;
      dots = 0;
    } else if (c == '#') {
      while (i + 1 < text.size() && text[i + 1] != '\n') ++i;
    } else if (c == '"' || c == '\'') {
      const std::string_view triple = c == '"' ? "\"\"\"" : "'''";
      const bool many_lines = text.substr(i, 3) == triple;
      i += many_lines ? 3 : 1;
      // An unfinished string ends here with its line: the parser reports it.
      for (; i < text.size() && (many_lines || text[i] != '\n'); ++i) {
        if (text[i] == '\n') ++line;
        if (text[i] == '\\' && c == '"') {
          if (i + 1 < text.size() && text[i + 1] == '\n') ++line;
          ++i;
        } else if (many_lines ? text.substr(i, 3) == triple : text[i] == c) {
          i += many_lines ? 2 : 0;
          break;
        }
      }
      if (i < text.size() && text[i] == '\n') {
        ++line;
        dots = 0;
      }
    } else if (c == '.') {
      if (++dots > kMostDots) return line;
    } else if (c == '=' || c == ',' || c == '[' || c == ']' || c == '{' || c == '}') {
      dots = 0;
    }
  }
  return std::nullopt;
}

}  // namespace

Result<toml::table> parse_toml(std::string_view text, const std::string& name) {
  if (text.size() > kMostText) {
    return fail(ErrorCode::kBadConfig, name + ": " + std::to_string(text.size()) + " bytes of text; at most " +
                                           std::to_string(kMostText) + " are read");
  }
  if (const auto line = line_of_deep_key(text)) {
    return fail(ErrorCode::kBadConfig, name + ":" + std::to_string(*line) + ": a key of more than " +
                                           std::to_string(kMostDots) + " parts; no table is nested so deep");
  }
  try {
    return toml::parse(text, name);
  } catch (const toml::parse_error& e) {
    return fail(ErrorCode::kBadConfig,
                name + ":" + std::to_string(e.source().begin.line) + ": not TOML: " + std::string(e.description()));
  } catch (const std::exception& e) {
    return fail(ErrorCode::kBadConfig, name + ": not TOML: " + e.what());
  }
}

Result<std::string> read_text_file(const std::filesystem::path& file, std::size_t most_bytes) {
  std::error_code problem;
  const auto status = std::filesystem::status(file, problem);
  if (!std::filesystem::exists(status)) {
    return fail(ErrorCode::kBadConfig, file.string() + ": no such file; check the path");
  }
  if (std::filesystem::is_directory(status)) {
    return fail(ErrorCode::kBadConfig, file.string() + ": is a folder; name a file in it");
  }
  std::ifstream in(file, std::ios::binary);
  if (!in) {
    return fail(ErrorCode::kBadConfig, file.string() + ": cannot be read: " + std::strerror(errno));
  }
  std::string text;
  char buffer[65536];
  while (in.read(buffer, sizeof buffer) || in.gcount() > 0) {
    text.append(buffer, static_cast<std::size_t>(in.gcount()));
    if (text.size() > most_bytes) {
      return fail(ErrorCode::kBadConfig,
                  file.string() + ": larger than " + std::to_string(most_bytes) + " bytes, the most that is read");
    }
  }
  if (in.bad()) return fail(ErrorCode::kBadConfig, file.string() + ": reading stopped: " + std::strerror(errno));
  return text;
}

}  // namespace troupe::cluster
