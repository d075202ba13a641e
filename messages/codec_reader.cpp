#include "messages/codec_reader.hpp"

#include <bit>
#include <cmath>
#include <utility>

namespace troupe::messages::detail {

namespace {

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::kNil:
      return "nil";
    case Kind::kBool:
      return "a bool";
    case Kind::kUnsigned:
      return "an integer";
    case Kind::kNegative:
      return "a negative integer";
    case Kind::kFloat32:
    case Kind::kFloat64:
      return "a float";
    case Kind::kString:
      return "a string";
    case Kind::kBinary:
      return "a bin";
    case Kind::kArray:
      return "an array";
    case Kind::kMap:
      return "a map";
    case Kind::kExtension:
      return "an extension";
  }
  return "nothing";
}

}  // namespace

bool Reader::fail(ErrorCode code, std::string text) {
  if (error_.code == ErrorCode::kNone) error_ = {code, "byte " + std::to_string(item_at_) + ": " + std::move(text)};
  return false;
}

bool Reader::fail_in(std::string_view place) {
  std::string longer(place);
  longer.append(path_);
  path_ = std::move(longer);
  return false;
}

bool Reader::fail_in_field(std::string_view name) {
  fail_in(name);
  return fail_in(".");
}

bool Reader::fail_in_element(std::uint32_t index) {
  fail_in("]");
  fail_in(std::to_string(index));
  return fail_in("[");
}

bool Reader::fail_in_key(std::string_view key) {
  fail_in("']");
  fail_in(printable(key));
  return fail_in("['");
}

bool Reader::fail_twice(std::string_view key) {
  return fail(ErrorCode::kBadMessage, "key '" + printable(key) + "' comes twice");
}

bool Reader::fail_missing(std::string_view owner, std::uint32_t count) {
  return fail(ErrorCode::kBadMessage,
              std::string(owner) + " has " + std::to_string(count) + " fields; this one is missing");
}

Error Reader::error() const {
  return {error_.code, path_ + ": " + error_.message};
}

bool Reader::wrong(const Item& found, std::string_view wanted) {
  return fail(ErrorCode::kBadMessage, std::string(name_of(found.kind)) + " where " + std::string(wanted) + " belongs");
}

// Big-endian, as msgpack writes all its numbers.
bool Reader::number(std::size_t size, std::uint64_t& value) {
  if (left() < size) return fail(ErrorCode::kBadMessage, "the input ends within a number or count");
  value = 0;
  for (std::size_t i = 0; i < size; ++i) value = (value << 8) | std::to_integer<std::uint64_t>(bytes_[at_ + i]);
  at_ += size;
  return true;
}

bool Reader::body(Item& item, Kind kind, std::uint64_t size) {
  if (size > left()) {
    return fail(ErrorCode::kBadMessage, std::string(name_of(kind)) + " of " + std::to_string(size) +
                                            " bytes, but only " + std::to_string(left()) + " follow");
  }
  item.kind = kind;
  item.body = {reinterpret_cast<const char*>(bytes_.data()) + at_, static_cast<std::size_t>(size)};
  at_ += static_cast<std::size_t>(size);
  return true;
}

bool Reader::head(Item& item, Kind kind, std::uint64_t count) {
  item.kind = kind;
  item.count = static_cast<std::uint32_t>(count);
  return true;
}

