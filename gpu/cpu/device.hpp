#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/cpu/arena.hpp"
#include "gpu/cpu/kernels.hpp"
#include "gpu/device.hpp"
#include "messages/error.hpp"
#include "scheduling/model_shape.hpp"

namespace troupe::gpu::cpu {

/// A GPU that computes on the processor, on its caller's thread. Thread rule and bits: see Device.
class CpuDevice final : public Device {
 public:
  /// instruction_set: one of instruction_sets(); empty takes the fastest. It does not change a bit of any result.
  /// Errors: those of make_cpu_device; kBadInput (an instruction set that is not there).
  static Result<std::unique_ptr<CpuDevice>> make(const scheduling::ModelShape& shape, const DeviceOptions& options,
                                                 const std::string& instruction_set = "");

  std::string description() const override;
  ArenaUse arena_use() const override;
  Result<void> load_expert(std::uint32_t slot, ExpertId expert, const WeightSource& source) override;
  void release_slot(std::uint32_t slot) override;
  Result<void> run_experts(std::span<const ExpertRows> groups, std::span<const std::byte> in,
                           std::span<std::byte> out) override;
  Result<void> load_gate(std::uint32_t layer, const WeightSource& source) override;
  Result<void> run_gate(std::uint32_t layer, std::uint32_t rows, std::span<const float> in,
                        std::span<float> logits) override;
  std::span<const float> gate_bias(std::uint32_t layer) const override;
  void rms_norm(std::uint32_t rows, std::span<const float> x, std::span<std::byte> out) override;
  void combine(std::uint32_t tokens, std::uint32_t top_k, std::span<const std::byte* const> parts,
               std::span<const float> weights, std::span<float> x) override;

  /// For handing packed weights to another process: the arena's memfd (owned by the device, sealed against shrinking
  /// and growing), a slot's place and size in it, and the layout of what is there. Two devices whose tags are equal
  /// read each other's slots.
  int arena_fd() const { return arena_.fd(); }
  std::size_t slot_offset(std::uint32_t slot) const { return slot * layout_.slot_bytes; }
  std::size_t slot_bytes() const { return layout_.slot_bytes; }
  std::string layout_tag() const;

 private:
  CpuDevice(const scheduling::ModelShape& shape, const ArenaLayout& layout, std::uint32_t max_rows, Arena arena,
            const Kernels& kernels, std::string instruction_set);
  Result<void> check_slot(std::uint32_t slot) const;
  Result<void> check_groups(std::span<const ExpertRows> groups, std::span<const std::byte> in,
                            std::span<const std::byte> out) const;
  std::span<std::byte> part(std::size_t offset, std::size_t bytes) const { return {arena_.data() + offset, bytes}; }
  float* scratch(std::size_t offset) const;
  ProductScratch product_scratch() const;

  scheduling::ModelShape shape_;
  ArenaLayout layout_;
  std::uint32_t max_rows_;
  Arena arena_;
  Kernels kernels_;
  std::string instruction_set_;
  std::vector<bool> loaded_;        ///< [slots]
  std::vector<bool> gates_loaded_;  ///< [layers]
};

}  // namespace troupe::gpu::cpu
