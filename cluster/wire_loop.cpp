#include "cluster/wire_loop.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <span>
#include <utility>

#include "cluster/wire_address.hpp"
#include "cluster/zmq_sockets.hpp"

namespace troupe::cluster {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// Frames in or out of one socket before the others get their turn.
constexpr std::size_t kMaxPerTurn = 256;
/// Places in the poll list.
constexpr std::size_t kZapItem = 1;
constexpr std::size_t kFirstItem = 2;
/// With nothing to do the loop looks around this often; with answers that one connection does not take, that often.
constexpr milliseconds kIdle{1'000};
constexpr milliseconds kRetry{5};
/// From this size on a frame is handed to ZeroMQ as it is, below that copied: an allocation costs more than the copy.
constexpr std::size_t kHandOver = std::size_t{16} << 10;
/// How many different senders of one kind of trouble are named in the log; further ones are counted only.
constexpr std::size_t kMaxNamed = 16;
constexpr std::size_t kMaxHeard = 4096;
constexpr int kMaxSockets = 4096;
/// Clients share this name, so their sequence numbers say nothing.
constexpr std::string_view kClient = "client";

// ZeroMQ keeps half of what may wait for a peer, our queue the other half (WireQueues::Limits).
int half(int high_water_mark) {
  return std::max(1, high_water_mark / 2);
}

zmq::message_t to_message(std::vector<std::byte>& bytes) {
  if (bytes.size() < kHandOver) return {bytes.data(), bytes.size()};
  auto held = std::make_unique<std::vector<std::byte>>(std::move(bytes));
  zmq::message_t message(
      held->data(), held->size(), [](void*, void* hint) { delete static_cast<std::vector<std::byte>*>(hint); },
      held.get());
  (void)held.release();
  return message;
}

// The key that ZAP let in, as the socket's connection carries it; empty on the plain wire.
std::string user_id(const zmq::message_t& message) {
  const char* id = ::zmq_msg_gets(const_cast<zmq_msg_t*>(message.handle()), "User-Id");
  return id == nullptr ? std::string() : std::string(id);
}

}  // namespace

WireLoop::WireLoop(const WireOptions& options, Wire::OnFrame on_frame, WireQueues& queues)
    : options_(options), on_frame_(std::move(on_frame)), queues_(queues), context_(1) {
  context_.set(zmq::ctxopt::max_sockets, kMaxSockets);
}

void WireLoop::open() {
  zap_.emplace(context_, plain(), [this](const std::string& address, const std::string& key) {
    say_once("stranger", key, "refused a connection from " + address + ": key '" + key + "' is not on the list");
  });
  for (const auto& [name, key] : options_.allowed_keys) zap_->allow(name, key);
  if (!options_.listen) return;
  router_.emplace(context_, zmq::socket_type::router);
  zmq_sockets::set_limits(*router_, options_.max_frame_bytes, half(options_.high_water_mark));
  // An IPv4 address would come back from an IPv6 socket as ::ffff:127.0.0.1, in endpoint() and for peers.
  router_->set(zmq::sockopt::ipv6, options_.bind_host.find(':') != std::string::npos);
  router_->set(zmq::sockopt::zap_domain, kZapDomain);
  if (!plain()) {
    router_->set(zmq::sockopt::curve_server, true);
    router_->set(zmq::sockopt::curve_secretkey, options_.keys.secret_key);
  }
  // Mandatory: an answer to someone who is gone is an error, not silence. No handover: routing ids are ROUTER's own
  // numbers, one per connection; a peer that could pick one, and take over its traffic, would get what is meant for
  // another.
  router_->set(zmq::sockopt::router_mandatory, true);
  router_->set(zmq::sockopt::router_handover, false);
  open_monitor();
  router_->bind(bind_endpoint(options_.bind_host, options_.port));
  endpoint_ = router_->get(zmq::sockopt::last_endpoint);
}

// Strangers and noise never reach ROUTER: only its monitor tells of them.
void WireLoop::open_monitor() {
  constexpr const char* kMonitor = "inproc://wire.monitor";
  if (::zmq_socket_monitor(router_->handle(), kMonitor, HandshakeWatch::events()) != 0) throw zmq::error_t();
  monitor_.emplace(context_, zmq::socket_type::pair);
  monitor_->set(zmq::sockopt::linger, 0);
  monitor_->connect(kMonitor);
}

void WireLoop::run() {
  for (;;) {
    try {
      const auto news = queues_.news();
      turn(news);
      if (news.stop_at && (queues_.empty() || steady_clock::now() >= *news.stop_at)) break;
    } catch (const zmq::error_t& error) {
      if (error.num() == ETERM) break;
      if (error.num() != EINTR) say_once("zmq", error.what(), std::string("ZeroMQ: ") + error.what());
    }
  }
  milliseconds left{0};
  if (const auto stop_at = queues_.news().stop_at) {
    left = std::max(left, std::chrono::duration_cast<milliseconds>(*stop_at - steady_clock::now()));
  }
  close(static_cast<int>(std::min(left, milliseconds{60'000}).count()));
}

void WireLoop::turn(const WireQueues::News& news) {
  for (const auto& [name, key] : news.allowed) zap_->allow(name, key);
  if (news.targets_changed || items_.empty()) reconcile();
  more_ = false;
  flush();
  auto wait = more_ ? milliseconds{0} : replies_blocked_ ? kRetry : kIdle;
  if (news.stop_at) wait = std::min(wait, kRetry);
  std::size_t next = kFirstItem + (router_ ? 2 : 0);
  for (auto& [name, dealer] : dealers_) {
    items_[next++].events = static_cast<short>(dealer.blocked ? ZMQ_POLLIN | ZMQ_POLLOUT : ZMQ_POLLIN);
  }
  zmq::poll(items_, wait);
  // Only who has something is asked: asking an idle ZeroMQ socket costs as much as a small message.
  const auto readable = [this](std::size_t item) { return (items_[item].revents & ZMQ_POLLIN) != 0; };
  if (readable(kZapItem)) zap_->answer_requests();
  next = kFirstItem;
  if (router_) {
    if (readable(next++)) receive_routed();
    if (readable(next++)) note_handshakes();
  }
  for (auto& [name, dealer] : dealers_) {
    if (readable(next++)) receive_from(name, dealer);
  }
}

// Makes the sockets what the queues' targets say, and the poll list what the sockets are: the wake-up, ZAP, then ROUTER
// and its monitor where it listens, then the dealers in the order of their names.
void WireLoop::reconcile() {
  const auto targets = queues_.targets();
  std::map<std::string, std::uint64_t> wanted;
  for (const auto& target : targets) wanted[target.name] = target.generation;
  for (auto dealer = dealers_.begin(); dealer != dealers_.end();) {
    const auto found = wanted.find(dealer->first);
    const bool keep = found != wanted.end() && found->second == dealer->second.generation;
    dealer = keep ? std::next(dealer) : dealers_.erase(dealer);
  }
  for (const auto& target : targets) {
    if (dealers_.count(target.name) == 0) connect(target);
  }
  items_ = {{nullptr, queues_.wake_fd(), ZMQ_POLLIN, 0}, {zap_->socket().handle(), 0, ZMQ_POLLIN, 0}};
  if (router_) {
    items_.push_back({router_->handle(), 0, ZMQ_POLLIN, 0});
    items_.push_back({monitor_->handle(), 0, ZMQ_POLLIN, 0});
  }
  for (auto& [name, dealer] : dealers_) items_.push_back({dealer.socket.handle(), 0, ZMQ_POLLIN, 0});
}

void WireLoop::connect(const WireQueues::Target& target) {
  try {
    zmq::socket_t socket(context_, zmq::socket_type::dealer);
    zmq_sockets::set_limits(socket, options_.max_frame_bytes, half(options_.high_water_mark));
    zmq_sockets::set_client_keys(socket, options_.keys, target.key);
    socket.connect(target.endpoint);
    dealers_.emplace(target.name, Dealer{target.generation, target.key, std::move(socket), false});
  } catch (const zmq::error_t& error) {
    const std::string why = "cannot connect to " + target.endpoint + ": " + error.what();
    queues_.give_up(target.name, target.generation, why);
    say_once("connect", target.name, target.name + ": " + why);
  }
}

void WireLoop::close(int linger_ms) {
  try {
    if (router_) (void)::zmq_socket_monitor(router_->handle(), nullptr, 0);
    for (auto& [name, dealer] : dealers_) dealer.socket.set(zmq::sockopt::linger, linger_ms);
    if (router_) router_->set(zmq::sockopt::linger, linger_ms);
  } catch (const zmq::error_t& error) {
    say_once("zmq", error.what(), std::string("ZeroMQ: ") + error.what());
  }
  dealers_.clear();
  monitor_.reset();
  router_.reset();
  zap_.reset();
  context_.close();  // waits for what lingers
}

void WireLoop::flush() {
  for (auto& [name, dealer] : dealers_) flush_peer(name, dealer);
  replies_blocked_ = false;
  for (const auto& id : queues_.reply_ids()) flush_replies(id);
}

// Sends from the front of the batch until the socket takes no more. Throws zmq::error_t.
std::size_t WireLoop::send_some(zmq::socket_t& socket, const std::string* routing_id, WireQueues::Batch& batch) {
  for (auto& bytes : batch.frames) {
    const auto size = bytes.size();
    if (routing_id != nullptr &&
        !socket.send(zmq::buffer(*routing_id), zmq::send_flags::sndmore | zmq::send_flags::dontwait)) {
      break;
    }
    auto message = to_message(bytes);
    if (!socket.send(message, zmq::send_flags::dontwait)) {
      // ZeroMQ has not taken the message: a frame that was handed over goes back whole.
      const auto* data = static_cast<const std::byte*>(message.data());
      if (bytes.empty()) bytes.assign(data, data + message.size());
      break;
    }
    ++batch.sent;
    batch.sent_bytes += size;
    ++counters_.sent;
  }
  return batch.sent;
}

void WireLoop::flush_peer(const std::string& name, Dealer& dealer) {
  auto batch = queues_.take(name, dealer.generation, kMaxPerTurn);
  if (batch.frames.empty()) {
    dealer.blocked = false;
    return;
  }
  try {
    dealer.blocked = send_some(dealer.socket, nullptr, batch) < batch.frames.size();
  } catch (const zmq::error_t&) {
    queues_.settle(name, dealer.generation, std::move(batch));
    throw;
  }
  if (!dealer.blocked && batch.frames.size() == kMaxPerTurn) more_ = true;
  queues_.settle(name, dealer.generation, std::move(batch));
}

void WireLoop::flush_replies(const std::string& routing_id) {
  auto batch = queues_.take_replies(routing_id, kMaxPerTurn);
  if (!router_) return queues_.drop_replies(routing_id, batch);
  try {
    if (send_some(*router_, &routing_id, batch) < batch.frames.size()) {
      replies_blocked_ = true;
    } else if (batch.frames.size() == kMaxPerTurn) {
      more_ = true;
    }
    queues_.settle_replies(routing_id, std::move(batch));
  } catch (const zmq::error_t& error) {
    queues_.drop_replies(routing_id, batch);
    if (error.num() != EHOSTUNREACH) throw;
  }
}

void WireLoop::receive_routed() {
  for (std::size_t i = 0; i < kMaxPerTurn; ++i) {
    zmq::message_t id;
    if (!router_->recv(id, zmq::recv_flags::dontwait)) return;
    zmq::message_t body;
    std::size_t parts = 1;
    for (bool more = id.more(); more; more = body.more(), ++parts) (void)router_->recv(body, zmq::recv_flags::dontwait);
    const std::string routing_id = id.to_string();
    if (parts != 2) {
      refuse(routing_id, user_id(id), {ErrorCode::kBadMessage, "a message of " + std::to_string(parts - 1) + " parts"});
      continue;
    }
    take(routing_id, user_id(body), nullptr, body);
  }
}

void WireLoop::receive_from(const std::string& peer, Dealer& dealer) {
  for (std::size_t i = 0; i < kMaxPerTurn; ++i) {
    zmq::message_t body;
    if (!dealer.socket.recv(body, zmq::recv_flags::dontwait)) return;
    std::size_t parts = 1;
    for (bool more = body.more(); more; more = body.more(), ++parts)
      (void)dealer.socket.recv(body, zmq::recv_flags::dontwait);
    if (parts != 1) {
      refuse({}, dealer.key, {ErrorCode::kBadMessage, "a message of " + std::to_string(parts) + " parts"});
      continue;
    }
    take({}, dealer.key, &peer, body);
  }
}

void WireLoop::take(const std::string& routing_id, const std::string& proven_key, const std::string* peer,
                    const zmq::message_t& body) {
  messages::CodecLimits limits;
  limits.max_bytes = options_.max_frame_bytes;
  auto frame = messages::decode_frame(std::span(static_cast<const std::byte*>(body.data()), body.size()), limits);
  if (!frame) return refuse(routing_id, proven_key, frame.error());
  const auto& from = frame->envelope.from;
  // Over our own connection only the one that we connected to speaks; over one made to us, who has a name for its key.
  const bool honest = peer != nullptr ? from == *peer : plain() || zap_->may_speak_as(proven_key, from);
  if (!honest) {
    return refuse(routing_id, proven_key,
                  {ErrorCode::kRefused,
                   "a frame that says it is from \"" + from.substr(0, 64) + "\", which is not a name of who sent it"});
  }
  ++counters_.received;
  note_sequence(frame->envelope);
  const PeerHandle handle{routing_id, from};
  on_frame_(std::move(*frame), handle);
}

void WireLoop::refuse(const std::string& routing_id, const std::string& proven_key, const Error& error) {
  ++counters_.refused_frames;
  say_once("frame " + std::to_string(static_cast<int>(error.code)), proven_key,
           "refused a frame" + (proven_key.empty() ? std::string() : " of key " + proven_key) + ": " + error.message);
  // Only who connected to us is answered, and over such an answer nobody is: two confused peers cannot keep each other
  // busy.
  if (routing_id.empty()) return;
  messages::Frame answer;
  answer.envelope.from = options_.self;
  answer.payload = messages::Reject{"frame", static_cast<std::uint16_t>(error.code), error.message};
  (void)queues_.push_reply(routing_id, messages::encode_frame(answer));
}

void WireLoop::note_sequence(const messages::Envelope& envelope) {
  if (envelope.sequence == 0 || envelope.from == kClient) return;
  auto heard = heard_.find(envelope.from);
  if (heard == heard_.end()) {
    // Names are proven where there are keys; on the plain wire they could be anything.
    if (heard_.size() >= kMaxHeard) return say_once("heard", "", "too many senders: gaps of further ones go unnoticed");
    heard = heard_.emplace(envelope.from, 0).first;
  }
  // A new start counts from 1 again. A lower number that is not 1 is a new start whose first frames are missing.
  const std::uint64_t expected = envelope.sequence <= heard->second ? 1 : heard->second + 1;
  heard->second = envelope.sequence;
  if (envelope.sequence == expected) return;
  counters_.gaps += envelope.sequence - expected;
  if (options_.on_gap) options_.on_gap(envelope.from, expected, envelope.sequence);
}

void WireLoop::note_handshakes() {
  for (;;) {
    zmq::message_t event;
    if (!monitor_->recv(event, zmq::recv_flags::dontwait)) return;
    zmq::message_t address;
    if (event.more()) (void)monitor_->recv(address, zmq::recv_flags::dontwait);
    std::uint16_t number = 0;
    std::uint32_t value = 0;
    if (event.size() != sizeof(number) + sizeof(value)) continue;
    std::memcpy(&number, event.data(), sizeof(number));
    std::memcpy(&value, static_cast<const char*>(event.data()) + sizeof(number), sizeof(value));
    const auto refusal = handshakes_.on_event(number, value);
    if (!refusal) continue;
    ++counters_.refused_handshakes;
    const char* why = nullptr;
    switch (*refusal) {
      case HandshakeWatch::Refusal::kNoise:
        why = "what it sent is no ZMTP";
        break;
      case HandshakeWatch::Refusal::kProtocol:
        why = "it has no key, or not ours, or does not speak ZMTP 3";
        break;
      case HandshakeWatch::Refusal::kBrokenOff:
        why = "it broke off, or sent too little in time";
        break;
      case HandshakeWatch::Refusal::kKey:
        continue;  // the ZAP handler has named it
    }
    say_once("handshake", why, "refused a connection to " + endpoint_ + ": " + why);
  }
}

void WireLoop::say_once(const std::string& kind, const std::string& who, const std::string& text) {
  if (!options_.log) return;
  auto& named = said_[kind];
  if (named.size() >= kMaxNamed || !named.insert(who).second) return;
  std::string line = options_.self + ": " + text;
  line += named.size() < kMaxNamed ? " (further ones are counted)" : " (further ones, of others too, are counted only)";
  options_.log(line);
}

}  // namespace troupe::cluster
