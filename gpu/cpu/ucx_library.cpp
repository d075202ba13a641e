#include "gpu/cpu/ucx_library.hpp"

#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include <signal.h>
#include <ucs/config/global_opts.h>
#include <ucs/debug/debug.h>
#include <ucs/debug/log_def.h>

namespace troupe::gpu::cpu {
namespace {

thread_local std::string last_log;

// Instead of a line on stdout: what UCX says about an error becomes part of ours.
ucs_log_func_rc_t keep_log(const char*, unsigned, const char*, ucs_log_level_t level, const ucs_log_component_config_t*,
                           const char* message, va_list arguments) {
  if (level <= UCS_LOG_LEVEL_ERROR) {
    std::array<char, 256> text{};
    std::vsnprintf(text.data(), text.size(), message, arguments);
    last_log = text.data();
  }
  return UCS_LOG_FUNC_RC_STOP;
}

[[maybe_unused]] const bool tamed_before_main = [] {
  tame_ucx();
  return true;
}();

}  // namespace

void tame_ucx() {
  static const bool once = [] {
    // Otherwise UCX waits in connect() for a host that does not answer, for two minutes, whatever our deadline. It
    // takes this setting from the environment alone, which only a single thread may change; a user's own value stands.
    ::setenv("UCX_TCP_CONN_NB", "y", 0);
    ucs_log_push_handler(keep_log);
    ucs_global_opts_set_value("LOG_LEVEL", "error");
    // The library's constructor has taken these by now; this puts the handlers from before back.
    for (const int number : {SIGILL, SIGSEGV, SIGBUS, SIGFPE}) ucs_debug_disable_signal(number);
    return true;
  }();
  static_cast<void>(once);
}

std::string ucx_text(ucs_status_t status) {
  std::string text = ucs_status_string(status);
  if (!last_log.empty()) text += " (" + std::exchange(last_log, {}) + ")";
  return text;
}

tl::unexpected<Error> fail_ucx(const std::string& what, ucs_status_t status) {
  return fail(ErrorCode::kIo, what + ": " + ucx_text(status));
}

}  // namespace troupe::gpu::cpu
