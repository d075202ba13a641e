#define BOOST_TEST_MODULE all_to_all_ucx
#include <boost/test/unit_test.hpp>

#include "tests/gpu/all_to_all_cases.hpp"

using namespace troupe::gpu;
using namespace troupe::gpu::testing;

namespace {

BulkOptions ucx(std::uint32_t) {
  BulkOptions options;
  options.transport = BulkTransport::kUcx;
  options.inbox_bytes = std::size_t{1} << 20;
  return options;
}

}  // namespace

BOOST_AUTO_TEST_CASE(ucx_carries_blocks_of_many_sizes) {
  blocks_of_many_sizes_arrive(ucx);
}
BOOST_AUTO_TEST_CASE(ucx_gathers_rows_in_the_order_given) {
  rows_are_gathered(ucx);
}
BOOST_AUTO_TEST_CASE(C19_ucx_carries_zeros) {
  zeros_arrive(ucx);
}
BOOST_AUTO_TEST_CASE(C19_ucx_names_both_sizes_of_a_mismatch) {
  a_mismatch_names_both_sizes(ucx);
}
BOOST_AUTO_TEST_CASE(an_abort_reaches_all_processes) {
  an_abort_reaches_all(ucx);
}
BOOST_AUTO_TEST_CASE(survivors_of_a_killed_process_build_a_new_view) {
  a_killed_rank_is_survived(ucx);
}
BOOST_AUTO_TEST_CASE(a_stopped_process_is_named_at_the_deadline) {
  a_frozen_rank_is_named(ucx);
}
BOOST_AUTO_TEST_CASE(a_process_with_another_secret_is_refused) {
  another_secret_is_refused(ucx);
}
BOOST_AUTO_TEST_CASE(unequal_inbox_sizes_are_refused_with_both_numbers) {
  unequal_inbox_sizes_are_refused(ucx);
}
BOOST_AUTO_TEST_CASE(connect_names_a_process_that_is_late_or_dead) {
  a_missing_rank_is_named(ucx);
}
BOOST_AUTO_TEST_CASE(a_process_with_an_older_view_is_told_so) {
  an_older_view_is_refused(ucx);
}
BOOST_AUTO_TEST_CASE(C37_noise_on_the_ports_changes_nothing) {
  noise_changes_nothing(ucx);
}
BOOST_AUTO_TEST_CASE(C23_many_views_leave_nothing_behind) {
  many_views_leave_nothing_behind(ucx, 200);
}
