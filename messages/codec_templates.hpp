#pragma once

#include <concepts>
#include <cstring>
#include <limits>
#include <map>
#include <new>
#include <optional>
#include <string>
#include <type_traits>

#include "messages/codec.hpp"
#include "messages/codec_messages.hpp"
#include "messages/codec_packer.hpp"
#include "messages/codec_reader.hpp"

/// The definitions behind messages/codec.hpp. Slow to compile: include it only in the .cpp that instantiates encode and
/// decode for structs of its own; whoever uses the messages of control.hpp and client.hpp needs codec.hpp alone.
namespace troupe::messages::detail {

/// Name and fields of all that travels as an array of fields: described structs, and the ids.
template <class T>
struct Shape;
template <Described T>
struct Shape<T> {
  static constexpr std::string_view kName = T::kName;
  static constexpr auto kFields = T::kFields;
};
template <>
struct Shape<ExpertId> {
  static constexpr std::string_view kName = "ExpertId";
  static constexpr auto kFields = std::tuple{field("layer", &ExpertId::layer), field("expert", &ExpertId::expert)};
};
template <>
struct Shape<GpuId> {
  static constexpr std::string_view kName = "GpuId";
  static constexpr auto kFields = std::tuple{field("node", &GpuId::node), field("gpu", &GpuId::gpu)};
};
template <>
struct Shape<StepId> {
  static constexpr std::string_view kName = "StepId";
  static constexpr auto kFields = std::tuple{field("pass", &StepId::pass), field("layer", &StepId::layer)};
};

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

template <class T>
concept Shaped = requires {
  Shape<T>::kFields;
};
template <class T>
concept Integer = std::integral<T> && !std::same_as<T, bool>;
/// Elements of vectors that travel as one bin.
template <class T>
concept Bulk = std::same_as<T, std::byte> || std::same_as<T, std::uint8_t> || std::same_as<T, std::int32_t> ||
    std::same_as<T, float>;

/// One type's side of the codec: kMinBytes (fewest bytes of it on the wire), write, read.
template <class T>
struct Codec;

template <>
struct Codec<bool> {
  static constexpr std::size_t kMinBytes = 1;
  static void write(Packer& packer, bool value) { value ? packer.pack_true() : packer.pack_false(); }
  static bool read(Reader& reader, bool& value) { return reader.read_bool(value); }
};

template <Integer T>
struct Codec<T> {
  static constexpr std::size_t kMinBytes = 1;
  static void write(Packer& packer, T value) {
    if constexpr (std::unsigned_integral<T>) {
      packer.pack_uint64(value);  // the shortest form that holds the value
    } else {
      packer.pack_int64(value);
    }
  }
  static bool read(Reader& reader, T& value) {
    if constexpr (std::unsigned_integral<T>) {
      std::uint64_t wide = 0;
      if (!reader.read_unsigned(wide, std::numeric_limits<T>::max())) return false;
      value = static_cast<T>(wide);
    } else {
      std::int64_t wide = 0;
      if (!reader.read_signed(wide, std::numeric_limits<T>::min(), std::numeric_limits<T>::max())) return false;
      value = static_cast<T>(wide);
    }
    return true;
  }
};

/// An enum may have `bool is_known(E)` beside it; without one any number of its underlying type is taken.
template <class T>
requires std::is_enum_v<T>
struct Codec<T> {
  using Number = std::underlying_type_t<T>;
  static constexpr std::size_t kMinBytes = 1;
  static void write(Packer& packer, T value) { Codec<Number>::write(packer, static_cast<Number>(value)); }
  static bool read(Reader& reader, T& value) {
    Number number{};
    if (!Codec<Number>::read(reader, number)) return false;
    value = static_cast<T>(number);
    if constexpr (requires { is_known(value); }) {
      if (!is_known(value)) return reader.fail(ErrorCode::kBadMessage, std::to_string(+number) + " is no known value");
    }
    return true;
  }
};

template <std::floating_point T>
struct Codec<T> {
  static constexpr std::size_t kMinBytes = 5;
  static void write(Packer& packer, T value) {
    if constexpr (std::same_as<T, float>) {
      packer.pack_float32(value);
    } else {
      packer.pack_float64(value);
    }
  }
  static bool read(Reader& reader, T& value) {
    double wide = 0;
    if (!reader.read_float(wide, std::same_as<T, float>)) return false;
    value = static_cast<T>(wide);
    return true;
  }
};

template <>
struct Codec<std::string> {
  static constexpr std::size_t kMinBytes = 1;
  static void write(Packer& packer, const std::string& value) {
    packer.pack_str(checked_size(value.size()));
    packer.pack_str_body(value.data(), checked_size(value.size()));
  }
  static bool read(Reader& reader, std::string& value) { return reader.read_string(value); }
};

template <class Tag, class Number>
struct Codec<StrongId<Tag, Number>> {
  static constexpr std::size_t kMinBytes = 1;
  static void write(Packer& packer, StrongId<Tag, Number> id) { Codec<Number>::write(packer, id.value); }
  static bool read(Reader& reader, StrongId<Tag, Number>& id) { return Codec<Number>::read(reader, id.value); }
};

template <class T>
struct Codec<std::optional<T>> {
  static_assert(!IsOptional<T>::value, "nil cannot say which of two optionals is empty");
  static constexpr std::size_t kMinBytes = 1;
  static void write(Packer& packer, const std::optional<T>& value) {
    value ? Codec<T>::write(packer, *value) : static_cast<void>(packer.pack_nil());
  }
  static bool read(Reader& reader, std::optional<T>& value) {
    value.reset();
    return reader.take_nil() || Codec<T>::read(reader, value.emplace());
  }
};

template <class T>
struct Codec<std::vector<T>> {
  static constexpr std::size_t kMinBytes = 1;
  static void write(Packer& packer, const std::vector<T>& values) {
    if constexpr (Bulk<T>) {
      const auto size = checked_size(values.size() * sizeof(T));
      packer.pack_bin(size);
      packer.pack_bin_body(reinterpret_cast<const char*>(values.data()), size);
    } else {
      packer.pack_array(checked_size(values.size()));
      for (const auto& value : values) Codec<T>::write(packer, value);
    }
  }
  static bool read(Reader& reader, std::vector<T>& values) {
    if constexpr (Bulk<T>) {
      std::string_view body;
      if (!reader.read_binary(body, sizeof(T))) return false;
      values.resize(body.size() / sizeof(T));
      if (!body.empty()) std::memcpy(values.data(), body.data(), body.size());
      return true;
    } else {
      static_assert(sizeof(T) <= 32 * Codec<T>::kMinBytes, "a few bytes of input could fill too much memory");
      std::uint32_t count = 0;
      if (!reader.open_array(count, Codec<T>::kMinBytes)) return false;
      values.clear();
      values.reserve(count);
      for (std::uint32_t i = 0; i < count; ++i) {
        if (!Codec<T>::read(reader, values.emplace_back())) return reader.fail_in_element(i);
      }
      reader.close();
      return true;
    }
  }
};

template <class T>
struct Codec<std::map<std::string, T>> {
  static constexpr std::size_t kMinBytes = 1;
  static void write(Packer& packer, const std::map<std::string, T>& values) {
    packer.pack_map(checked_size(values.size()));
    for (const auto& [key, value] : values) {
      Codec<std::string>::write(packer, key);
      Codec<T>::write(packer, value);
    }
  }
  static bool read(Reader& reader, std::map<std::string, T>& values) {
    constexpr std::size_t kMinPair = 1 + Codec<T>::kMinBytes;
    // 48: a tree node's links and the allocator's own.
    static_assert(sizeof(std::pair<std::string, T>) + 48 <= 64 * kMinPair,
                  "a few bytes of input could fill too much memory");
    std::uint32_t count = 0;
    if (!reader.open_map(count, kMinPair)) return false;
    values.clear();
    for (std::uint32_t i = 0; i < count; ++i) {
      std::string key;
      if (!reader.read_string(key)) return reader.fail_in_element(i);
      const auto [slot, fresh] = values.try_emplace(key);
      if (!fresh) return reader.fail_twice(key);
      if (!Codec<T>::read(reader, slot->second)) return reader.fail_in_key(key);
    }
    reader.close();
    return true;
  }
};

template <Shaped T>
struct Codec<T> {
  template <class Struct, class Member>
  static constexpr bool may_miss(const Field<Struct, Member>& each) {
    return each.presence == Presence::kOptional || IsOptional<Member>::value;
  }
  template <class Struct, class Member>
  static constexpr std::size_t min_bytes(const Field<Struct, Member>& each) {
    return may_miss(each) ? 0 : Codec<Member>::kMinBytes;
  }
  static constexpr std::size_t kFieldCount = std::tuple_size_v<std::remove_const_t<decltype(Shape<T>::kFields)>>;
  static constexpr std::size_t kMinBytes =
      1 + std::apply([](const auto&... each) { return (std::size_t{0} + ... + min_bytes(each)); }, Shape<T>::kFields);

