#define BOOST_TEST_MODULE scheduling_exact_math
#include "scheduling/exact_math.hpp"

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include <boost/test/unit_test.hpp>

#include "tests/scheduling/support.hpp"

namespace troupe::scheduling {
namespace {

/// Error in units of the last place of the exact value.
double ulps(float got, double exact) {
  const double unit = std::ldexp(1.0, std::max(std::ilogb(exact), -126) - 23);
  return std::abs(static_cast<double>(got) - exact) / unit;
}

std::vector<float> grid(float low, float high, int steps) {
  std::vector<float> values;
  for (int i = 0; i <= steps; ++i)
    values.push_back(low + (high - low) * (static_cast<float>(i) / static_cast<float>(steps)));
  return values;
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_exponential_is_within_one_and_a_half_ulp) {
  double worst = 0;
  for (const float x : grid(-87.33F, 88.72F, 500'000))
    worst = std::max(worst, ulps(exact_exp(x), std::exp(static_cast<double>(x))));
  for (const float x : grid(-1.0F, 1.0F, 500'000))
    worst = std::max(worst, ulps(exact_exp(x), std::exp(static_cast<double>(x))));
  BOOST_TEST_MESSAGE("worst error " << worst << " ulp");
  BOOST_TEST(worst < 1.5);
  BOOST_TEST(exact_exp(0.0F) == 1.0F);
}

BOOST_AUTO_TEST_CASE(the_exponential_of_the_extremes_is_defined) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  BOOST_TEST(exact_exp(-87.33654F) > 0.0F);
  BOOST_TEST(exact_exp(-87.4F) == 0.0F);
  BOOST_TEST(exact_exp(-1e30F) == 0.0F);
  BOOST_TEST(exact_exp(-kInfinity) == 0.0F);
  BOOST_TEST(std::isfinite(exact_exp(88.72283F)));
  BOOST_TEST(exact_exp(88.73F) == kInfinity);
  BOOST_TEST(exact_exp(kInfinity) == kInfinity);
  BOOST_TEST(std::isnan(exact_exp(std::numeric_limits<float>::quiet_NaN())));
}

BOOST_AUTO_TEST_CASE(the_sigmoid_is_within_three_ulp_and_never_leaves_0_to_1) {
  double worst = 0;
  for (const float x : grid(-87.0F, 87.0F, 500'000)) {
    const float got = exact_sigmoid(x);
    worst = std::max(worst, ulps(got, 1.0 / (1.0 + std::exp(-static_cast<double>(x)))));
    BOOST_REQUIRE(got >= 0.0F);
    BOOST_REQUIRE(got <= 1.0F);
  }
  BOOST_TEST_MESSAGE("worst error " << worst << " ulp");
  BOOST_TEST(worst < 3.0);
  BOOST_TEST(exact_sigmoid(0.0F) == 0.5F);
  BOOST_TEST(exact_sigmoid(-std::numeric_limits<float>::infinity()) == 0.0F);
  BOOST_TEST(exact_sigmoid(std::numeric_limits<float>::infinity()) == 1.0F);
  BOOST_TEST(std::isnan(exact_sigmoid(std::numeric_limits<float>::quiet_NaN())));
}

BOOST_AUTO_TEST_CASE(many_at_once_have_the_bits_of_one_at_a_time) {
  // Odd lengths, so that vector code has a tail.
  for (const int length : {0, 1, 3, 4, 7, 1'001}) {
    std::vector<float> values = grid(-90.0F, 90.0F, length);
    values.push_back(std::numeric_limits<float>::quiet_NaN());
    std::vector<float> together = values;
    std::vector<float> sigmoids = values;
    exact_exp(std::span(together));
    exact_sigmoid(std::span(sigmoids));
    for (std::size_t i = 0; i < values.size(); ++i) {
      BOOST_REQUIRE(std::bit_cast<std::uint32_t>(sigmoids[i]) ==
                    std::bit_cast<std::uint32_t>(exact_sigmoid(values[i])));
      BOOST_REQUIRE(std::bit_cast<std::uint32_t>(together[i]) == std::bit_cast<std::uint32_t>(exact_exp(values[i])));
    }
  }
}

// Whoever changes a bit here changes the answers of every cluster that mixes versions.
BOOST_AUTO_TEST_CASE(the_bits_are_those_of_every_machine) {
  std::vector<float> values;  // multiples of 2^-9: exact, however this file is compiled
  for (int i = -90 * 512; i <= 90 * 512; ++i) values.push_back(static_cast<float>(i) * 0x1.0p-9F);
  std::vector<float> sigmoids = values;
  exact_exp(std::span(values));
  for (float& x : sigmoids) x = exact_sigmoid(x);
  BOOST_TEST(testing::digest(values) == 0x975a5d10aaecf0b8U, "exponentials: " << std::hex << testing::digest(values));
  BOOST_TEST(testing::digest(sigmoids) == 0x837abbfde343eee7U, "sigmoids: " << std::hex << testing::digest(sigmoids));
}

}  // namespace troupe::scheduling
