#include <algorithm>
#include <cmath>

#include "cluster/csv.hpp"
#include "cluster/toml_text.hpp"
#include "cluster/workload_parts.hpp"

/// Requests at the times of a recorded trace.
namespace troupe::cluster {
namespace {

constexpr std::size_t kMostFile = std::size_t{256} << 20;
constexpr std::int64_t kMostTokensOfRow = 1 << 24;

std::optional<std::int64_t> digits(std::string_view text, std::size_t at, std::size_t count) {
  if (at + count > text.size()) return std::nullopt;
  std::int64_t value = 0;
  for (const char c : text.substr(at, count)) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + (c - '0');
  }
  return value;
}

// Days from 1970-01-01 (Hinnant, "chrono-compatible low-level date algorithms").
std::int64_t days_of(std::int64_t year, std::int64_t month, std::int64_t day) {
  year -= month <= 2 ? 1 : 0;
  const std::int64_t era = year / 400;
  const std::int64_t of_era = year - era * 400;
  const std::int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

/// "2023-11-16 18:17:03.9799600", with up to nine decimals, 'T' for the blank, or plain seconds: nanoseconds.
std::optional<std::int64_t> time_ns(std::string_view text) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  if (text.size() < 19 || text[4] != '-') {
    const auto seconds = csv_number(text);
    if (!seconds || *seconds < 0 || *seconds > 4e9) return std::nullopt;
    return static_cast<std::int64_t>(std::llround(*seconds * 1e9));
  }
  const auto year = digits(text, 0, 4);
  const auto month = digits(text, 5, 2);
  const auto day = digits(text, 8, 2);
  const auto hour = digits(text, 11, 2);
  const auto minute = digits(text, 14, 2);
  const auto second = digits(text, 17, 2);
  if (!year || !month || !day || !hour || !minute || !second) return std::nullopt;
  if (text[7] != '-' || (text[10] != ' ' && text[10] != 'T') || text[13] != ':' || text[16] != ':') return std::nullopt;
  if (*year < 1970 || *year > 2200 || *month < 1 || *month > 12 || *day < 1 || *day > 31 || *hour > 23 ||
      *minute > 59 || *second > 60) {
    return std::nullopt;
  }
  std::int64_t fraction = 0;
  if (text.size() > 19) {
    const std::size_t places = text.size() - 20;
    const auto value = digits(text, 20, places);
    if (text[19] != '.' || places < 1 || places > 9 || !value) return std::nullopt;
    fraction = *value;
    for (std::size_t i = places; i < 9; ++i) fraction *= 10;
  }
  return ((days_of(*year, *month, *day) * 24 + *hour) * 60 + *minute) * 60 * kSecond + *second * kSecond + fraction;
}

struct Arrival {
  std::int64_t ns = 0;
  std::uint64_t tokens = 0;
};

class ArrivalFile {
 public:
  explicit ArrivalFile(std::string file) : file_(std::move(file)) {}

  /// Rows until `tokens` are reached; the last is cut short to fit.
  Result<std::vector<Arrival>> read(std::string_view text, std::uint64_t tokens) const {
    std::vector<Arrival> rows;
    std::uint64_t total = 0;
    for (const CsvLine& line : csv_lines(text)) {
      if (line.cells[0] == "TIMESTAMP") continue;
      auto row = read_row(line);
      if (!row) return tl::unexpected<Error>(row.error());
      if (!rows.empty() && row->ns < rows.back().ns) {
        return wrong(line,
                     "time " + std::string(line.cells[0]) + " is before that of the line above; sort the file by time");
      }
      row->tokens = std::min(row->tokens, tokens - total);
      total += row->tokens;
      if (row->tokens > 0) rows.push_back(*row);
      if (total == tokens) return rows;
    }
    return fail(ErrorCode::kBadConfig, file_ + ": " + std::to_string(total) +
                                           " tokens arrive in all, but workload.tokens = " + std::to_string(tokens) +
                                           "; set at most that many");
  }