bool Reader::next(Item& item) {
  item_at_ = at_;
  if (left() == 0) return fail(ErrorCode::kBadMessage, "the input ends where a value belongs");
  const auto tag = std::to_integer<std::uint8_t>(bytes_[at_++]);
  std::uint64_t value = 0;
  const auto natural = [&](std::size_t size) {
    item.kind = Kind::kUnsigned;
    return number(size, item.natural);
  };
  const auto integer = [&](std::size_t size) {
    if (!number(size, value)) return false;
    const auto shift = static_cast<int>(64 - 8 * size);
    const auto with_sign = static_cast<std::int64_t>(value << shift) >> shift;
    item.kind = with_sign < 0 ? Kind::kNegative : Kind::kUnsigned;
    item.negative = with_sign;
    item.natural = static_cast<std::uint64_t>(with_sign);
    return true;
  };
  const auto sized_body = [&](Kind kind, std::size_t size_bytes, std::uint64_t extra) {
    return number(size_bytes, value) && body(item, kind, value + extra);
  };
  const auto sized_head = [&](Kind kind, std::size_t size_bytes) {
    return number(size_bytes, value) && head(item, kind, value);
  };
  if (tag <= 0x7f) {
    item.kind = Kind::kUnsigned;
    item.natural = tag;
    return true;
  }
  if (tag >= 0xe0) {
    item.kind = Kind::kNegative;
    item.negative = static_cast<std::int8_t>(tag);
    return true;
  }
  if (tag <= 0x8f) return head(item, Kind::kMap, tag & 0x0fU);
  if (tag <= 0x9f) return head(item, Kind::kArray, tag & 0x0fU);
  if (tag <= 0xbf) return body(item, Kind::kString, tag & 0x1fU);
  switch (tag) {
    case 0xc0:
      item.kind = Kind::kNil;
      return true;
    case 0xc2:
    case 0xc3:
      item.kind = Kind::kBool;
      item.boolean = tag == 0xc3;
      return true;
    case 0xc4:
      return sized_body(Kind::kBinary, 1, 0);
    case 0xc5:
      return sized_body(Kind::kBinary, 2, 0);
    case 0xc6:
      return sized_body(Kind::kBinary, 4, 0);
    case 0xc7:
      return sized_body(Kind::kExtension, 1, 1);  // one more byte: the extension's type
    case 0xc8:
      return sized_body(Kind::kExtension, 2, 1);
    case 0xc9:
      return sized_body(Kind::kExtension, 4, 1);
    case 0xca:
      if (!number(4, value)) return false;
      item.kind = Kind::kFloat32;
      item.real = static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(value)));
      return true;
    case 0xcb:
      if (!number(8, value)) return false;
      item.kind = Kind::kFloat64;
      item.real = std::bit_cast<double>(value);
      return true;
    case 0xcc:
      return natural(1);
    case 0xcd:
      return natural(2);
    case 0xce:
      return natural(4);
    case 0xcf:
      return natural(8);
    case 0xd0:
      return integer(1);
    case 0xd1:
      return integer(2);
    case 0xd2:
      return integer(4);
    case 0xd3:
      return integer(8);
    case 0xd4:
      return body(item, Kind::kExtension, 2);
    case 0xd5:
      return body(item, Kind::kExtension, 3);
    case 0xd6:
      return body(item, Kind::kExtension, 5);
    case 0xd7:
      return body(item, Kind::kExtension, 9);
    case 0xd8:
      return body(item, Kind::kExtension, 17);
    case 0xd9:
      return sized_body(Kind::kString, 1, 0);
    case 0xda:
      return sized_body(Kind::kString, 2, 0);
    case 0xdb:
      return sized_body(Kind::kString, 4, 0);
    case 0xdc:
      return sized_head(Kind::kArray, 2);
    case 0xdd:
      return sized_head(Kind::kArray, 4);
    case 0xde:
      return sized_head(Kind::kMap, 2);
    case 0xdf:
      return sized_head(Kind::kMap, 4);
    default:
      return fail(ErrorCode::kBadMessage, "0xc1, which msgpack does not use");
  }
}

bool Reader::read_bool(bool& value) {
  Item item;
  if (!next(item)) return false;
  if (item.kind != Kind::kBool) return wrong(item, "a bool");
  value = item.boolean;
  return true;
}

bool Reader::read_unsigned(std::uint64_t& value, std::uint64_t max) {
  Item item;
  if (!next(item)) return false;
  if (item.kind == Kind::kNegative) {
    return fail(ErrorCode::kBadMessage, std::to_string(item.negative) + " is below 0");
  }
  if (item.kind != Kind::kUnsigned) return wrong(item, "an integer");
  if (item.natural > max) {
    return fail(ErrorCode::kBadMessage, std::to_string(item.natural) + " is over " + std::to_string(max));
  }
  value = item.natural;
  return true;
}

bool Reader::read_signed(std::int64_t& value, std::int64_t min, std::int64_t max) {
  Item item;
  if (!next(item)) return false;
  if (item.kind == Kind::kUnsigned) {
    if (item.natural > static_cast<std::uint64_t>(max)) {
      return fail(ErrorCode::kBadMessage, std::to_string(item.natural) + " is over " + std::to_string(max));
    }
    value = static_cast<std::int64_t>(item.natural);
    return true;
  }
  if (item.kind != Kind::kNegative) return wrong(item, "an integer");
  if (item.negative < min) {
    return fail(ErrorCode::kBadMessage, std::to_string(item.negative) + " is below " + std::to_string(min));
  }
  value = item.negative;
  return true;
}

