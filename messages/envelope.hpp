#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "messages/client.hpp"
#include "messages/codec.hpp"
#include "messages/control.hpp"

/// A frame is what one ZeroMQ message holds: an envelope and one payload, both msgpack arrays.
namespace troupe::messages {

/// Version of the wire. A frame of another version is refused before anything else of it is looked at.
inline constexpr std::uint16_t kWireVersion = 1;

struct Envelope {
  std::uint16_t version = kWireVersion;
  std::string from;         ///< sender's node name; "coordinator" and "client" are reserved
  std::string to;           ///< name of the actor addressed on the receiving node
  Incarnation incarnation;  ///< of the sender
  View view;                ///< that the sender holds
  Epoch epoch;              ///< that the sender holds
  std::uint64_t sequence =
      0;  ///< per sender and receiver, from 1; a gap asks for a snapshot; 0: not sequenced (droppable)
  static constexpr std::string_view kName = "Envelope";
  static constexpr auto kFields = std::tuple{
      field("version", &Envelope::version),         field("from", &Envelope::from), field("to", &Envelope::to),
      field("incarnation", &Envelope::incarnation), field("view", &Envelope::view), field("epoch", &Envelope::epoch),
      field("sequence", &Envelope::sequence)};
  friend bool operator==(const Envelope&, const Envelope&) = default;
};

/// All that may travel. The payload's name goes with it on the wire, so the order here may change.
using Payload =
    std::variant<Join, JoinAccepted, Reject, Leave, ViewPublished, EpochPublished, NodeReady, ServingStarted,
                 PassOpened, HeatReport, Heartbeat, Shutdown, Ping, Pong, Submit, Answer, DoorStatusAsked, DoorStatus>;

struct Frame {
  Envelope envelope;
  Payload payload;
  friend bool operator==(const Frame&, const Frame&) = default;
};

/// The wire name of a payload, its struct's kName.
std::string_view payload_name(const Payload& payload);

std::vector<std::byte> encode_frame(const Frame& frame);

/// Errors: kMismatch (another wire version; names both), kBadMessage (does not decode, unknown payload name), kLimit.
/// Never throws, never takes more memory than a small multiple of bytes.size().
Result<Frame> decode_frame(std::span<const std::byte> bytes, const CodecLimits& limits = {});

}  // namespace troupe::messages
