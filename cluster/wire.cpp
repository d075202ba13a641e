#include "cluster/wire.hpp"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include <sys/eventfd.h>
#include <unistd.h>

#include <zmq.hpp>

#include "cluster/zap.hpp"
#include "cluster/zmq_sockets.hpp"

namespace troupe::cluster {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using Bytes = std::vector<std::byte>;

/// Frames taken from one socket before the others get their turn.
constexpr int kMaxPerTurn = 256;
/// Answers that wait to be handed to the I/O thread, over all clients.
constexpr std::size_t kMaxReplies = std::size_t{1} << 16;

struct Reply {
  std::string routing_id;
  Bytes bytes;
};

/// A peer that we connect to. `queue` and `sequence` are under the wire's mutex; the socket belongs to the I/O thread.
struct Peer {
  std::string endpoint;
  std::string key;
  std::uint64_t sequence = 0;
  std::deque<Bytes> queue;
};

struct Command {
  enum class Kind { kConnect, kDisconnect, kAllow } kind;
  std::string name;
  std::string endpoint;
  std::string key;
};

class WireImpl final : public Wire {
 public:
  WireImpl(WireOptions options, OnFrame on_frame) : options_(std::move(options)), on_frame_(std::move(on_frame)) {
    wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  }
  ~WireImpl() override {
    stop(milliseconds{0});
    ::close(wake_);
  }

  Result<void> begin();

  std::string endpoint() const override { return endpoint_; }
  Result<void> connect(const std::string& name, const std::string& endpoint, const std::string& server_key) override;
  void disconnect(const std::string& name) override;
  void allow(const std::vector<std::pair<std::string, std::string>>& keys) override;
  Result<void> send(const std::string& peer, messages::Frame frame, bool droppable) override;
  Result<void> reply(const PeerHandle& peer, messages::Frame frame) override;
  WireStats stats() const override;
  void stop(milliseconds linger) override;

 private:
  bool plain() const { return options_.keys.public_key.empty(); }
  Result<void> too_large(std::size_t bytes) const {
    return fail(ErrorCode::kLimit, "a frame of " + std::to_string(bytes) + " bytes; the limit is " + std::to_string(options_.max_frame_bytes));
  }
  void wake() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(wake_, &one, sizeof one);
  }
  void say_once(const std::string& kind, const std::string& text) {
    if (said_.insert(kind).second && options_.log) options_.log(text);
  }

  // --- the I/O thread -------------------------------------------------------------------------------------------------
  void run();
  void turn();
  void carry_out(const Command& command);
  void connect_socket(const Command& command);
  bool send_queued();
  void send_replies();
  void receive(zmq::socket_t& socket, const std::string* peer);
  void take(const std::string& routing_id, const std::string& proven_name, const zmq::message_t& body);
  void refuse(const std::string& routing_id, const Error& error);
  void note_sequence(const messages::Envelope& envelope);
  void note_handshakes();

  WireOptions options_;
  OnFrame on_frame_;
  std::string endpoint_;
  int wake_ = -1;

  mutable std::mutex mutex_;
  std::map<std::string, Peer> peers_;
  std::deque<Reply> replies_;
  std::deque<Command> commands_;
  std::optional<steady_clock::time_point> stop_at_;

  std::atomic<std::uint64_t> sent_{0};
  std::atomic<std::uint64_t> received_{0};
  std::atomic<std::uint64_t> refused_frames_{0};
  std::atomic<std::uint64_t> refused_handshakes_{0};
  std::atomic<std::uint64_t> dropped_sends_{0};
  std::atomic<std::uint64_t> gaps_{0};

  // Touched by the I/O thread only, once it runs.
  zmq::context_t context_{1};
  std::unique_ptr<ZapHandler> zap_;
  std::optional<zmq::socket_t> router_;
  std::optional<zmq::socket_t> monitor_;
  std::map<std::string, zmq::socket_t> dealers_;
  struct Heard {
    std::uint64_t incarnation = 0;
    std::uint64_t sequence = 0;
  };
  std::map<std::string, Heard> heard_;
  std::set<std::string> said_;
  std::thread thread_;
};

