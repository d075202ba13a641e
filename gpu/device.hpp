#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "messages/error.hpp"
#include "messages/ids.hpp"
#include "scheduling/model_shape.hpp"

/// One GPU: one arena, expert slots in it, and the kernels that a step needs.
namespace troupe::gpu {

/// Where an expert's weights come from. Implementations: synthetic (from a seed), checkpoint (later).
/// Thread rule: `read` is const and safe from several threads.
class WeightSource {
 public:
  enum class Matrix { kW1, kW3, kW2 };  ///< w1 gate and w3 up: [d_ff x d_model]; w2 down: [d_model x d_ff]
  virtual ~WeightSource() = default;
  /// Rows [first_row, first_row + rows) of a matrix into `out` (rows x columns, row major), as f32. The values of a
  /// bf16 model are exactly representable in bf16.
  virtual Result<void> read(ExpertId expert, Matrix matrix, std::uint32_t first_row, std::uint32_t rows,
                            std::span<float> out) const = 0;
  /// Router of a layer: [experts x d_model], and its selection bias [experts] (zeros where the gate has none).
  virtual Result<void> read_gate(std::uint32_t layer, std::span<float> weight, std::span<float> bias) const = 0;
};

/// Weights from the model's seed: the same on every node without shipping them. Uniform, scaled by 1/sqrt(inner
/// dimension) so that activations keep their size; counter-based, so any row can be made by itself.
std::unique_ptr<WeightSource> make_synthetic_weights(const scheduling::ModelShape& shape);

/// Rows of one slot in a grouped expert computation: input rows [first_row, first_row + rows) belong to the expert in
/// `slot`.
struct ExpertRows {
  std::uint32_t slot = 0;
  std::uint32_t first_row = 0;
  std::uint32_t rows = 0;
};

struct DeviceOptions {
  std::uint32_t slots = 0;     ///< expert slots in the arena: layers x slots_per_gpu
  std::uint32_t max_rows = 0;  ///< most rows of one run_experts call; sizes the scratch
};

struct ArenaUse {
  std::size_t bytes = 0;       ///< size of the one allocation
  std::size_t slot_bytes = 0;  ///< size of one slot, equal for all
  std::uint32_t slots = 0;
  std::uint32_t slots_used = 0;
  std::size_t gate_bytes = 0;  ///< routers and biases of all layers
  std::size_t scratch_bytes = 0;
  std::size_t used_bytes = 0;  ///< loaded slots, gates and scratch
};

/// Thread rule: one thread at a time uses a device, its owner's device thread.
/// Bits: every output row depends on its input row and the weights only, never on the other rows of the call, the slot,
/// the instruction set in use or the number of threads.
class Device {
 public:
  virtual ~Device() = default;

  virtual std::string description() const = 0;
  virtual ArenaUse arena_use() const = 0;

  /// Reads an expert's weights from `source` and packs them into `slot`.
  /// Errors: kBadInput (slot out of range or in use), those of the source.
  virtual Result<void> load_expert(std::uint32_t slot, ExpertId expert, const WeightSource& source) = 0;
  virtual void release_slot(std::uint32_t slot) = 0;

  /// SwiGLU: y = W2 (silu(W1 x) * (W3 x)), for each group with its slot's weights. `in` and `out`: [rows x d_model] in
  /// the model's transport type, row major; sums in f32; out is rounded once at the end. `in` and `out` must not
  /// overlap. Errors: kBadInput (a slot that is not loaded, rows out of range or more than max_rows).
  virtual Result<void> run_experts(std::span<const ExpertRows> groups, std::span<const std::byte> in,
                                   std::span<std::byte> out) = 0;

  /// Gate scores of a layer: rows in f32 [rows x d_model] to logits [rows x experts], f32.
  virtual Result<void> load_gate(std::uint32_t layer, const WeightSource& source) = 0;
  virtual Result<void> run_gate(std::uint32_t layer, std::uint32_t rows, std::span<const float> in,
                                std::span<float> logits) = 0;
  /// The selection bias of the layer's gate, [experts].
  virtual std::span<const float> gate_bias(std::uint32_t layer) const = 0;

  /// h = x / sqrt(mean(x^2) + eps), then rounded to the transport type. x: [rows x d_model] f32.
  virtual void rms_norm(std::uint32_t rows, std::span<const float> x, std::span<std::byte> out) = 0;

  /// x[t] += sum over j of weight[t,j] * y(t,j), in top-k order, f32. `parts[t * top_k + j]` points at row y(t,j) in
  /// the transport type, or is null where that slot adds nothing.
  virtual void combine(std::uint32_t tokens, std::uint32_t top_k, std::span<const std::byte* const> parts,
                       std::span<const float> weights, std::span<float> x) = 0;
};

/// The CPU device. The arena is one memfd mapping (so that packed weights can be handed to another process later), and
/// its memory is taken here, so that what does not fit is refused now. Any d_model and d_ff of at least 1 will do.
/// Errors: kIo (not enough memory: names the bytes asked for and those available), kBadInput (a count of the shape or
/// the options is 0, or the bytes do not fit 64 bits).
Result<std::unique_ptr<Device>> make_cpu_device(const scheduling::ModelShape& shape, const DeviceOptions& options);

/// Bytes that a CPU device of this shape takes, without making it (for `troupe check`): what arena_use() says before
/// the first expert is loaded. A shape that make_cpu_device refuses with kBadInput has bytes = the largest std::size_t.
ArenaUse plan_cpu_arena(const scheduling::ModelShape& shape, const DeviceOptions& options);

}  // namespace troupe::gpu
