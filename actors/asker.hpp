#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>

#include "messages/client.hpp"
#include "messages/error.hpp"

namespace troupe::actors {

/// Asks a door on behalf of code that is no actor, keeping the order in which it was asked.
/// Thread rule: calls from one thread keep their order; `ask` and `ask_status` never block. Every callback is called
/// exactly once, on an actor's thread, and must not block.
class Asker {
 public:
  Asker(caf::actor_system& system, const caf::actor& door);
  /// Ends the asker; what is not answered by then is answered with kAborted.
  ~Asker();
  Asker(const Asker&) = delete;
  Asker& operator=(const Asker&) = delete;

  /// A deadline becomes an Answer with kDeadline.
  void ask(messages::Submit submit, std::chrono::milliseconds timeout, std::function<void(messages::Answer)> on_answer);
  void ask_status(std::uint64_t cookie, std::chrono::milliseconds timeout,
                  std::function<void(Result<messages::DoorStatus>)> on_status);

 private:
  caf::actor_system& system_;
  caf::actor actor_;
};

}  // namespace troupe::actors
