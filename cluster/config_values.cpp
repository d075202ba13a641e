#include <algorithm>
#include <charconv>
#include <cmath>

#include "cluster/config_keys.hpp"

namespace troupe::cluster {
namespace {

std::string in_quotes(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  out += '"';
  return out;
}

std::string number_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  return {buffer, end};
}

std::string toml_number(double value) {
  std::string text = number_text(value);
  if (text.find_first_of(".einf") == std::string::npos) text += ".0";
  return text;
}

template <class List, class Each>
std::string list_text(const List& list, Each each) {
  std::string out = "[";
  for (const auto& item : list) {
    if (out.size() > 1) out += ", ";
    out += each(item);
  }
  return out + "]";
}

}  // namespace

double shortest_double(float value) {
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  double result = 0;
  std::from_chars(buffer, end, result);
  // Rounding twice, to double and to float, could in principle miss; then the exact double says it at greater length.
  return static_cast<float>(result) == value ? result : static_cast<double>(value);
}

std::string to_text(const ConfigValue& value) {
  struct Visitor {
    std::string operator()(std::monostate) const { return "(a value of another kind)"; }
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(std::int64_t v) const { return std::to_string(v); }
    std::string operator()(double v) const { return toml_number(v); }
    std::string operator()(const std::string& v) const { return in_quotes(v); }
    std::string operator()(const std::vector<std::int64_t>& v) const {
      return list_text(v, [](std::int64_t each) { return std::to_string(each); });
    }
    std::string operator()(const std::vector<double>& v) const { return list_text(v, toml_number); }
    std::string operator()(const std::vector<std::string>& v) const { return list_text(v, in_quotes); }
  };
  return std::visit(Visitor{}, value);
}

std::string range_text(const ConfigKey& key) {
  const auto with_unit = [&](std::string text) {
    if (!key.unit.empty()) text.append(" ").append(key.unit);
    return text;
  };
  switch (key.type) {
    case KeyType::kBool:
      return "true or false";
    case KeyType::kInteger:
    case KeyType::kIntegers: {
      if (key.most == INT64_MAX) return "an integer from " + std::to_string(key.least) + " to 2^63-1";
      const std::string range = std::to_string(key.least) + " to " + std::to_string(key.most);
      return with_unit((key.list() ? "a list of integers from " : "an integer from ") + range);
    }
    case KeyType::kNumber:
    case KeyType::kNumbers:
      return with_unit((key.list() ? "a list of numbers from " : "a number from ") + number_text(key.least_number) +
                       " to " + number_text(key.most_number));
    case KeyType::kString:
      return "a string";
    case KeyType::kStrings:
      return "a list of strings";
    case KeyType::kPath:
      return "a path";
    case KeyType::kChoice: {
      std::string text = key.choices.size() == 1 ? "" : "one of ";
      for (std::size_t i = 0; i < key.choices.size(); ++i) {
        if (i > 0) text += ", ";
        text += in_quotes(key.choices[i]);
      }
      return text;
    }
  }
  return "";
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, change});
    }
  }
  return row[b.size()];
}

std::optional<std::string_view> nearest(std::string_view word, std::span<const std::string_view> candidates) {
  // Words of any length come from files; no candidate is longer than this, so a longer word is near to none.
  if (word.size() > 80) return std::nullopt;
  std::optional<std::string_view> best;
  std::size_t least = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const std::string_view candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < least && distance < candidate.size()) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

std::string_view canonical_host(std::string_view host) {
  return host == "localhost" ? "127.0.0.1" : host;
}

bool is_loopback(std::string_view host) {
  if (host == "localhost" || host == "::1") return true;
  // 127.x.y.z, all of it numbers: 127.example.org is someone else's machine.
  if (host.substr(0, 4) != "127.") return false;
  int parts = 0;
  for (std::size_t at = 0; at <= host.size(); ++parts) {
    const std::size_t dot = std::min(host.find('.', at), host.size());
    unsigned number = 256;
    const auto [end, error] = std::from_chars(host.data() + at, host.data() + dot, number);
    if (error != std::errc{} || end != host.data() + dot || number > 255) return false;
    at = dot + 1;
  }
  return parts == 4;
}

}  // namespace troupe::cluster