bool is_loopback_address(const std::string& host) { return host.rfind("127.", 0) == 0 || host == "::1" || host == "localhost"; }

Result<void> WireImpl::begin() {
  if (wake_ < 0) return fail(ErrorCode::kIo, std::string("wire: ") + std::strerror(errno));
  if (plain() && options_.listen && !is_loopback_address(options_.bind_host)) {
    return fail(ErrorCode::kBadInput, "wire: without CURVE keys it listens on loopback only, not on " + options_.bind_host + "; set security.curve = true");
  }
  if (!plain() && (!zmq_sockets::is_key(options_.keys.public_key) || !zmq_sockets::is_key(options_.keys.secret_key))) {
    return fail(ErrorCode::kBadInput, "wire: the CURVE keys of " + options_.self + " are not two Z85 strings of 40 characters");
  }
  const std::string host = options_.bind_host.find(':') != std::string::npos ? "[" + options_.bind_host + "]" : options_.bind_host;
  try {
    if (!plain()) {
      zap_ = std::make_unique<ZapHandler>(context_);
      for (const auto& [name, key] : options_.allowed_keys) zap_->allow(name, key);
    }
    if (options_.listen) {
      router_.emplace(context_, zmq::socket_type::router);
      zmq_sockets::set_limits(*router_, options_.max_frame_bytes, options_.high_water_mark);
      router_->set(zmq::sockopt::router_mandatory, true);
      if (!plain()) {
        router_->set(zmq::sockopt::curve_server, true);
        router_->set(zmq::sockopt::curve_secretkey, options_.keys.secret_key);
        router_->set(zmq::sockopt::zap_domain, std::string("troupe"));
      }
      // Noise and strangers never reach ROUTER: only the monitor tells of them.
      const std::string monitor = "inproc://monitor";
      ::zmq_socket_monitor(router_->handle(), monitor.c_str(),
                           ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH);
      monitor_.emplace(context_, zmq::socket_type::pair);
      monitor_->set(zmq::sockopt::linger, 0);
      monitor_->connect(monitor);
      router_->bind("tcp://" + host + ":" + (options_.port == 0 ? "*" : std::to_string(options_.port)));
      endpoint_ = router_->get(zmq::sockopt::last_endpoint);
    }
  } catch (const zmq::error_t& e) {
    return fail(ErrorCode::kIo, "wire: cannot listen on " + host + ":" + std::to_string(options_.port) + ": " + e.what());
  }
  thread_ = std::thread([this] { run(); });
  return {};
}

Result<void> WireImpl::connect(const std::string& name, const std::string& endpoint, const std::string& server_key) {
  if (endpoint.rfind("tcp://", 0) != 0 || endpoint.size() > 512) {
    return fail(ErrorCode::kBadInput, "\"" + endpoint.substr(0, 80) + "\" is no endpoint like tcp://host:port");
  }
  if (!plain() && !zmq_sockets::is_key(server_key)) return fail(ErrorCode::kBadInput, "the CURVE key of " + name + " is not a Z85 string of 40 characters");
  {
    const std::lock_guard lock(mutex_);
    if (stop_at_) return fail(ErrorCode::kAborted, "the wire is stopping");
    Peer& peer = peers_[name];
    if (peer.endpoint == endpoint && peer.key == server_key) return {};
    peer.endpoint = endpoint;
    peer.key = server_key;
    commands_.push_back({Command::Kind::kConnect, name, endpoint, server_key});
  }
  wake();
  return {};
}

void WireImpl::disconnect(const std::string& name) {
  {
    const std::lock_guard lock(mutex_);
    peers_.erase(name);
    commands_.push_back({Command::Kind::kDisconnect, name, {}, {}});
  }
  wake();
}

void WireImpl::allow(const std::vector<std::pair<std::string, std::string>>& keys) {
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [name, key] : keys) commands_.push_back({Command::Kind::kAllow, name, {}, key});
  }
  wake();
}

