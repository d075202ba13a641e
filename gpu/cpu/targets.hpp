// Which instruction sets the kernels are compiled for: those with a fused multiply-add whose vectors have a fixed
// length, and the scalar fallback. SSSE3 and SSE4 have none. On SVE and RVV, vectors have no size at compile time and
// cannot stand in the arrays that a register tile is; Arm processors use NEON. Include this before any header of
// Highway, in every unit that has kernels: they must agree.
#pragma once

#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | HWY_WASM | HWY_WASM_EMU256)
