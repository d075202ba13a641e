#pragma once

#include <functional>
#include <memory>
#include <string>

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>

#include "actors/directory.hpp"
#include "actors/hooks.hpp"
#include "messages/envelope.hpp"

/// Where actors of other processes are reached. A link actor per peer turns messages into frames; a proxy per remote
/// actor looks like that actor and hands what it gets to the link.
namespace troupe::actors {

/// Gives a frame to the wire; never blocks. Errors: kLimit (queue full), kUnavailable.
using SendFrame = std::function<Result<void>(const std::string& peer, messages::Frame frame, bool droppable)>;

/// A link to `peer`. State messages that the wire has no room for now are kept, in order, and tried again; heat is
/// dropped.
caf::actor spawn_link(caf::actor_system& system, std::string peer, SendFrame send,
                      std::shared_ptr<const Identity> identity, Log log);

/// A stand-in for the actor `name` behind `link`.
caf::actor spawn_proxy(caf::actor_system& system, const caf::actor& link, std::string name);

/// Gives a frame that came in to the actor that it names. Errors: kUnavailable (no such actor here), kStale (an older
/// incarnation than `known_incarnation` says of its sender; 0: unknown).
Result<void> deliver(Directory& directory, const std::string& here, messages::Frame frame,
                     std::uint64_t known_incarnation);

}  // namespace troupe::actors