 private:
  tl::unexpected<Error> wrong(const CsvLine& line, const std::string& text) const {
    return fail(ErrorCode::kBadConfig, file_ + ":" + std::to_string(line.number) + ": " + text);
  }
  Result<Arrival> read_row(const CsvLine& line) const {
    if (line.cells.size() != 2 && line.cells.size() != 3) {
      return wrong(line,
                   std::to_string(line.cells.size()) + " cells; a line is TIMESTAMP,ContextTokens,GeneratedTokens");
    }
    const auto ns = time_ns(line.cells[0]);
    if (!ns) {
      return wrong(
          line, "time \"" + std::string(line.cells[0]) + "\" is neither like 2023-11-16 18:17:03.9799600 nor seconds");
    }
    Arrival arrival{*ns, 0};
    for (std::size_t i = 1; i < line.cells.size(); ++i) {
      const auto count = csv_integer(line.cells[i]);
      if (!count || *count < 0 || *count > kMostTokensOfRow) {
        return wrong(line, "token count \"" + std::string(line.cells[i]) + "\" is not an integer from 0 to " +
                               std::to_string(kMostTokensOfRow));
      }
      arrival.tokens += static_cast<std::uint64_t>(*count);
    }
    return arrival;
  }

  std::string file_;
};

class ArrivalsLayout : public RequestLayout {
 public:
  ArrivalsLayout(const WorkloadConfig& w, const std::vector<Arrival>& rows) : size_(w.tokens_per_request) {
    std::vector<std::uint64_t> sequences(w.streams, 0);
    std::uint64_t number = 0;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      Piece piece;
      piece.first_request = requests_;
      piece.stream = r % w.streams;
      piece.first_sequence = sequences[piece.stream];
      piece.first_number = number;
      piece.tokens = rows[r].tokens;
      piece.at_ns = static_cast<std::uint64_t>(static_cast<double>(rows[r].ns - rows[0].ns) / w.arrivals_speed);
      sequences[piece.stream] += piece.tokens;
      number += piece.tokens;
      requests_ += (piece.tokens + size_ - 1) / size_;
      pieces_.push_back(piece);
    }
  }

  std::uint64_t requests() const override { return requests_; }
  RequestPlace request(std::uint64_t index) const override {
    const auto after = std::upper_bound(pieces_.begin(), pieces_.end(), index,
                                        [](std::uint64_t i, const Piece& piece) { return i < piece.first_request; });
    const Piece& piece = *(after - 1);
    const std::uint64_t offset = (index - piece.first_request) * size_;
    RequestPlace place;
    place.stream = piece.stream;
    place.first_sequence = piece.first_sequence + offset;
    place.first_number = piece.first_number + offset;
    place.tokens = static_cast<std::uint32_t>(std::min<std::uint64_t>(size_, piece.tokens - offset));
    place.at_ns = piece.at_ns;
    return place;
  }

 private:
  /// One row of the file: consecutive tokens of one stream, and consecutive in the run.
  struct Piece {
    std::uint64_t first_request = 0;
    std::uint64_t stream = 0;
    std::uint64_t first_sequence = 0;
    std::uint64_t first_number = 0;
    std::uint64_t tokens = 0;
    std::uint64_t at_ns = 0;
  };
  std::uint64_t size_;
  std::uint64_t requests_ = 0;
  std::vector<Piece> pieces_;
};

}  // namespace

Result<std::unique_ptr<RequestLayout>> make_arrivals_layout(const WorkloadConfig& workload) {
  auto text = read_text_file(workload.arrivals, kMostFile);
  if (!text) return tl::unexpected<Error>(text.error());
  auto rows = ArrivalFile(workload.arrivals.string()).read(*text, workload.tokens);
  if (!rows) return tl::unexpected<Error>(rows.error());
  return std::unique_ptr<RequestLayout>(std::make_unique<ArrivalsLayout>(workload, *rows));
}

}  // namespace troupe::cluster
