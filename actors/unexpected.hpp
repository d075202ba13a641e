#pragma once

#include <atomic>
#include <cstdint>

#include <caf/message.hpp>
#include <caf/message_view.hpp>
#include <caf/result.hpp>
#include <caf/scheduled_actor.hpp>
#include <caf/sec.hpp>

namespace troupe::actors {

/// Messages that an actor has no handler for, over the whole process. CAF's default prints each to stderr.
std::atomic<std::uint64_t>& unexpected_messages();

/// Default handler of every actor: counts, and answers a request with an error so that nobody waits for a deadline.
caf::result<caf::message> count_unexpected(caf::scheduled_actor* self, caf::message_view& message);

}  // namespace troupe::actors
