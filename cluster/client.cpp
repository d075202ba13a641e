#include "cluster/client.hpp"

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

namespace troupe::cluster {

/// Status questions that wait, by cookie.
struct Client::Waiting {
  std::mutex mutex;
  std::condition_variable come;
  std::map<std::uint64_t, std::optional<messages::DoorStatus>> by_cookie;
  std::uint64_t next_cookie = 1;
};

Client::Client(ClientOptions options) : options_(std::move(options)), waiting_(std::make_shared<Waiting>()) {}

Client::~Client() {
  if (wire_) wire_->stop(std::chrono::milliseconds{0});
}

Result<std::unique_ptr<Client>> Client::connect(ClientOptions options) {
  if (options.doors.empty()) return fail(ErrorCode::kBadInput, "client: no door to connect to");
  std::unique_ptr<Client> client(new Client(std::move(options)));
  WireOptions wire;
  wire.self = "client";
  wire.keys = client->options_.keys;
  wire.listen = false;
  for (const DoorAddress& door : client->options_.doors) wire.allowed_keys.emplace_back(door.node, door.server_key);
  auto started = Wire::start(
      std::move(wire), [c = client.get()](messages::Frame frame, const PeerHandle&) { c->on_frame(std::move(frame)); });
  if (!started) return fail_in("client", started.error());
  client->wire_ = std::move(*started);
  for (const DoorAddress& door : client->options_.doors) {
    if (auto done = client->wire_->connect(door.node, door.endpoint, door.server_key); !done)
      return fail_in("client: door of node " + door.node, done.error());
  }
  return client;
}

void Client::on_frame(messages::Frame frame) {
  std::uint32_t door = 0;
  while (door < options_.doors.size() && options_.doors[door].node != frame.envelope.from) ++door;
  if (door == options_.doors.size()) return;  // not one of ours
  if (auto* answer = std::get_if<messages::Answer>(&frame.payload)) {
    if (options_.on_answer) options_.on_answer(door, std::move(*answer));
  } else if (auto* status = std::get_if<messages::DoorStatus>(&frame.payload)) {
    const std::lock_guard lock(waiting_->mutex);
    if (const auto found = waiting_->by_cookie.find(status->cookie); found != waiting_->by_cookie.end()) {
      found->second = std::move(*status);
      waiting_->come.notify_all();
    }
  } else if (auto* reject = std::get_if<messages::Reject>(&frame.payload)) {
    if (options_.on_reject) options_.on_reject(door, std::move(*reject));
  }
}

Result<void> Client::submit(std::uint32_t door, messages::Submit submit) {
  if (door >= options_.doors.size())
    return fail(ErrorCode::kBadInput,
                "client: door " + std::to_string(door) + " of " + std::to_string(options_.doors.size()));
  messages::Frame frame;
  frame.envelope.from = "client";
  frame.envelope.to = "door";
  frame.payload = std::move(submit);
  return wire_->send(options_.doors[door].node, std::move(frame));
}

Result<messages::DoorStatus> Client::status(std::uint32_t door, std::chrono::milliseconds timeout) {
  if (door >= options_.doors.size())
    return fail(ErrorCode::kBadInput,
                "client: door " + std::to_string(door) + " of " + std::to_string(options_.doors.size()));
  std::unique_lock lock(waiting_->mutex);
  const std::uint64_t cookie = waiting_->next_cookie++;
  waiting_->by_cookie[cookie];
  lock.unlock();
  messages::Frame frame;
  frame.envelope.from = "client";
  frame.envelope.to = "door";
  frame.payload = messages::DoorStatusAsked{cookie};
  auto sent = wire_->send(options_.doors[door].node, std::move(frame));
  lock.lock();
  const bool came =
      sent && waiting_->come.wait_for(lock, timeout, [&] { return waiting_->by_cookie[cookie].has_value(); });
  std::optional<messages::DoorStatus> status = std::move(waiting_->by_cookie[cookie]);
  waiting_->by_cookie.erase(cookie);
  if (!sent) return tl::unexpected(sent.error());
  if (!came)
    return fail(ErrorCode::kDeadline, "client: the door of node " + options_.doors[door].node +
                                          " gave no status within " + std::to_string(timeout.count()) + " ms");
  return std::move(*status);
}

}  // namespace troupe::cluster
