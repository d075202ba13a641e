#pragma once

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cluster/config_keys.hpp"

/// From a member of Config to the getter and setter of its row in the key table. Only config_keys.cpp needs this.
namespace troupe::cluster::access {

/// The words that stand for an enum's values in the file, one list per enum.
template <class E>
struct Words;

template <class E, std::size_t N>
using WordList = std::array<std::pair<E, std::string_view>, N>;

template <>
struct Words<DeviceKind> {
  static constexpr WordList<DeviceKind, 2> all{{{DeviceKind::kCpu, "cpu"}, {DeviceKind::kCuda, "cuda"}}};
};
template <>
struct Words<PlacementStrategy> {
  static constexpr WordList<PlacementStrategy, 1> all{{{PlacementStrategy::kUniform, "uniform"}}};
};
template <>
struct Words<WorkloadKind> {
  static constexpr WordList<WorkloadKind, 4> all{{{WorkloadKind::kGate, "gate"},
                                                  {WorkloadKind::kStatistics, "statistics"},
                                                  {WorkloadKind::kZipf, "zipf"},
                                                  {WorkloadKind::kExplicit, "explicit"}}};
};
template <>
struct Words<gpu::BulkTransport> {
  static constexpr WordList<gpu::BulkTransport, 3> all{
      {{gpu::BulkTransport::kAuto, "auto"}, {gpu::BulkTransport::kShm, "shm"}, {gpu::BulkTransport::kUcx, "ucx"}}};
};
template <>
struct Words<scheduling::UniformOrder> {
  static constexpr WordList<scheduling::UniformOrder, 2> all{
      {{scheduling::UniformOrder::kContiguous, "contiguous"}, {scheduling::UniformOrder::kRoundRobin, "round_robin"}}};
};
template <>
struct Words<scheduling::Overflow> {
  static constexpr WordList<scheduling::Overflow, 4> all{{{scheduling::Overflow::kWait, "wait"},
                                                          {scheduling::Overflow::kDrop, "drop"},
                                                          {scheduling::Overflow::kNext, "next"},
                                                          {scheduling::Overflow::kReplica, "replica"}}};
};
template <>
struct Words<scheduling::WeightType> {
  static constexpr WordList<scheduling::WeightType, 2> all{
      {{scheduling::WeightType::kBf16, "bf16"}, {scheduling::WeightType::kF32, "f32"}}};
};
template <>
struct Words<scheduling::TransportType> {
  static constexpr WordList<scheduling::TransportType, 2> all{
      {{scheduling::TransportType::kBf16, "bf16"}, {scheduling::TransportType::kF32, "f32"}}};
};
template <>
struct Words<scheduling::GateKind> {
  static constexpr WordList<scheduling::GateKind, 4> all{
      {{scheduling::GateKind::kSoftmaxTopK, "softmax_topk"},
       {scheduling::GateKind::kSoftmaxTopKRenorm, "softmax_topk_renorm"},
       {scheduling::GateKind::kTopKSoftmax, "topk_softmax"},
       {scheduling::GateKind::kSigmoidGroup, "sigmoid_group"}}};
};

template <class E>
std::string_view word_of(E value) {
  for (const auto& [each, word] : Words<E>::all) {
    if (each == value) return word;
  }
  return "?";
}

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};
template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};

template <class T>
constexpr KeyType type_of() {
  if constexpr (IsOptional<T>::value) return type_of<typename T::value_type>();
  if constexpr (std::is_same_v<T, bool>) return KeyType::kBool;
  if constexpr (std::is_same_v<T, std::string>) return KeyType::kString;
  if constexpr (std::is_same_v<T, std::filesystem::path>) return KeyType::kPath;
  if constexpr (std::is_enum_v<T>) return KeyType::kChoice;
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) return KeyType::kInteger;
  if constexpr (std::is_floating_point_v<T>) return KeyType::kNumber;
  if constexpr (IsVector<T>::value) {
    using Each = typename T::value_type;
    if constexpr (std::is_integral_v<Each>) return KeyType::kIntegers;
    if constexpr (std::is_floating_point_v<Each>) return KeyType::kNumbers;
    return KeyType::kStrings;
  }
  return KeyType::kString;
}

/// Empty paths and optionals are "not there".
template <class T>
std::optional<ConfigValue> to_value(const T& member) {
  if constexpr (IsOptional<T>::value) {
    if (!member) return std::nullopt;
    return to_value(*member);
  } else if constexpr (std::is_same_v<T, std::filesystem::path>) {
    if (member.empty()) return std::nullopt;
    return ConfigValue{member.string()};
  } else if constexpr (std::is_enum_v<T>) {
    return ConfigValue{std::string(word_of(member))};
  } else if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, std::string>) {
    return ConfigValue{member};
  } else if constexpr (std::is_integral_v<T>) {
    return ConfigValue{static_cast<std::int64_t>(member)};
  } else if constexpr (std::is_same_v<T, float>) {
    return ConfigValue{shortest_double(member)};
  } else if constexpr (std::is_floating_point_v<T>) {
    return ConfigValue{member};
  } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    return ConfigValue{member};
  } else if constexpr (std::is_integral_v<typename T::value_type>) {
    return ConfigValue{std::vector<std::int64_t>(member.begin(), member.end())};
  } else {
    std::vector<double> numbers;
    for (const auto each : member) numbers.push_back(shortest_double(each));
    return ConfigValue{std::move(numbers)};
  }
}

