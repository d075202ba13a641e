#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <ostream>

namespace troupe {

/// A number with a meaning of its own: two kinds of id never mix by accident. `value` is the number.
template <class Tag, class Number>
struct StrongId {
  using number_type = Number;
  Number value{};

  constexpr StrongId() = default;
  constexpr explicit StrongId(Number v) : value(v) {}
  friend constexpr auto operator<=>(const StrongId&, const StrongId&) = default;
  constexpr StrongId next() const { return StrongId{static_cast<Number>(value + 1)}; }
  friend std::ostream& operator<<(std::ostream& out, const StrongId& id) { return out << +id.value; }
};

/// A GPU worker's number in the current view: 0 .. ranks-1.
using Rank = StrongId<struct RankTag, std::uint32_t>;
/// Version of the membership; 0 means none yet.
using View = StrongId<struct ViewTag, std::uint64_t>;
/// Version of the placement; 0 means none yet.
using Epoch = StrongId<struct EpochTag, std::uint64_t>;
/// Number of a pass; the first is 1, 0 means none yet.
using PassNumber = StrongId<struct PassTag, std::uint64_t>;
/// Which start of a node this is; issued by the coordinator from its ledger, never reused.
using Incarnation = StrongId<struct IncarnationTag, std::uint64_t>;
/// A node's lasting number, issued by the coordinator; it outlives incarnations and views.
using NodeId = StrongId<struct NodeIdTag, std::uint16_t>;

/// An expert of the model: one feed-forward block of one MoE layer.
struct ExpertId {
  std::uint32_t layer = 0;
  std::uint32_t expert = 0;
  friend constexpr auto operator<=>(const ExpertId&, const ExpertId&) = default;
};

/// A GPU by its lasting name: a node and the number of the GPU in it.
struct GpuId {
  NodeId node;
  std::uint16_t gpu = 0;
  friend constexpr auto operator<=>(const GpuId&, const GpuId&) = default;
};

/// Step (p, l): layer l of pass p.
struct StepId {
  PassNumber pass;
  std::uint32_t layer = 0;
  friend constexpr auto operator<=>(const StepId&, const StepId&) = default;
};

}  // namespace troupe

template <class Tag, class Number>
struct std::hash<troupe::StrongId<Tag, Number>> {
  std::size_t operator()(const troupe::StrongId<Tag, Number>& id) const noexcept { return std::hash<Number>{}(id.value); }
};
