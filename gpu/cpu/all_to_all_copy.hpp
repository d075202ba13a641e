#pragma once

#include <cstddef>

#include "gpu/all_to_all.hpp"

namespace troupe::gpu::cpu {

/// Copies bytes [offset, offset + bytes) of the block, as its receiver sees it, to `to`: the gather of rows and the
/// copy are one. The block must have passed check_block, and the range must lie within it.
void copy_block(std::byte* to, const SendBlock& block, std::size_t offset, std::size_t bytes);

/// Errors: kBadInput (a row that lies outside `base`: names row and sizes), kLimit (more than max_bytes).
Result<void> check_block(const SendBlock& block, std::size_t max_bytes);

}  // namespace troupe::gpu::cpu