bool Reader::read_float(double& value, bool single) {
  Item item;
  if (!next(item)) return false;
  if (item.kind != Kind::kFloat32 && item.kind != Kind::kFloat64) return wrong(item, "a float");
  if (!std::isfinite(item.real)) return fail(ErrorCode::kBadMessage, "a float that is NaN or infinite");
  if (single && item.kind == Kind::kFloat64) {
    // Checked before the cast: a double beyond float's range has no defined float.
    if (std::fabs(item.real) > static_cast<double>(std::numeric_limits<float>::max()) ||
        static_cast<double>(static_cast<float>(item.real)) != item.real) {
      return fail(ErrorCode::kBadMessage, "a float64 that no float32 holds");
    }
  }
  value = item.real;
  return true;
}

bool Reader::read_string(std::string& value) {
  Item item;
  if (!next(item)) return false;
  if (item.kind != Kind::kString) return wrong(item, "a string");
  if (item.body.size() > limits_.max_string_bytes) {
    return fail(ErrorCode::kLimit, "a string of " + std::to_string(item.body.size()) + " bytes, the limit is " +
                                       std::to_string(limits_.max_string_bytes));
  }
  value.assign(item.body);
  return true;
}

bool Reader::read_binary(std::string_view& bytes, std::size_t unit) {
  Item item;
  if (!next(item)) return false;
  if (item.kind != Kind::kBinary) return wrong(item, "a bin");
  if (item.body.size() % unit != 0) {
    return fail(ErrorCode::kBadMessage,
                "a bin of " + std::to_string(item.body.size()) + " bytes, not a multiple of " + std::to_string(unit));
  }
  bytes = item.body;
  return true;
}

bool Reader::open(Kind kind, std::uint32_t& count, std::size_t min_bytes) {
  Item item;
  if (!next(item)) return false;
  if (item.kind != kind) return wrong(item, name_of(kind));
  if (depth_ >= limits_.max_depth) {
    return fail(ErrorCode::kLimit, "nested deeper than " + std::to_string(limits_.max_depth));
  }
  if (item.count > limits_.max_elements) {
    return fail(ErrorCode::kLimit, std::string(name_of(kind)) + " of " + std::to_string(item.count) +
                                       " elements, the limit is " + std::to_string(limits_.max_elements));
  }
  if (item.count > left() / min_bytes) {
    return fail(ErrorCode::kBadMessage, std::string(name_of(kind)) + " of " + std::to_string(item.count) +
                                            " elements, but only " + std::to_string(left()) + " bytes follow");
  }
  ++depth_;
  count = item.count;
  return true;
}

bool Reader::open_array(std::uint32_t& count, std::size_t min_bytes) {
  return open(Kind::kArray, count, min_bytes);
}

bool Reader::open_map(std::uint32_t& count, std::size_t min_bytes) {
  return open(Kind::kMap, count, min_bytes);
}

bool Reader::take_nil() {
  if (left() == 0 || bytes_[at_] != std::byte{0xc0}) return false;
  ++at_;
  return true;
}

bool Reader::skip() {
  Item item;
  if (!next(item)) return false;
  if (item.kind != Kind::kArray && item.kind != Kind::kMap) return true;
  at_ = item_at_;  // once more, with the checks of open()
  std::uint32_t count = 0;
  const bool map = item.kind == Kind::kMap;
  if (!open(item.kind, count, map ? 2 : 1)) return false;
  for (std::uint64_t i = 0; i < std::uint64_t{count} * (map ? 2 : 1); ++i) {
    if (!skip()) return false;
  }
  close();
  return true;
}

bool Reader::expect_end() {
  if (left() == 0) return true;
  item_at_ = at_;
  return fail(ErrorCode::kBadMessage, std::to_string(left()) + " bytes follow the end of the message");
}

Result<void> check_size(std::string_view what, std::size_t size, const CodecLimits& limits) {
  if (size <= limits.max_bytes) return {};
  return troupe::fail(ErrorCode::kLimit, std::string(what) + ": " + std::to_string(size) + " bytes, the limit is " +
                                             std::to_string(limits.max_bytes));
}

std::string printable(std::string_view text) {
  constexpr std::size_t kMost = 64;
  std::string shown;
  for (const char c : text.substr(0, kMost)) shown.push_back(c >= 0x20 && c < 0x7f ? c : '?');
  if (text.size() > kMost) shown += "...";
  return shown;
}

}  // namespace troupe::messages::detail
