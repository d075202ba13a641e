#define BOOST_TEST_MODULE kernel_property
#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>
#include <rapidcheck.h>
#include <rapidcheck/boost_test.h>

#include "gpu/cpu/device.hpp"
#include "gpu/cpu/kernels.hpp"
#include "tests/gpu/device_cases.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::gpu::test;

namespace {

/// A fixed seed for RapidCheck, unless RC_PARAMS gives another. A failing property prints the RC_PARAMS that repeat it.
struct FixedSeed {
  FixedSeed() { setenv("RC_PARAMS", "seed=20240611 max_success=60", 0); }
} const fixed_seed;

}  // namespace

RC_BOOST_PROP(a_row_depends_on_itself_and_its_expert_only, ()) {
  const auto shape = shape_of(*rc::gen::inRange(1U, 150U), *rc::gen::inRange(1U, 150U), *rc::gen::element(bf16, f32),
                              *rc::gen::element(bf16, f32));
  const auto rows = *rc::gen::inRange(1U, 90U);
  const auto seed = *rc::gen::inRange<std::uint64_t>(1, 1U << 30U);
  const std::vector<std::string> sets = cpu::instruction_sets();
  const auto source = make_synthetic_weights(shape);
  const auto batched = device_of(shape, 3, rows, *rc::gen::elementOf(sets));
  const auto single = device_of(shape, 3, 1, *rc::gen::elementOf(sets));
  for (std::uint32_t slot = 0; slot < 3; ++slot) {
    RC_ASSERT(bool(batched->load_expert(slot, {0, slot}, *source)));
    RC_ASSERT(bool(single->load_expert(2 - slot, {0, slot}, *source)));
  }

  // Rows in groups of random size and expert, computed in a random order.
  std::vector<ExpertRows> groups;
  for (std::uint32_t first = 0; first < rows;) {
    const auto count = std::min(*rc::gen::inRange(1U, 40U), rows - first);
    groups.push_back({*rc::gen::inRange(0U, 3U), first, count});
    first += count;
  }
  const std::vector<ExpertRows> in_order = groups;
  if (*rc::gen::arbitrary<bool>()) std::reverse(groups.begin(), groups.end());

  const std::vector<std::byte> in = random_rows(shape, rows, seed);
  std::vector<std::byte> out(in.size());
  RC_ASSERT(bool(batched->run_experts(groups, in, out)));
  for (const ExpertRows& group : in_order) {
    for (std::uint32_t r = group.first_row; r < group.first_row + group.rows; ++r) {
      RC_ASSERT(run_one(*single, shape, 2 - group.slot, rows_of(shape, in, r, 1)) == rows_of(shape, out, r, 1));
    }
  }
}
