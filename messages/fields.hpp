#pragma once

#include <concepts>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "messages/ids.hpp"

/// One field list per message struct. A struct says
///
///     static constexpr std::string_view kName = "PassOpened";
///     static constexpr auto kFields = std::tuple{field("view", &PassOpened::view), ...};
///
/// and that one list drives the msgpack codec (messages/codec.hpp), CAF's `inspect` (below), comparison in tests and
/// JSON. On the wire a struct is an array of its fields in this order: new fields go at the end, and are optional.
namespace troupe::messages {

enum class Presence { kRequired, kOptional };

template <class Struct, class Member>
struct Field {
  std::string_view name;
  Member Struct::*member;
  Presence presence;
};

template <class Struct, class Member>
constexpr Field<Struct, Member> field(std::string_view name, Member Struct::*member) {
  return {name, member, Presence::kRequired};
}

/// A field that older senders do not have: when it is missing the member keeps its default.
template <class Struct, class Member>
constexpr Field<Struct, Member> optional_field(std::string_view name, Member Struct::*member) {
  return {name, member, Presence::kOptional};
}

/// A struct with a field list.
template <class T>
concept Described = requires {
  { T::kName } -> std::convertible_to<std::string_view>;
  T::kFields;
};

/// Calls `f(field)` for each field of T in wire order.
template <Described T, class F>
constexpr void for_each_field(F&& f) {
  std::apply([&](const auto&... each) { (f(each), ...); }, T::kFields);
}

/// CAF's inspect for every described struct: CAF finds it by argument-dependent lookup. This header knows nothing of CAF.
template <class Inspector, Described T>
typename Inspector::result_type inspect(Inspector& f, T& value) {
  return std::apply([&](const auto&... each) { return f(value.*(each.member)...); }, std::remove_const_t<T>::kFields);
}

}  // namespace troupe::messages

namespace troupe {

// CAF's inspect for the ids; in this namespace so that argument-dependent lookup finds it.
template <class Inspector, class Tag, class Number>
typename Inspector::result_type inspect(Inspector& f, StrongId<Tag, Number>& id) {
  return f(id.value);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, ExpertId& id) {
  return f(id.layer, id.expert);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, GpuId& id) {
  return f(id.node, id.gpu);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, StepId& id) {
  return f(id.pass, id.layer);
}

}  // namespace troupe
