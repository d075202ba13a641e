#include "actors/unexpected.hpp"

namespace troupe::actors {

std::atomic<std::uint64_t>& unexpected_messages() {
  static std::atomic<std::uint64_t> count{0};
  return count;
}

caf::result<caf::message> count_unexpected(caf::scheduled_actor*, caf::message_view&) {
  unexpected_messages().fetch_add(1, std::memory_order_relaxed);
  return caf::sec::unexpected_message;
}

}  // namespace troupe::actors