template <class T>
void from_value(const ConfigValue& value, T& member) {
  if constexpr (IsOptional<T>::value) {
    from_value(value, member.emplace());
  } else if constexpr (std::is_enum_v<T>) {
    for (const auto& [each, word] : Words<T>::all) {
      if (word == std::get<std::string>(value)) member = each;
    }
  } else if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, std::string>) {
    member = std::get<T>(value);
  } else if constexpr (std::is_same_v<T, std::filesystem::path>) {
    member = std::get<std::string>(value);
  } else if constexpr (std::is_integral_v<T>) {
    member = static_cast<T>(std::get<std::int64_t>(value));
  } else if constexpr (std::is_floating_point_v<T>) {
    member = static_cast<T>(std::get<double>(value));
  } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    member = std::get<std::vector<std::string>>(value);
  } else {
    using Each = typename T::value_type;
    using Raw = std::conditional_t<std::is_integral_v<Each>, std::int64_t, double>;
    const auto& list = std::get<std::vector<Raw>>(value);
    member.clear();
    for (const Raw each : list) member.push_back(static_cast<Each>(each));
  }
}

template <class Struct, class Member>
Struct owner(Member Struct::*);

/// A member of Config, a member of a group in it, or a member of one of its nodes.
template <auto First, auto... Rest>
struct At {
  static auto& in(Config& config, std::size_t node) {
    if constexpr (std::is_same_v<decltype(owner(First)), NodeConfig>) {
      return config.nodes[node].*First;
    } else if constexpr (sizeof...(Rest) == 0) {
      return config.*First;
    } else {
      return ((config.*First).*....*Rest);
    }
  }
  static const auto& in(const Config& config, std::size_t node) {
    if constexpr (std::is_same_v<decltype(owner(First)), NodeConfig>) {
      return config.nodes[node].*First;
    } else if constexpr (sizeof...(Rest) == 0) {
      return config.*First;
    } else {
      return ((config.*First).*....*Rest);
    }
  }
  using Type = std::remove_cvref_t<decltype(in(std::declval<Config&>(), 0))>;
  static std::optional<ConfigValue> get(const Config& config, std::size_t node) { return to_value(in(config, node)); }
  static void set(Config& config, std::size_t node, const ConfigValue& value) { from_value(value, in(config, node)); }
};

/// One row of the table, built up by what it has to say.
struct Row {
  ConfigKey key;
  Row&& range(std::int64_t least, std::int64_t most, std::string_view unit = {}) && {
    key.least = least;
    key.most = most;
    key.unit = unit;
    return std::move(*this);
  }
  Row&& numbers(double least, double most, std::string_view unit = {}) && {
    key.least_number = least;
    key.most_number = most;
    key.unit = unit;
    return std::move(*this);
  }
  Row&& one_of(std::vector<std::string_view> choices) && {
    key.type = KeyType::kChoice;
    key.choices = std::move(choices);
    return std::move(*this);
  }
  Row&& when(KeyCondition condition) && {
    key.condition = condition;
    return std::move(*this);
  }
  Row&& by_default(std::string_view text) && {
    key.default_text = text;
    return std::move(*this);
  }
  Row&& agreed() && {
    key.agreed = true;
    return std::move(*this);
  }
};

template <auto... Path>
Row row(std::string_view table, std::string_view name, std::string_view help) {
  using T = typename At<Path...>::Type;
  Row result;
  result.key.table = table;
  result.key.name = name;
  result.key.help = help;
  result.key.type = type_of<T>();
  if constexpr (std::is_enum_v<T>) {
    for (const auto& [each, word] : Words<T>::all) result.key.choices.push_back(word);
  }
  result.key.get = &At<Path...>::get;
  result.key.set = &At<Path...>::set;
  return result;
}

/// A key without a member of its own.
inline Row special(std::string_view table, std::string_view name, KeyType type, KeyUse use, std::string_view help) {
  Row result;
  result.key.table = table;
  result.key.name = name;
  result.key.type = type;
  result.key.use = use;
  result.key.help = help;
  result.key.get = [](const Config&, std::size_t) -> std::optional<ConfigValue> { return std::nullopt; };
  result.key.set = [](Config&, std::size_t, const ConfigValue&) {};
  return result;
}

}  // namespace troupe::cluster::access
