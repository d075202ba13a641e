#define BOOST_TEST_MODULE all_to_all_mixed
#include <boost/test/unit_test.hpp>

#include "tests/gpu/all_to_all_cases.hpp"

using namespace troupe::gpu;
using namespace troupe::gpu::testing;

namespace {

/// Ranks 0 and 1 share memory; rank 2 is reached by UCX, as if on another host.
BulkOptions mixed(std::uint32_t rank) {
  BulkOptions options;
  options.transport = rank == 2 ? BulkTransport::kUcx : BulkTransport::kAuto;
  options.inbox_bytes = std::size_t{1} << 20;
  return options;
}

/// One offers only what the other does not.
BulkOptions apart(std::uint32_t rank) {
  BulkOptions options;
  options.transport = rank == 0 ? BulkTransport::kShm : BulkTransport::kUcx;
  return options;
}

}  // namespace

BOOST_AUTO_TEST_CASE(one_exchange_over_two_transports_carries_blocks_of_many_sizes) {
  blocks_of_many_sizes_arrive(mixed);
}
BOOST_AUTO_TEST_CASE(C19_one_exchange_over_two_transports_carries_zeros) {
  zeros_arrive(mixed);
}
BOOST_AUTO_TEST_CASE(an_abort_crosses_transports) {
  an_abort_reaches_all(mixed);
}
BOOST_AUTO_TEST_CASE(survivors_of_a_killed_rank_on_the_other_transport_build_a_new_view) {
  a_killed_rank_is_survived(mixed);
}
BOOST_AUTO_TEST_CASE(a_stopped_rank_on_the_other_transport_is_named) {
  a_frozen_rank_is_named(mixed);
}
BOOST_AUTO_TEST_CASE(a_rank_that_no_transport_reaches_is_named_with_the_reason) {
  Processes processes(2, [](Child& child) -> std::string {
    auto endpoint = make_bulk_endpoint(apart(child.rank), "secret");
    if (!endpoint) return endpoint.error().message;
    const auto addresses = child.meet((*endpoint)->address());
    auto all = (*endpoint)->connect(troupe::View(1), troupe::Rank(child.rank), addresses, soon_enough());
    if (all) return "connected";
    const std::string& text = all.error().message;
    return all.error().code == troupe::ErrorCode::kUnavailable && text.find("no transport reaches rank") != text.npos &&
                   text.find("not offered") != text.npos
               ? ""
               : text;
  });
  processes.introduce();
  for (const auto& verdict : processes.verdicts()) BOOST_TEST(verdict == "");
}
