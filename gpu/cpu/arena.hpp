#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu/device.hpp"
#include "messages/error.hpp"
#include "scheduling/model_shape.hpp"

/// The one allocation of a CPU device: [slots][gates][scratch], in a sealed memfd that another process may map.
namespace troupe::gpu::cpu {

/// Offsets and sizes in bytes; all offsets are multiples of a page within the arena, of 64 within a slot.
struct ArenaLayout {
  std::size_t slot_bytes = 0;
  std::size_t down_offset = 0;  ///< of w2's panels in a slot; those of w1 and w3 begin the slot
  std::uint32_t slots = 0;
  std::size_t gates_offset = 0;
  std::size_t gate_bytes = 0;   ///< of one layer: router panels (f32), then the bias
  std::size_t bias_offset = 0;  ///< in a layer's gate
  std::size_t scratch_offset = 0;
  std::size_t scratch_bytes = 0;
  std::size_t block_rows = 0;   ///< rows that the scratch takes at once
  std::size_t rows_offset = 0;  ///< parts of the scratch
  std::size_t hidden_offset = 0;
  std::size_t hidden_stride = 0;  ///< floats of a row of hidden units
  std::size_t partial_offset = 0;
  std::size_t decoded_offset = 0;
  std::size_t bytes = 0;
};

/// Errors: kBadInput (a number of the shape or of the options is 0, or the bytes do not fit 64 bits; names it).
Result<ArenaLayout> plan_layout(const scheduling::ModelShape& shape, const DeviceOptions& options);

/// Owns the memfd and its mapping. Thread rule: none of its own; it only owns.
class Arena {
 public:
  /// Takes the memory now, piece by piece, and asks before each piece how much there is: a shape that does not fit is
  /// an error here, not a killed process later. Errors: kIo (too little memory: names the bytes asked for and those
  /// there; or the system call that failed).
  static Result<Arena> make(std::size_t bytes);

  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  int fd() const { return fd_; }

 private:
  Arena() = default;
  int fd_ = -1;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace troupe::gpu::cpu
