#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

/// Plain CSV: cells between commas, no quotes, no escapes. '#' starts a comment line, blank lines are skipped.
namespace troupe::cluster {

struct CsvLine {
  std::size_t number = 0;               ///< in the file, from 1
  std::vector<std::string_view> cells;  ///< without blanks around them; views into the text; at least one
};
std::vector<CsvLine> csv_lines(std::string_view text);

/// The whole cell as a number, or nullopt. csv_number takes finite numbers only.
std::optional<std::int64_t> csv_integer(std::string_view cell);
std::optional<double> csv_number(std::string_view cell);

}  // namespace troupe::cluster
