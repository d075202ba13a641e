#pragma once

#include <string>

#include <ucp/api/ucp.h>

#include "messages/error.hpp"

namespace troupe::gpu::cpu {

/// Takes back what UCX does to a process that only loads it: handlers for SIGSEGV and its kind, and log lines on
/// stdout. Called before main; again it does nothing.
void tame_ucx();

/// "Connection reset by remote peer", with what UCX last logged in this thread, if it did.
std::string ucx_text(ucs_status_t status);

/// kIo: "<what>: <ucx_text>".
tl::unexpected<Error> fail_ucx(const std::string& what, ucs_status_t status);

}  // namespace troupe::gpu::cpu
