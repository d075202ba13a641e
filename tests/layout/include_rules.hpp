#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Which folder may include what (docs/architecture.md, "The house"), as data, and the check of one file against it.
namespace troupe::layout {

/// One offence. `line` counts from 1.
struct Finding {
  std::string path;
  std::size_t line = 0;
  std::string message;
};

/// path: relative to the project, with slashes; text: the file. Looks at #include lines, and in scheduling/ at names
/// that would make it impure. Comments are not looked at.
std::vector<Finding> check_source(std::string_view path, std::string_view text);

/// A file of any kind must name no place of one machine: home folders and the like, or source_dir itself.
std::vector<Finding> check_machine_paths(std::string_view path, std::string_view text, std::string_view source_dir);

/// The text without // and block comments; line numbers stay as they are. String literals are kept.
std::string without_comments(std::string_view text);

}  // namespace troupe::layout
