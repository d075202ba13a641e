#include "gpu/cpu/device.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <functional>
#include <limits>
#include <utility>

#include "gpu/cpu/layout.hpp"
#include "gpu/cpu/packing.hpp"

namespace troupe::gpu {

Result<std::unique_ptr<Device>> make_cpu_device(const scheduling::ModelShape& shape, const DeviceOptions& options) {
  return cpu::CpuDevice::make(shape, options);
}

ArenaUse plan_cpu_arena(const scheduling::ModelShape& shape, const DeviceOptions& options) {
  ArenaUse use;
  use.slots = options.slots;
  const auto layout = cpu::plan_layout(shape, options);
  if (!layout) {
    use.bytes = std::numeric_limits<std::size_t>::max();
    return use;
  }
  use.bytes = layout->bytes;
  use.slot_bytes = layout->slot_bytes;
  use.gate_bytes = layout->gate_bytes * shape.layers;
  use.scratch_bytes = layout->scratch_bytes;
  use.used_bytes = use.gate_bytes + use.scratch_bytes;
  return use;
}

namespace cpu {
namespace {

std::string number(std::size_t value) {
  return std::to_string(value);
}

tl::unexpected<Error> bad_input(std::string message) {
  return fail(ErrorCode::kBadInput, "CPU device: " + std::move(message));
}

}  // namespace

Result<std::unique_ptr<CpuDevice>> CpuDevice::make(const scheduling::ModelShape& shape, const DeviceOptions& options,
                                                   const std::string& instruction_set) {
  const auto layout = plan_layout(shape, options);
  if (!layout) return tl::unexpected(layout.error());
  const auto kernels = kernels_for(instruction_set);
  if (!kernels) return tl::unexpected(kernels.error());
  auto arena = Arena::make(layout->bytes);
  if (!arena) return fail_in("CPU device", arena.error());
  return std::unique_ptr<CpuDevice>(
      new CpuDevice(shape, *layout, options.max_rows, std::move(*arena), *kernels,
                    instruction_set.empty() ? instruction_sets().front() : instruction_set));
}

CpuDevice::CpuDevice(const scheduling::ModelShape& shape, const ArenaLayout& layout, std::uint32_t max_rows,
                     Arena arena, const Kernels& kernels, std::string instruction_set)
    : shape_(shape),
      layout_(layout),
      max_rows_(max_rows),
      arena_(std::move(arena)),
      kernels_(kernels),
      instruction_set_(std::move(instruction_set)),
      loaded_(layout.slots, false),
      gates_loaded_(shape.layers, false) {}

std::string CpuDevice::description() const {
  return "CPU, " + instruction_set_ + ", " + number(layout_.slots) + " slots of " + number(layout_.slot_bytes) +
         " bytes";
}

std::string CpuDevice::layout_tag() const {
  return std::string(kLayoutTag) + (shape_.weights == scheduling::WeightType::kBf16 ? "-bf16-" : "-f32-") +
         number(shape_.d_model) + "x" + number(shape_.d_ff);
}

ArenaUse CpuDevice::arena_use() const {
  ArenaUse use;
  use.bytes = layout_.bytes;
  use.slot_bytes = layout_.slot_bytes;
  use.slots = layout_.slots;
  use.slots_used = static_cast<std::uint32_t>(std::count(loaded_.begin(), loaded_.end(), true));
  use.gate_bytes = layout_.gate_bytes * shape_.layers;
  use.scratch_bytes = layout_.scratch_bytes;
  use.used_bytes = use.slots_used * use.slot_bytes + use.gate_bytes + use.scratch_bytes;
  return use;
}

float* CpuDevice::scratch(std::size_t offset) const {
  return reinterpret_cast<float*>(arena_.data() + layout_.scratch_offset + offset);
}

ProductScratch CpuDevice::product_scratch() const {
  return {scratch(layout_.partial_offset), scratch(layout_.decoded_offset)};
}

Result<void> CpuDevice::check_slot(std::uint32_t slot) const {
  if (slot < layout_.slots) return {};
  return bad_input("slot " + number(slot) + " is not one of the " + number(layout_.slots) + " slots");
}

Result<void> CpuDevice::load_expert(std::uint32_t slot, ExpertId expert, const WeightSource& source) {
  if (auto there = check_slot(slot); !there) return there;
  if (loaded_[slot]) return bad_input("slot " + number(slot) + " is in use; release it first");
  const std::size_t at = slot_offset(slot);
  auto packed = pack_expert(shape_, expert, source, part(at, layout_.down_offset),
                            part(at + layout_.down_offset, layout_.slot_bytes - layout_.down_offset));
  if (!packed) {
    return fail_in("layer " + number(expert.layer) + ", expert " + number(expert.expert) + ", slot " + number(slot),
                   packed.error());
  }
  loaded_[slot] = true;
  return {};
}

void CpuDevice::release_slot(std::uint32_t slot) {
  assert(slot < layout_.slots);
  if (slot < layout_.slots) loaded_[slot] = false;
}

Result<void> CpuDevice::check_groups(std::span<const ExpertRows> groups, std::span<const std::byte> in,
                                     std::span<const std::byte> out) const {
  const std::size_t row_bytes = shape_.row_bytes();
  if (in.size() != out.size() || in.size() % row_bytes != 0) {
    return bad_input("input of " + number(in.size()) + " and output of " + number(out.size()) +
                     " bytes; both must be the same number of rows of " + number(row_bytes) + " bytes");
  }
  const std::less<const std::byte*> before;
  if (!in.empty() && before(in.data(), out.data() + out.size()) && before(out.data(), in.data() + in.size())) {
    return bad_input("input and output rows overlap");
  }
  const std::size_t rows = in.size() / row_bytes;
  std::size_t all = 0;
  for (const ExpertRows& group : groups) {
    if (auto there = check_slot(group.slot); !there) return there;
    if (group.rows > 0 && !loaded_[group.slot]) return bad_input("slot " + number(group.slot) + " holds no expert");
    if (std::size_t{group.first_row} + group.rows > rows) {
      return bad_input("rows " + number(group.first_row) + " to " + number(std::size_t{group.first_row} + group.rows) +
                       " of slot " + number(group.slot) + " lie beyond the " + number(rows) + " rows given");
    }
    all += group.rows;
  }
  if (all > max_rows_) {
    return bad_input(number(all) + " rows in one call; this device was made for at most " + number(max_rows_) +
                     ", so split the call or raise max_rows");
  }
  return {};
}

Result<void> CpuDevice::run_experts(std::span<const ExpertRows> groups, std::span<const std::byte> in,
                                    std::span<std::byte> out) {
  if (auto good = check_groups(groups, in, out); !good) return good;
  const std::size_t row_bytes = shape_.row_bytes();
  float* const packed = scratch(layout_.rows_offset);
  float* const hidden = scratch(layout_.hidden_offset);
  for (const ExpertRows& group : groups) {
    const std::byte* const slot = arena_.data() + slot_offset(group.slot);
    const PackedWeights up{slot, shape_.weights, shape_.d_model, ceil_div(shape_.d_ff, kPanelPairs)};
    const PackedWeights down{slot + layout_.down_offset, shape_.weights, shape_.d_ff,
                             ceil_div(shape_.d_model, kPanelColumns)};
    // Blocks of equal size: a short last block would read all weights for little work.
    const std::size_t blocks = ceil_div(group.rows, layout_.block_rows);
    for (std::size_t b = 0; b < blocks; ++b) {
      const std::size_t first = group.first_row + b * group.rows / blocks;
      const std::size_t rows = group.first_row + (b + 1) * group.rows / blocks - first;
      kernels_.pack_rows(shape_.transport, in.data() + first * row_bytes, rows, shape_.d_model, packed, shape_.d_model);
      kernels_.swiglu({packed, rows, shape_.d_model}, up, product_scratch(), hidden, layout_.hidden_stride);
      kernels_.product({hidden, rows, layout_.hidden_stride}, down, product_scratch(), shape_.transport,
                       out.data() + first * row_bytes, shape_.d_model);
    }
  }
  return {};
}

Result<void> CpuDevice::load_gate(std::uint32_t layer, const WeightSource& source) {
  if (layer >= shape_.layers)
    return bad_input("layer " + number(layer) + " is not one of the " + number(shape_.layers) + " layers");
  std::vector<float> weight(std::size_t{shape_.experts} * shape_.d_model);
  const std::size_t at = layout_.gates_offset + layer * layout_.gate_bytes;
  const std::span<float> bias(reinterpret_cast<float*>(arena_.data() + at + layout_.bias_offset), shape_.experts);
  if (auto read = source.read_gate(layer, weight, bias); !read)
    return fail_in("gate of layer " + number(layer), read.error());
  pack_router(shape_.experts, shape_.d_model, weight, part(at, layout_.bias_offset));
  gates_loaded_[layer] = true;
  return {};
}

Result<void> CpuDevice::run_gate(std::uint32_t layer, std::uint32_t rows, std::span<const float> in,
                                 std::span<float> logits) {
  if (layer >= shape_.layers || !gates_loaded_[layer])
    return bad_input("layer " + number(layer) + " has no gate loaded");
  if (in.size() != std::size_t{rows} * shape_.d_model || logits.size() != std::size_t{rows} * shape_.experts) {
    return bad_input("gate of layer " + number(layer) + ": " + number(in.size()) + " inputs and " +
                     number(logits.size()) + " logits for " + number(rows) + " rows of " + number(shape_.d_model) +
                     " and " + number(shape_.experts) + " experts");
  }
  const std::byte* const panels = arena_.data() + layout_.gates_offset + layer * layout_.gate_bytes;
  const PackedWeights router{panels, scheduling::WeightType::kF32, shape_.d_model,
                             ceil_div(shape_.experts, kPanelColumns)};
  float* const packed = scratch(layout_.rows_offset);
  constexpr auto kF32 = scheduling::TransportType::kF32;
  for (std::size_t first = 0; first < rows; first += layout_.block_rows) {
    const std::size_t n = std::min(layout_.block_rows, rows - first);
    kernels_.pack_rows(kF32, std::as_bytes(in.subspan(first * shape_.d_model)).data(), n, shape_.d_model, packed,
                       shape_.d_model);
    kernels_.product({packed, n, shape_.d_model}, router, product_scratch(), kF32,
                     std::as_writable_bytes(logits.subspan(first * shape_.experts)).data(), shape_.experts);
  }
  return {};
}

std::span<const float> CpuDevice::gate_bias(std::uint32_t layer) const {
  assert(layer < shape_.layers);
  const std::size_t at = layout_.gates_offset + layer * layout_.gate_bytes + layout_.bias_offset;
  return {reinterpret_cast<const float*>(arena_.data() + at), shape_.experts};
}

void CpuDevice::rms_norm(std::uint32_t rows, std::span<const float> x, std::span<std::byte> out) {
  assert(x.size() == std::size_t{rows} * shape_.d_model && out.size() == rows * shape_.row_bytes());
  kernels_.rms_norm(rows, shape_.d_model, x.data(), shape_.transport, out.data());
}

void CpuDevice::combine(std::uint32_t tokens, std::uint32_t top_k, std::span<const std::byte* const> parts,
                        std::span<const float> weights, std::span<float> x) {
  assert(parts.size() == std::size_t{tokens} * top_k && weights.size() == parts.size());
  assert(x.size() == std::size_t{tokens} * shape_.d_model);
  for (std::size_t t = 0; t < tokens; ++t) {
    kernels_.combine(shape_.d_model, top_k, parts.data() + t * top_k, weights.data() + t * top_k, shape_.transport,
                     x.data() + t * shape_.d_model);
  }
}

}  // namespace cpu
}  // namespace troupe::gpu
