#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "messages/codec.hpp"

/// The decoder's cursor. msgpack-c's own unpacker builds a tree before anyone can look at it, and reserves by the
/// counts that a stranger wrote; this one hands out one item at a time and checks each count against the bytes that are
/// left.
namespace troupe::messages::detail {

enum class Kind { kNil, kBool, kUnsigned, kNegative, kFloat32, kFloat64, kString, kBinary, kArray, kMap, kExtension };

/// One msgpack item: a number, a body, or the head of an array or map.
struct Item {
  Kind kind = Kind::kNil;
  bool boolean = false;
  std::uint64_t natural = 0;  ///< kUnsigned
  std::int64_t negative = 0;  ///< kNegative, always below 0
  double real = 0;            ///< kFloat32, kFloat64
  std::uint32_t count = 0;    ///< elements of kArray, pairs of kMap
  std::string_view body;      ///< bytes of kString, kBinary, kExtension: a view into the input
};

/// Every `read_*` returns false after an error; the first error stays and callers unwind at once. Owned by one thread.
class Reader {
 public:
  Reader(std::span<const std::byte> bytes, const CodecLimits& limits) : bytes_(bytes), limits_(limits) {}

  bool read_bool(bool& value);
  bool read_unsigned(std::uint64_t& value, std::uint64_t max);
  bool read_signed(std::int64_t& value, std::int64_t min, std::int64_t max);
  /// Finite floats only; a float32 item serves for a double. `single`: the value must be a float without loss.
  bool read_float(double& value, bool single);
  bool read_string(std::string& value);
  /// A bin of whole values of `unit` bytes.
  bool read_binary(std::string_view& body, std::size_t unit);
  /// The head of an array (map); refused if the count cannot fit into what is left at `min_bytes` per element (pair).
  bool open_array(std::uint32_t& count, std::size_t min_bytes);
  bool open_map(std::uint32_t& count, std::size_t min_bytes);
  /// After the elements of an opened array or map.
  void close() { --depth_; }
  /// Takes a nil if one is next.
  bool take_nil();
  /// Steps over one value of any kind.
  bool skip();
  /// The input must end here.
  bool expect_end();

  /// Notes an error at the current item and returns false.
  bool fail(ErrorCode code, std::string text);
  /// Puts a place in front of the error's path, for instance ".gpus" or "[3]"; called while unwinding.
  bool fail_in(std::string_view place);
  bool fail_in_field(std::string_view name);
  bool fail_in_element(std::uint32_t index);
  bool fail_in_key(std::string_view key);
  bool fail_twice(std::string_view key);
  bool fail_missing(std::string_view owner, std::uint32_t count);
  Error error() const;

 private:
  bool next(Item& item);
  bool number(std::size_t size, std::uint64_t& value);
  bool body(Item& item, Kind kind, std::uint64_t size);
  bool head(Item& item, Kind kind, std::uint64_t count);
  bool open(Kind kind, std::uint32_t& count, std::size_t min_bytes);
  bool wrong(const Item& found, std::string_view wanted);
  std::size_t left() const { return bytes_.size() - at_; }

  std::span<const std::byte> bytes_;
  CodecLimits limits_;
  std::size_t at_ = 0;
  std::size_t item_at_ = 0;  ///< where the current item began, for error texts
  std::size_t depth_ = 0;
  Error error_{ErrorCode::kNone, {}};
  std::string path_;
};

/// Errors: kLimit when `size` is over limits.max_bytes.
Result<void> check_size(std::string_view what, std::size_t size, const CodecLimits& limits);

/// Text from the network for a person's eyes: at most 64 bytes, anything unprintable as '?'.
std::string printable(std::string_view text);

}  // namespace troupe::messages::detail