  // Out of line: inlined into each other, the messages are slow to compile.
  [[gnu::noinline]] static void write(Packer& packer, const T& value) {
    packer.pack_array(static_cast<std::uint32_t>(kFieldCount));
    std::apply([&](const auto&... each) { (write_field(packer, value.*(each.member)), ...); }, Shape<T>::kFields);
  }
  [[gnu::noinline]] static bool read(Reader& reader, T& value) {
    std::uint32_t count = 0;
    if (!reader.open_array(count, 1)) return false;
    std::uint32_t index = 0;
    const bool known =
        std::apply([&](const auto&... each) { return (read_field(reader, value, each, index++, count) && ...); },
                   Shape<T>::kFields);
    if (!known) return false;
    for (; index < count; ++index) {  // from a newer sender
      if (!reader.skip()) return reader.fail_in_element(index);
    }
    reader.close();
    return true;
  }

 private:
  template <class Member>
  static void write_field(Packer& packer, const Member& member) {
    Codec<Member>::write(packer, member);
  }
  template <class Struct, class Member>
  static bool read_field(Reader& reader, T& value, const Field<Struct, Member>& each, std::uint32_t index,
                         std::uint32_t count) {
    if (index >= count) {
      if (may_miss(each)) return true;
      reader.fail_missing(Shape<T>::kName, count);
    } else if (Codec<Member>::read(reader, value.*(each.member))) {
      return true;
    }
    return reader.fail_in_field(each.name);
  }
};

template <class T>
constexpr std::string_view name_of_type() {
  if constexpr (Shaped<T>) return Shape<T>::kName;
  return "value";
}

template <class T>
void write_value(Packer& packer, const T& value) {
  Codec<T>::write(packer, value);
}

template <class T>
bool read_value(Reader& reader, T& value) {
  return Codec<T>::read(reader, value) || reader.fail_in(name_of_type<T>());
}

}  // namespace troupe::messages::detail

namespace troupe::messages {

template <class T>
std::vector<std::byte> encode(const T& value) {
  detail::ByteSink sink;
  detail::Packer packer(sink);
  detail::write_value(packer, value);
  return std::move(sink.bytes);
}

template <class T>
Result<T> decode(std::span<const std::byte> bytes, const CodecLimits& limits) {
  constexpr auto kWhere = detail::name_of_type<T>();
  if (auto fits = detail::check_size(kWhere, bytes.size(), limits); !fits) return tl::unexpected<Error>(fits.error());
  try {
    detail::Reader reader(bytes, limits);
    T value{};
    if (!detail::read_value(reader, value)) return tl::unexpected<Error>(reader.error());
    if (!reader.expect_end()) {
      reader.fail_in(kWhere);
      return tl::unexpected<Error>(reader.error());
    }
    return value;
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kLimit, "no memory to decode " + std::to_string(bytes.size()) + " bytes");
  }
}

}  // namespace troupe::messages