Result<void> WireImpl::send(const std::string& peer, messages::Frame frame, bool droppable) {
  {
    const std::lock_guard lock(mutex_);
    if (stop_at_) return fail(ErrorCode::kAborted, "the wire is stopping");
    const auto found = peers_.find(peer);
    if (found == peers_.end()) {
      ++dropped_sends_;
      return fail(ErrorCode::kUnavailable, "not connected to " + peer);
    }
    Peer& to = found->second;
    if (to.queue.size() >= static_cast<std::size_t>(options_.high_water_mark)) {
      ++dropped_sends_;
      return fail(ErrorCode::kLimit, std::to_string(to.queue.size()) + " frames wait for " + peer);
    }
    // Numbered and encoded under the lock, so that the order on the wire is the order of the numbers.
    frame.envelope.sequence = droppable ? 0 : to.sequence + 1;
    Bytes bytes = messages::encode_frame(frame);
    if (bytes.size() > options_.max_frame_bytes) return too_large(bytes.size());
    if (!droppable) ++to.sequence;
    to.queue.push_back(std::move(bytes));
  }
  wake();
  return {};
}

Result<void> WireImpl::reply(const PeerHandle& peer, messages::Frame frame) {
  frame.envelope.sequence = 0;
  Bytes bytes = messages::encode_frame(frame);
  if (bytes.size() > options_.max_frame_bytes) return too_large(bytes.size());
  {
    const std::lock_guard lock(mutex_);
    if (stop_at_) return fail(ErrorCode::kAborted, "the wire is stopping");
    if (replies_.size() >= kMaxReplies) {
      ++dropped_sends_;
      return fail(ErrorCode::kLimit, std::to_string(replies_.size()) + " answers wait");
    }
    replies_.push_back({peer.routing_id, std::move(bytes)});
  }
  wake();
  return {};
}

WireStats WireImpl::stats() const {
  return {sent_.load(), received_.load(), refused_frames_.load(), refused_handshakes_.load(), dropped_sends_.load(), gaps_.load()};
}

void WireImpl::stop(milliseconds linger) {
  {
    const std::lock_guard lock(mutex_);
    if (!stop_at_) stop_at_ = steady_clock::now() + linger;
  }
  wake();
  if (thread_.joinable()) thread_.join();
}

void WireImpl::run() {
  for (;;) {
    std::optional<steady_clock::time_point> stop_at;
    {
      const std::lock_guard lock(mutex_);
      stop_at = stop_at_;
    }
    bool idle = false;
    try {
      turn();
      idle = !send_queued();
      send_replies();
    } catch (const zmq::error_t& e) {
      say_once("zmq", std::string("wire: ") + e.what());
      if (e.num() == ETERM) break;
    }
    if (stop_at && (idle || steady_clock::now() >= *stop_at)) break;
  }
  // What ZeroMQ itself has not sent yet gets the rest of the time.
  milliseconds left{0};
  {
    const std::lock_guard lock(mutex_);
    if (stop_at_) left = std::max(milliseconds{0}, std::chrono::duration_cast<milliseconds>(*stop_at_ - steady_clock::now()));
  }
  const int linger = static_cast<int>(left.count());
  for (auto& [name, dealer] : dealers_) dealer.set(zmq::sockopt::linger, linger);
  if (router_) {
    ::zmq_socket_monitor(router_->handle(), nullptr, 0);
    router_->set(zmq::sockopt::linger, linger);
  }
  dealers_.clear();
  monitor_.reset();
  router_.reset();
  zap_.reset();
  context_.close();
}

