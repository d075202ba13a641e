#define BOOST_TEST_MODULE all_to_all_shm
#include <boost/test/unit_test.hpp>

#include "tests/gpu/all_to_all_cases.hpp"

using namespace troupe::gpu;
using namespace troupe::gpu::testing;

namespace {

BulkOptions shm(std::uint32_t) {
  BulkOptions options;
  options.transport = BulkTransport::kShm;
  options.inbox_bytes = std::size_t{1} << 20;
  return options;
}

}  // namespace

BOOST_AUTO_TEST_CASE(shared_memory_carries_blocks_of_many_sizes) {
  blocks_of_many_sizes_arrive(shm);
}
BOOST_AUTO_TEST_CASE(shared_memory_gathers_rows_in_the_order_given) {
  rows_are_gathered(shm);
}
BOOST_AUTO_TEST_CASE(C19_shared_memory_carries_zeros) {
  zeros_arrive(shm);
}
BOOST_AUTO_TEST_CASE(C19_shared_memory_names_both_sizes_of_a_mismatch) {
  a_mismatch_names_both_sizes(shm);
}
BOOST_AUTO_TEST_CASE(an_abort_from_any_thread_reaches_all_processes) {
  an_abort_reaches_all(shm);
}
BOOST_AUTO_TEST_CASE(survivors_of_a_killed_process_build_a_new_view) {
  a_killed_rank_is_survived(shm);
}
BOOST_AUTO_TEST_CASE(a_stopped_process_is_named_at_the_deadline) {
  a_frozen_rank_is_named(shm);
}
BOOST_AUTO_TEST_CASE(a_process_with_another_secret_is_refused) {
  another_secret_is_refused(shm);
}
BOOST_AUTO_TEST_CASE(unequal_inbox_sizes_are_refused_with_both_numbers) {
  unequal_inbox_sizes_are_refused(shm);
}
BOOST_AUTO_TEST_CASE(connect_names_a_process_that_is_late_or_dead) {
  a_missing_rank_is_named(shm);
}
BOOST_AUTO_TEST_CASE(a_process_with_an_older_view_is_told_so) {
  an_older_view_is_refused(shm);
}
BOOST_AUTO_TEST_CASE(C37_noise_on_the_socket_changes_nothing) {
  noise_changes_nothing(shm);
}
BOOST_AUTO_TEST_CASE(C23_a_thousand_views_leave_nothing_behind) {
  many_views_leave_nothing_behind(shm, 1000);
}
