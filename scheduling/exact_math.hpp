#pragma once

#include <span>

/// Functions whose results are the same bits on every machine. libm's differ between versions and instruction sets, and
/// a gate whose weights differ in one bit between two hosts breaks the promise. Only IEEE additions, multiplications
/// and divisions in f32, in one fixed order, without fused operations (the folder is compiled with -ffp-contract=off).
namespace troupe::scheduling {

/// e^x, within 1.5 ulp. Below -87.33654 (where e^x is no normal f32 any more) the result is 0, so that flush-to-zero
/// modes make no difference; above 88.72283 it is +infinity; NaN stays NaN. Pure; any thread. Method: x = n ln 2 + r
/// with |r| <= 0.35 (Cody and Waite's two-part ln 2), Taylor polynomial of degree 7 in r, times 2^n.
float exact_exp(float x);

/// The same for each value, in place, with the same bits as one at a time.
void exact_exp(std::span<float> values);

/// 1 / (1 + e^-x), within 3 ulp; 0..1 for every x but NaN.
float exact_sigmoid(float x);

/// The same for each value, in place, with the same bits as one at a time.
void exact_sigmoid(std::span<float> values);

}  // namespace troupe::scheduling