void WireImpl::turn() {
  std::vector<zmq::pollitem_t> items{{nullptr, wake_, ZMQ_POLLIN, 0}};
  std::vector<std::string> names;
  const bool has_router = router_.has_value();
  if (has_router) {
    items.push_back({router_->handle(), 0, ZMQ_POLLIN, 0});
    items.push_back({monitor_->handle(), 0, ZMQ_POLLIN, 0});
  }
  if (zap_) items.push_back({zap_->socket().handle(), 0, ZMQ_POLLIN, 0});
  const std::size_t first_dealer = items.size();
  {
    const std::lock_guard lock(mutex_);
    for (auto& [name, dealer] : dealers_) {
      const auto peer = peers_.find(name);
      const bool waits = peer != peers_.end() && !peer->second.queue.empty();
      items.push_back({dealer.handle(), 0, static_cast<short>(waits ? ZMQ_POLLIN | ZMQ_POLLOUT : ZMQ_POLLIN), 0});
      names.push_back(name);
    }
  }
  zmq::poll(items, milliseconds{100});

  if (items[0].revents != 0) {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t n = ::read(wake_, &count, sizeof count);
  }
  std::deque<Command> commands;
  {
    const std::lock_guard lock(mutex_);
    commands.swap(commands_);
  }
  if (zap_) {
    if (const std::uint64_t refused = zap_->answer_requests(); refused > 0) {
      refused_handshakes_ += refused;
      say_once("stranger", "wire: refused a connection whose key is not on the list");
    }
  }
  if (has_router) {
    if (items[2].revents != 0) note_handshakes();
    if (items[1].revents != 0) receive(*router_, nullptr);
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    if ((items[first_dealer + i].revents & ZMQ_POLLIN) != 0) receive(dealers_.at(names[i]), &names[i]);
  }
  for (const Command& command : commands) carry_out(command);
}

void WireImpl::carry_out(const Command& command) {
  switch (command.kind) {
    case Command::Kind::kConnect: connect_socket(command); break;
    case Command::Kind::kDisconnect: dealers_.erase(command.name); break;
    case Command::Kind::kAllow:
      if (zap_) zap_->allow(command.name, command.key);
      break;
  }
}

void WireImpl::connect_socket(const Command& command) {
  dealers_.erase(command.name);
  try {
    zmq::socket_t dealer(context_, zmq::socket_type::dealer);
    zmq_sockets::set_limits(dealer, options_.max_frame_bytes, options_.high_water_mark);
    zmq_sockets::set_client_keys(dealer, options_.keys, command.key);
    dealer.connect(command.endpoint);
    dealers_.emplace(command.name, std::move(dealer));
  } catch (const zmq::error_t& e) {
    say_once("connect " + command.name, "wire: cannot connect to " + command.name + " at " + command.endpoint + ": " + e.what());
  }
}

/// Returns whether anything is left to send.
bool WireImpl::send_queued() {
  bool left = false;
  for (auto& [name, dealer] : dealers_) {
    for (;;) {
      Bytes bytes;
      {
        const std::lock_guard lock(mutex_);
        const auto peer = peers_.find(name);
        if (peer == peers_.end() || peer->second.queue.empty()) break;
        bytes = std::move(peer->second.queue.front());
        peer->second.queue.pop_front();
      }
      if (dealer.send(zmq::const_buffer(bytes.data(), bytes.size()), zmq::send_flags::dontwait)) {
        ++sent_;
        continue;
      }
      // Its queue is full: the frame goes back to the front, to be tried when the socket can take it.
      const std::lock_guard lock(mutex_);
      if (const auto peer = peers_.find(name); peer != peers_.end()) peer->second.queue.push_front(std::move(bytes));
      left = true;
      break;
    }
  }
  return left;
}

void WireImpl::send_replies() {
  std::deque<Reply> replies;
  {
    const std::lock_guard lock(mutex_);
    replies.swap(replies_);
  }
  for (const Reply& reply : replies) {
    bool done = false;
    if (router_) {
      try {
        // A peer that has gone is EHOSTUNREACH, one that does not read EAGAIN: its answer is lost, and counted.
        done = router_->send(zmq::buffer(reply.routing_id), zmq::send_flags::sndmore | zmq::send_flags::dontwait).has_value() &&
               router_->send(zmq::const_buffer(reply.bytes.data(), reply.bytes.size()), zmq::send_flags::dontwait).has_value();
      } catch (const zmq::error_t& e) {
        if (e.num() != EHOSTUNREACH) throw;
      }
    }
    ++(done ? sent_ : dropped_sends_);
  }
}

