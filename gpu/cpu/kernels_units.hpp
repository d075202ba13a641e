#pragma once

#include "gpu/cpu/kernels.hpp"

/// What each unit of kernels adds to the table, for the instruction set that Highway has chosen at the time of the
/// call.
namespace troupe::gpu::cpu {

void product_kernels(Kernels& kernels);  // kernels_product.cpp
void row_kernels(Kernels& kernels);      // kernels_rows.cpp

}  // namespace troupe::gpu::cpu
