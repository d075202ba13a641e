#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "messages/error.hpp"
#include "messages/fields.hpp"

/// The msgpack codec, driven by a struct's one field list.
///
/// On the wire: a described struct is an array of its fields in the order of the list, an id (ExpertId, GpuId, StepId)
/// an array of its numbers, a StrongId its number, a std::map<std::string, T> a map, a std::optional nil or the value,
/// an enum its number, and a vector an array; but a vector of std::byte, std::uint8_t, std::int32_t or float is one
/// msgpack bin of little-endian values, so that bulk costs a memcpy.
namespace troupe::messages {

/// What a decoder allows. An element count is also tied to the bytes that are there: five bytes cannot ask for more
/// memory than five bytes can fill.
struct CodecLimits {
  std::size_t max_bytes = std::size_t{64} << 20;         ///< of the whole input
  std::size_t max_string_bytes = std::size_t{64} << 10;  ///< of one string; bins are bounded by max_bytes alone
  std::size_t max_elements = std::size_t{1} << 20;       ///< of one array or map; bins are bounded by max_bytes alone
  std::size_t max_depth = 16;                            ///< arrays and maps within each other
};

/// The msgpack bytes of a value. Scalar floats must be finite and strings within CodecLimits, else the receiver refuses
/// them. A string, bin or array of 4 GiB or more cannot be said in msgpack and stops the program. Any thread.
template <class T>
std::vector<std::byte> encode(const T& value);

/// The value that `bytes` hold, all of them. Unknown fields at the end of a struct are skipped; a missing one is
/// refused unless it is an optional_field or a std::optional. Integers are range-checked; scalar floats must be finite;
/// the floats of a bulk vector pass bit for bit, non-finite ones too, for whoever uses them to judge. Strings may hold
/// any bytes. Errors: kBadMessage, kLimit; the text names struct, field and byte offset. Never throws; takes at most 64
/// times bytes.size() of memory. Any thread.
///
/// Compiled in codec.cpp for the messages of control.hpp and client.hpp; for a struct of your own include
/// messages/codec_templates.hpp in the one .cpp that encodes or decodes it.
template <class T>
Result<T> decode(std::span<const std::byte> bytes, const CodecLimits& limits = {});

}  // namespace troupe::messages