void WireImpl::receive(zmq::socket_t& socket, const std::string* peer) {
  for (int i = 0; i < kMaxPerTurn; ++i) {
    std::string routing_id;
    std::string proven = peer != nullptr ? *peer : std::string();
    zmq::message_t body;
    if (!socket.recv(body, zmq::recv_flags::dontwait)) return;
    std::size_t parts = 1;
    const std::size_t wanted = peer != nullptr ? 1 : 2;
    if (peer == nullptr) routing_id = body.to_string();
    while (body.more()) {
      body.rebuild();
      if (!socket.recv(body, zmq::recv_flags::dontwait)) break;
      ++parts;
    }
    if (parts != wanted) {
      refuse(routing_id, Error{ErrorCode::kBadMessage, "a message of " + std::to_string(parts) + " parts"});
      continue;
    }
    if (peer == nullptr && !plain()) {
      // The name that the key is listed under, as the ZAP handler said.
      try {
        proven = body.gets("User-Id");
      } catch (const zmq::error_t&) {
        proven.clear();
      }
      if (proven.empty()) {
        refuse(routing_id, Error{ErrorCode::kRefused, "a sender without a proven name"});
        continue;
      }
    }
    take(routing_id, proven, body);
  }
}

void WireImpl::take(const std::string& routing_id, const std::string& proven_name, const zmq::message_t& body) {
  const std::span bytes(static_cast<const std::byte*>(body.data()), body.size());
  messages::CodecLimits limits;
  limits.max_bytes = options_.max_frame_bytes;
  auto frame = messages::decode_frame(bytes, limits);
  if (!frame) return refuse(routing_id, frame.error());
  if (!proven_name.empty() && frame->envelope.from != proven_name) {
    return refuse(routing_id, Error{ErrorCode::kRefused, "a frame that says it is from \"" + frame->envelope.from.substr(0, 64) + "\", sent with the key of " + proven_name});
  }
  ++received_;
  note_sequence(frame->envelope);
  const PeerHandle from{routing_id, frame->envelope.from};
  on_frame_(std::move(*frame), from);
}

void WireImpl::refuse(const std::string& routing_id, const Error& error) {
  ++refused_frames_;
  say_once("frame " + std::to_string(static_cast<int>(error.code)), "wire: refused a frame: " + error.message + " (said once, counted from now on)");
  if (routing_id.empty()) return;
  messages::Frame answer;
  answer.envelope.from = options_.self;
  answer.payload = messages::Reject{"frame", static_cast<std::uint16_t>(error.code), error.message};
  (void)reply(PeerHandle{routing_id, {}}, std::move(answer));
}

void WireImpl::note_sequence(const messages::Envelope& envelope) {
  if (envelope.sequence == 0) return;
  Heard& heard = heard_[envelope.from];
  // A new start of the sender counts from 1 again; so does its heartbeat, which is not sequenced.
  if (envelope.incarnation.value != heard.incarnation && envelope.sequence <= heard.sequence) heard.sequence = 0;
  heard.incarnation = envelope.incarnation.value;
  const std::uint64_t expected = heard.sequence + 1;
  if (envelope.sequence > expected) {
    gaps_ += envelope.sequence - expected;
    if (options_.on_gap) options_.on_gap(envelope.from, expected, envelope.sequence);
  }
  heard.sequence = std::max(heard.sequence, envelope.sequence);
}

void WireImpl::note_handshakes() {
  for (;;) {
    zmq::message_t event;
    if (!monitor_->recv(event, zmq::recv_flags::dontwait)) return;
    zmq::message_t address;
    if (event.more()) (void)monitor_->recv(address, zmq::recv_flags::dontwait);
    std::uint16_t number = 0;
    if (event.size() >= sizeof number) std::memcpy(&number, event.data(), sizeof number);
    if (number == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) continue;  // the ZAP handler has counted it
    ++refused_handshakes_;
    say_once("noise", "wire: refused a connection that does not speak this protocol (said once, counted from now on)");
  }
}

}  // namespace

CurveKeys make_curve_keys() {
  char public_key[41];
  char secret_key[41];
  if (::zmq_curve_keypair(public_key, secret_key) != 0) return {};
  return {public_key, secret_key};
}

Result<std::unique_ptr<Wire>> Wire::start(WireOptions options, OnFrame on_frame) {
  auto wire = std::make_unique<WireImpl>(std::move(options), std::move(on_frame));
  if (auto done = wire->begin(); !done) return tl::unexpected(done.error());
  return wire;
}

}  // namespace troupe::cluster
