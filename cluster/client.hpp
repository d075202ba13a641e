#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cluster/wire.hpp"
#include "messages/client.hpp"
#include "messages/error.hpp"

/// A program's way to a cluster's doors.
namespace troupe::cluster {

struct DoorAddress {
  std::string node;
  std::string endpoint;    ///< tcp://host:port
  std::string server_key;  ///< the node's CURVE public key; empty: plain
};

struct ClientOptions {
  std::vector<DoorAddress> doors;
  CurveKeys keys;  ///< a key on the doors' allow-list; empty: plain
  /// Called once per answer, on the client's I/O thread: must not block.
  std::function<void(std::uint32_t door, messages::Answer answer)> on_answer;
  /// A door refused something that is no request of a known id (a Reject); may be null.
  std::function<void(std::uint32_t door, messages::Reject reject)> on_reject;
};

/// Thread rule: submit and status may be called from any thread.
class Client {
 public:
  static Result<std::unique_ptr<Client>> connect(ClientOptions options);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  /// Hands a request to a door; requests of one thread to one door arrive in order. Never blocks.
  /// Errors: kBadInput (no such door), kLimit (queue full: try again when answers have come), kUnavailable.
  Result<void> submit(std::uint32_t door, messages::Submit submit);
  /// Errors: kDeadline.
  Result<messages::DoorStatus> status(std::uint32_t door, std::chrono::milliseconds timeout);

 private:
  explicit Client(ClientOptions options);
  void on_frame(messages::Frame frame);
  struct Waiting;
  ClientOptions options_;
  std::shared_ptr<Waiting> waiting_;
  std::unique_ptr<Wire> wire_;
};

}  // namespace troupe::cluster
