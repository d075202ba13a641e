#include "gpu/cpu/ucx_worker.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <type_traits>

#include "gpu/cpu/ucx_library.hpp"

namespace troupe::gpu::cpu {
namespace {

using namespace std::chrono_literals;

static_assert(std::has_unique_object_representations_v<UcxHeader> && std::has_unique_object_representations_v<UcxHello>,
              "messages travel as they lie in memory");

constexpr unsigned kMessageId = 1;
constexpr const char* kHelloRole = "troupe ucx hello";
constexpr const char* kAddressRole = "troupe ucx address";
constexpr std::size_t kMaxAddressBytes = 4096;
constexpr std::size_t kMaxControlBytes = 1024;
constexpr std::size_t kMaxEarlyHellos = kMaxRanks;
// Transports that report a peer's death. A name that this host has no device for is passed over.
constexpr const char* kDefaultTls = "tcp,ib";

// How long a closing worker waits for its last messages to leave, and for UCX to let go of its connections.
constexpr auto kLastWords = 200ms;
constexpr auto kLastClose = 1000ms;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// The proof first, then the host's origin, then UCX's own bytes.
std::string wrap_address(const Secret& secret, const std::string& raw) {
  const Proof proof = secret.prove(kAddressRole, bytes_of(raw));
  return std::string(reinterpret_cast<const char*>(proof.data()), proof.size()) + raw;
}

struct PeerAddress {
  HostOrigin origin;
  std::string raw;
};

Result<PeerAddress> unwrap_address(const Secret& secret, const std::string& wrapped) {
  if (wrapped.size() <= sizeof(Proof) || wrapped.size() > kMaxAddressBytes)
    return fail(ErrorCode::kBadInput, "a UCX address of " + std::to_string(wrapped.size()) + " bytes; " +
                                          std::to_string(sizeof(Proof) + 1) + " to " +
                                          std::to_string(kMaxAddressBytes) + " are possible");
  Proof proof;
  std::memcpy(proof.data(), wrapped.data(), proof.size());
  std::string raw = wrapped.substr(proof.size());
  if (!Secret::equal(proof, secret.prove(kAddressRole, bytes_of(raw))))
    return fail(ErrorCode::kRefused,
                "its UCX address is damaged or made with another secret; start all nodes with the same one");
  auto origin = HostOrigin::decode(raw);
  if (!origin) return tl::unexpected(origin.error());
  return PeerAddress{std::move(*origin), std::move(raw)};
}

/// A control message on its way: UCX reads it until it is sent.
struct Control {
  UcxLink* link;
  UcxHeader header;
  std::array<std::byte, kMaxControlBytes> payload;
};

}  // namespace

Result<std::shared_ptr<UcxWorker>> UcxWorker::make(const std::string& tls, const std::string& secret) {
  tame_ucx();
  std::shared_ptr<UcxWorker> made(new UcxWorker(secret));
  if (auto ok = made->open(tls.empty() ? kDefaultTls : tls); !ok) return tl::unexpected(ok.error());
  return made;
}

Result<void> UcxWorker::open(const std::string& tls) {
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return fail_ucx("reading UCX's settings", status);
  status = ucp_config_modify(config, "TLS", tls.c_str());
  if (status != UCS_OK) {
    ucp_config_release(config);
    return fail_ucx("UCX transports '" + tls + "'", status);
  }
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  status = ucp_init(&params, config, &context_);
  ucp_config_release(config);
  if (status != UCS_OK) return fail_ucx("opening UCX with transports '" + tls + "'", status);

  auto origin = HostOrigin::of_this_host();
  if (!origin) return tl::unexpected(origin.error());
  origin_ = std::move(*origin);
  const std::set<int> listening = UcxGate::listening_sockets();
  ucp_worker_params_t worker{};
  worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  status = ucp_worker_create(context_, &worker, &worker_);
  if (status != UCS_OK) return fail_ucx("a UCX worker with transports '" + tls + "'", status);
  status = ucp_worker_get_efd(worker_, &fd_);
  if (status != UCS_OK) return fail_ucx("UCX transports '" + tls + "' cannot be waited for", status);

  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kMessageId;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  handler.cb = &UcxWorker::receive;
  handler.arg = this;
  status = ucp_worker_set_am_recv_handler(worker_, &handler);
  if (status != UCS_OK) return fail_ucx("taking UCX messages", status);

  ucp_address_t* raw = nullptr;
  std::size_t bytes = 0;
  status = ucp_worker_get_address(worker_, &raw, &bytes);
  if (status != UCS_OK) return fail_ucx("a UCX address", status);
  const std::string own(reinterpret_cast<const char*>(raw), bytes);
  ucp_worker_release_address(worker_, raw);
  address_ = wrap_address(secret_, origin_.encode() + own);
  gate_ = UcxGate(listening, own);
  if (address_.size() > kMaxAddressBytes)
    return fail(ErrorCode::kLimit, "this host's UCX address has " + std::to_string(address_.size()) +
                                       " bytes, more than " + std::to_string(kMaxAddressBytes) +
                                       "; name fewer devices in UCX_NET_DEVICES");
  return {};
}

UcxWorker::~UcxWorker() {
  const std::lock_guard lock(mutex_);
  if (worker_ != nullptr) {
    // A connection that is closed while a peer's words lie unread in it resets, and takes our own last words with it.
    for (auto& [address, link] : links_) drain(*link, kLastWords);
    for (auto& [address, link] : links_) close(link);
    links_.clear();
    const auto deadline = AllToAll::Clock::now() + kLastClose;
    while (!closing_.empty() && AllToAll::Clock::now() < deadline) step();
    ucp_worker_destroy(worker_);
  }
  closing_.clear();
  if (context_ != nullptr) ucp_cleanup(context_);
}

bool UcxWorker::poll() {
  const std::lock_guard lock(mutex_);
  return step();
}

bool UcxWorker::step() {
  bool moved = ucp_worker_progress(worker_) != 0;
  for (auto at = links_.begin(); at != links_.end();) {
    const auto here = at++;
    if (!here->second->failed) continue;
    close(here->second);
    links_.erase(here);
    moved = true;
  }
  return reap() || moved;
}

bool UcxWorker::arm() {
  const std::lock_guard lock(mutex_);
  return ucp_worker_arm(worker_) == UCS_OK;
}

Result<std::shared_ptr<UcxLink>> UcxWorker::link(const std::string& address) {
  if (const auto known = links_.find(address); known != links_.end() && !known->second->failed) return known->second;
  auto peer = unwrap_address(secret_, address);
  if (!peer) return tl::unexpected(peer.error());
  auto made = std::make_shared<UcxLink>();
  made->address = address;
  for (UcxLink::Slot& slot : made->slots) slot.link = made.get();
  ucp_ep_params_t params{};
  params.field_mask =
      UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(peer->raw.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.arg = made.get();
  params.err_handler.cb = [](void* arg, ucp_ep_h, ucs_status_t status) {
    auto* failed = static_cast<UcxLink*>(arg);
    failed->failed = true;
    failed->why = ucx_text(status);
  };
  const ucs_status_t status = ucp_ep_create(worker_, &params, &made->ep);
  if (status != UCS_OK)
    return fail(ErrorCode::kUnavailable, "UCX cannot connect to it: " + ucx_text(status) +
                                             "; are both hosts on one network, and UCX_NET_DEVICES right?");
  if (auto& place = links_[address]; place) {
    close(std::exchange(place, made));
  } else {
    place = made;
  }
  return made;
}

Result<void> UcxWorker::expect_peers(std::span<const std::string> addresses) {
  std::vector<HostOrigin> origins;
  for (const std::string& address : addresses) {
    auto peer = unwrap_address(secret_, address);
    if (peer) origins.push_back(std::move(peer->origin));  // link() says what is wrong with the others
  }
  for (auto at = links_.begin(); at != links_.end();) {
    const auto here = at++;
    if (std::find(addresses.begin(), addresses.end(), here->first) != addresses.end()) continue;
    close(here->second);
    links_.erase(here);
  }
  return gate_.admit(origin_.host, origins);
}

// By force: a peer that is gone answers nothing. UCX completes all sends of the connection first, so the link must live
// until then.
void UcxWorker::close(std::shared_ptr<UcxLink> link) {
  if (link->ep == nullptr) return;
  link->failed = true;
  if (link->why.empty()) link->why = "closed here";
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  void* request = ucp_ep_close_nbx(std::exchange(link->ep, nullptr), &param);
  closing_.push_back({std::move(link), UCS_PTR_IS_PTR(request) ? request : nullptr});
}

bool UcxWorker::reap() {
  const std::size_t before = closing_.size();
  std::erase_if(closing_, [](Closing& closing) {
    if (closing.request != nullptr) {
      if (ucp_request_check_status(closing.request) == UCS_INPROGRESS) return false;
      ucp_request_free(std::exchange(closing.request, nullptr));
    }
    return closing.link->in_flight == 0;
  });
  return closing_.size() != before;
}

Result<UcxLink::Slot*> UcxWorker::free_slot(UcxLink& link) {
  for (UcxLink::Slot& slot : link.slots) {
    if (slot.busy) continue;
    if (!slot.data) slot.data.reset(new (std::nothrow) std::byte[kUcxChunkBytes]);
    if (!slot.data)
      return fail(ErrorCode::kIo, "no memory for a chunk of " + std::to_string(kUcxChunkBytes) + " bytes");
    return &slot;
  }
  return nullptr;
}

void UcxWorker::send_slot(UcxLink::Slot& slot, std::size_t bytes) {
  UcxLink& link = *slot.link;
  if (link.failed) return;
  struct Sent {
    static void done(void* request, ucs_status_t, void* user) {
      auto* sent = static_cast<UcxLink::Slot*>(user);
      sent->busy = false;
      --sent->link->in_flight;
      ucp_request_free(request);
    }
  };
  slot.busy = true;
  ++link.in_flight;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_AM_SEND_FLAG_EAGER;
  param.cb.send = &Sent::done;
  param.user_data = &slot;
  void* request =
      ucp_am_send_nbx(link.ep, kMessageId, &slot.header, sizeof slot.header, slot.data.get(), bytes, &param);
  if (UCS_PTR_IS_PTR(request)) return;
  slot.busy = false;
  --link.in_flight;
  if (UCS_PTR_IS_ERR(request)) {
    link.failed = true;
    link.why = ucx_text(UCS_PTR_STATUS(request));
  }
}

void UcxWorker::send_control(UcxLink& link, const UcxHeader& header, std::span<const std::byte> payload) {
  if (link.failed) return;
  auto control = std::make_unique<Control>();
  control->link = &link;
  control->header = header;
  const std::size_t bytes = std::min(payload.size(), kMaxControlBytes);
  if (bytes > 0) std::memcpy(control->payload.data(), payload.data(), bytes);
  struct Sent {
    static void done(void* request, ucs_status_t, void* user) {
      const std::unique_ptr<Control> sent(static_cast<Control*>(user));
      --sent->link->in_flight;
      ucp_request_free(request);
    }
  };
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_AM_SEND_FLAG_EAGER;
  param.cb.send = &Sent::done;
  param.user_data = control.get();
  ++link.in_flight;
  void* request = ucp_am_send_nbx(link.ep, kMessageId, &control->header, sizeof control->header,
                                  control->payload.data(), bytes, &param);
  if (UCS_PTR_IS_PTR(request)) {
    [[maybe_unused]] Control* on_its_way = control.release();
    return;
  }
  --link.in_flight;
  if (UCS_PTR_IS_ERR(request)) {
    link.failed = true;
    link.why = ucx_text(UCS_PTR_STATUS(request));
  }
}

void UcxWorker::drain(UcxLink& link, std::chrono::milliseconds patience) {
  const auto deadline = AllToAll::Clock::now() + patience;
  do ucp_worker_progress(worker_);
  while (!link.failed && link.in_flight > 0 && AllToAll::Clock::now() < deadline);
}

void UcxWorker::expect_hellos(View view, UcxHelloReceiver* receiver) {
  hello_view_ = view;
  hello_receiver_ = receiver;
  if (receiver == nullptr) return;
  for (auto at = early_hellos_.begin(); at != early_hellos_.end();) {
    const auto here = at++;
    // A later view's hello is kept for its own connect, and tells this one that it is behind.
    if (here->first.first >= view.value) receiver->on_hello(here->second);
    if (here->first.first <= view.value) early_hellos_.erase(here);
  }
}

ucs_status_t UcxWorker::receive(void* self, const void* header, size_t header_bytes, void* data, size_t bytes,
                                const ucp_am_recv_param_t* param) {
  // Nobody of us sends by rendezvous: such a message is not taken.
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0)
    static_cast<UcxWorker*>(self)->on_message({static_cast<const std::byte*>(header), header_bytes},
                                              {static_cast<const std::byte*>(data), bytes});
  return UCS_OK;
}

void UcxWorker::on_message(std::span<const std::byte> raw, std::span<const std::byte> data) {
  UcxHeader header;
  if (raw.size() != sizeof header) return;
  std::memcpy(&header, raw.data(), sizeof header);
  if (header.magic != UcxHeader::kMagic || header.version != UcxHeader().version) return;
  if (header.kind == UcxKind::kHello) {
    on_hello(data);
  } else if (const auto receiver = receivers_.find(header.session); receiver != receivers_.end()) {
    receiver->second->on_message(header, data);
  }
}

void UcxWorker::sign(UcxHello& hello) const {
  hello.proof = {};
  hello.proof = secret_.prove(kHelloRole, std::as_bytes(std::span(&hello, 1)));
}

void UcxWorker::on_hello(std::span<const std::byte> data) {
  UcxHello hello;
  if (data.size() != sizeof hello) return;
  std::memcpy(&hello, data.data(), sizeof hello);
  UcxHello signed_here = hello;
  sign(signed_here);
  if (!Secret::equal(hello.proof, signed_here.proof)) return;
  if (hello.view < hello_view_.value) return;
  const bool here = hello_receiver_ != nullptr;
  if (here) hello_receiver_->on_hello(hello);
  if ((!here || hello.view > hello_view_.value) && early_hellos_.size() < kMaxEarlyHellos)
    early_hellos_[{hello.view, hello.from}] = hello;
}

}  // namespace troupe::gpu::cpu
