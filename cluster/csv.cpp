#include "cluster/csv.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace troupe::cluster {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

template <class T>
std::optional<T> whole(std::string_view cell) {
  T value{};
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (error != std::errc{} || end != cell.data() + cell.size()) return std::nullopt;
  return value;
}

}  // namespace

std::vector<CsvLine> csv_lines(std::string_view text) {
  std::vector<CsvLine> lines;
  std::size_t number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = trimmed(text.substr(at, end - at));
    at = end + 1;
    ++number;
    if (line.empty() || line.front() == '#') continue;
    CsvLine result;
    result.number = number;
    for (std::size_t cell = 0; cell <= line.size();) {
      const std::size_t comma = std::min(line.find(',', cell), line.size());
      result.cells.push_back(trimmed(line.substr(cell, comma - cell)));
      cell = comma + 1;
    }
    lines.push_back(std::move(result));
  }
  return lines;
}

std::optional<std::int64_t> csv_integer(std::string_view cell) {
  return whole<std::int64_t>(cell);
}

std::optional<double> csv_number(std::string_view cell) {
  const auto value = whole<double>(cell);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

}  // namespace troupe::cluster
