#include "bench/all_to_all_peers.hpp"

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

namespace troupe::bench {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

tl::unexpected<Error> failed(const char* what, ucs_status_t status) {
  return fail(ErrorCode::kIo, std::string(what) + ": " + ucs_status_string(status));
}

/// Starts a program with its output in a pipe, or dropped. -1: it could not be started.
pid_t start(const std::vector<std::string>& words, int* output) {
  std::array<int, 2> pipe{-1, -1};
  if (output != nullptr && ::pipe2(pipe.data(), O_CLOEXEC) != 0) return -1;
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    ::dup2(output != nullptr ? pipe[1] : nowhere, STDOUT_FILENO);
    ::dup2(nowhere, STDERR_FILENO);
    ::execvp(arguments[0], arguments.data());
    ::_exit(127);
  }
  if (output != nullptr) {
    ::close(pipe[1]);
    *output = pipe[0];
    if (pid < 0) ::close(pipe[0]);
  }
  return pid;
}

bool ended(pid_t pid, Clock::time_point deadline) {
  while (::waitpid(pid, nullptr, WNOHANG) == 0) {
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

}  // namespace

struct BareUcx::State {
  ucp_context_h context = nullptr;
  ucp_worker_h worker = nullptr;
  ucp_ep_h ep = nullptr;
  bool lost = false;

  ~State() {
    if (ep != nullptr) {
      ucp_request_param_t param{};
      param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
      param.flags = UCP_EP_CLOSE_FLAG_FORCE;
      void* request = ucp_ep_close_nbx(ep, &param);
      if (UCS_PTR_IS_PTR(request)) {
        while (ucp_request_check_status(request) == UCS_INPROGRESS) ucp_worker_progress(worker);
        ucp_request_free(request);
      }
    }
    if (worker != nullptr) ucp_worker_destroy(worker);
    if (context != nullptr) ucp_cleanup(context);
  }
};

BareUcx::~BareUcx() = default;

Result<std::unique_ptr<BareUcx>> BareUcx::make() {
  std::unique_ptr<BareUcx> made(new BareUcx);
  made->state_ = std::make_unique<State>();
  State& state = *made->state_;
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return failed("UCX's settings", status);
  ucp_config_modify(config, "TLS", "tcp");
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_TAG;
  status = ucp_init(&params, config, &state.context);
  ucp_config_release(config);
  if (status != UCS_OK) return failed("UCX", status);
  ucp_worker_params_t worker{};
  worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker.thread_mode = UCS_THREAD_MODE_SINGLE;
  status = ucp_worker_create(state.context, &worker, &state.worker);
  if (status != UCS_OK) return failed("a UCX worker", status);
  ucp_address_t* raw = nullptr;
  std::size_t bytes = 0;
  status = ucp_worker_get_address(state.worker, &raw, &bytes);
  if (status != UCS_OK) return failed("a UCX address", status);
  made->address_.assign(reinterpret_cast<const char*>(raw), bytes);
  ucp_worker_release_address(state.worker, raw);
  return made;
}

Result<void> BareUcx::connect(const std::string& peer) {
  ucp_ep_params_t params{};
  params.field_mask =
      UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(peer.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.arg = state_.get();
  params.err_handler.cb = [](void* arg, ucp_ep_h, ucs_status_t) { static_cast<State*>(arg)->lost = true; };
  const ucs_status_t status = ucp_ep_create(state_->worker, &params, &state_->ep);
  if (status != UCS_OK) return failed("connecting by UCX", status);
  return {};
}

Result<void> BareUcx::exchange(std::span<const std::byte> send, std::span<std::byte> receive) {
  ucp_request_param_t param{};
  void* requests[] = {
      ucp_tag_recv_nbx(state_->worker, receive.data(), receive.size(), 1, ~ucp_tag_t{0}, &param),
      ucp_tag_send_nbx(state_->ep, send.data(), send.size(), 1, &param),
  };
  for (void* request : requests) {
    if (UCS_PTR_IS_ERR(request)) return failed("a UCX exchange", UCS_PTR_STATUS(request));
    if (request == nullptr) continue;
    while (ucp_request_check_status(request) == UCS_INPROGRESS && !state_->lost) ucp_worker_progress(state_->worker);
    if (state_->lost) return fail(ErrorCode::kUnavailable, "the peer of a UCX exchange is gone");
    ucp_request_free(request);
  }
  return {};
}

double ucx_perftest(std::size_t bytes, std::size_t messages) {
  const std::string port = std::to_string(20'000 + ::getpid() % 20'000);
  const pid_t server = start({"env", "UCX_TLS=tcp", "ucx_perftest", "-p", port}, nullptr);
  if (server < 0) return 0;
  double rate = 0;
  // The server takes a moment to listen, and says nothing when it does: try until it is there.
  for (const auto deadline = Clock::now() + 20s; rate == 0 && Clock::now() < deadline;) {
    if (::waitpid(server, nullptr, WNOHANG) != 0) return 0;
    int output = -1;
    const pid_t client =
        start({"env", "UCX_TLS=tcp", "ucx_perftest", "127.0.0.1", "-p", port, "-t", "ucp_am_bw", "-e", "-s",
               std::to_string(bytes), "-n", std::to_string(messages), "-w", std::to_string(messages / 10 + 1), "-f"},
              &output);
    if (client < 0) break;
    if (!ended(client, deadline)) {
      ::kill(client, SIGKILL);
      ::waitpid(client, nullptr, 0);
    }
    std::string text;
    std::array<char, 4096> part{};
    for (ssize_t got = 0; (got = ::read(output, part.data(), part.size())) > 0;)
      text.append(part.data(), static_cast<std::size_t>(got));
    ::close(output);
    // After a frame of + and |: "<count> <typical> <average> <overall latency> <average> <overall MiB/s> ..."
    if (const std::size_t frame = text.rfind("+\n"); frame != std::string::npos) {
      std::istringstream words(text.substr(frame + 2));
      double word = 0;
      for (int i = 0; i < 6 && words >> word; ++i) rate = i == 5 ? word * 1048576 / 1e9 : 0;
    }
    if (rate == 0) std::this_thread::sleep_for(20ms);
  }
  if (!ended(server, Clock::now() + 2s)) {
    ::kill(server, SIGKILL);
    ::waitpid(server, nullptr, 0);
  }
  return rate;
}

}  // namespace troupe::bench
