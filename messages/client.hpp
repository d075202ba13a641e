#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "messages/fields.hpp"
#include "messages/ids.hpp"

/// What a client and a node's door say to each other.
namespace troupe::messages {

/// A client's id for a request: chosen by the client, kept when it is sent again to another door.
struct RequestId {
  std::uint64_t client = 0;
  std::uint64_t number = 0;
  static constexpr std::string_view kName = "RequestId";
  static constexpr auto kFields = std::tuple{field("client", &RequestId::client), field("number", &RequestId::number)};
  friend constexpr auto operator<=>(const RequestId&, const RequestId&) = default;
};

/// client -> door: run these tokens through all MoE layers.
/// hidden: tokens x d_model values of f32, row major, little endian bytes.
/// route_ids, route_weights: either both empty (the model's gate decides) or layers x tokens x top_k, row major by layer,
/// then token; an id of -1 is padding.
struct Submit {
  RequestId request;
  std::uint64_t stream = 0;          ///< answers of a stream leave in the order of its sequence numbers
  std::uint64_t first_sequence = 0;  ///< sequence number of the first token in the stream
  std::uint32_t tokens = 0;
  std::vector<std::byte> hidden;
  std::vector<std::int32_t> route_ids;
  std::vector<float> route_weights;
  static constexpr std::string_view kName = "Submit";
  static constexpr auto kFields =
      std::tuple{field("request", &Submit::request), field("stream", &Submit::stream),
                 field("first_sequence", &Submit::first_sequence), field("tokens", &Submit::tokens),
                 field("hidden", &Submit::hidden), field("route_ids", &Submit::route_ids),
                 field("route_weights", &Submit::route_weights)};
  friend bool operator==(const Submit&, const Submit&) = default;
};

/// What happened to a token on its way, beyond the exact computation. 0 means: exact.
enum TokenFlag : std::uint8_t {
  kTokenExact = 0,
  kTokenDropped = 1,     ///< at least one of its experts overflowed and was left out (capacity.overflow = "drop")
  kTokenRerouted = 2,    ///< an overflowed expert was replaced by the gate's next choice
  kTokenBadRoute = 4,    ///< a route slot named no expert of the layer; that slot was refused
  kTokenFailed = 8       ///< no valid gate scores: the token's hidden state is returned as it came
};

/// door -> client: the hidden states after the last layer.
struct Answer {
  RequestId request;
  std::uint64_t stream = 0;
  std::uint64_t first_sequence = 0;
  std::uint32_t tokens = 0;
  std::uint16_t code = 0;            ///< ErrorCode; kNone when the tokens were computed
  std::string message;               ///< for a person, when code is not kNone
  std::vector<std::byte> hidden;     ///< tokens x d_model of f32, as in Submit
  std::vector<std::uint8_t> flags;   ///< one TokenFlag set per token; empty means all exact
  std::uint64_t first_pass = 0;      ///< the passes that computed it
  std::uint64_t last_pass = 0;
  static constexpr std::string_view kName = "Answer";
  static constexpr auto kFields =
      std::tuple{field("request", &Answer::request), field("stream", &Answer::stream),
                 field("first_sequence", &Answer::first_sequence), field("tokens", &Answer::tokens),
                 field("code", &Answer::code), field("message", &Answer::message), field("hidden", &Answer::hidden),
                 field("flags", &Answer::flags), field("first_pass", &Answer::first_pass),
                 field("last_pass", &Answer::last_pass)};
  friend bool operator==(const Answer&, const Answer&) = default;
};

/// client -> door: how are you; answered with DoorStatus.
struct DoorStatusAsked {
  std::uint64_t cookie = 0;
  static constexpr std::string_view kName = "DoorStatusAsked";
  static constexpr auto kFields = std::tuple{field("cookie", &DoorStatusAsked::cookie)};
  friend bool operator==(const DoorStatusAsked&, const DoorStatusAsked&) = default;
};

/// door -> client. Figures of this node since its start.
struct DoorStatus {
  std::uint64_t cookie = 0;
  std::string node;
  View view;
  Epoch epoch;
  std::uint64_t passes = 0;
  std::uint64_t refused_frames = 0;             ///< noise, wrong versions, strangers: counted, logged once
  std::uint64_t all_to_all_bytes = 0;           ///< payload that left a GPU for another one
  std::uint64_t all_to_all_ns = 0;              ///< time in dispatch and combine, summed over this node's ranks
  std::uint64_t step_ns = 0;                    ///< time in steps, summed over this node's ranks
  std::vector<std::uint64_t> step_time_ns;      ///< a sample of step times of rank-steps with tokens, ns, at most 65,536
  std::vector<std::uint64_t> tokens_per_gpu;    ///< token visits computed per GPU of this node
  std::vector<std::uint64_t> tokens_per_expert; ///< token visits routed by this node's ranks, [layers x experts]
  std::vector<std::uint64_t> arena_bytes;       ///< per GPU: size of its one arena
  std::vector<std::uint64_t> arena_used_bytes;  ///< per GPU: of these, in use
  std::vector<std::uint64_t> tokens_per_gpu_layer;  ///< token visits computed, [GPUs of this node x layers]
  static constexpr std::string_view kName = "DoorStatus";
  static constexpr auto kFields =
      std::tuple{field("cookie", &DoorStatus::cookie), field("node", &DoorStatus::node), field("view", &DoorStatus::view),
                 field("epoch", &DoorStatus::epoch), field("passes", &DoorStatus::passes),
                 field("refused_frames", &DoorStatus::refused_frames),
                 field("all_to_all_bytes", &DoorStatus::all_to_all_bytes), field("all_to_all_ns", &DoorStatus::all_to_all_ns),
                 field("step_ns", &DoorStatus::step_ns), field("step_time_ns", &DoorStatus::step_time_ns),
                 field("tokens_per_gpu", &DoorStatus::tokens_per_gpu),
                 field("tokens_per_expert", &DoorStatus::tokens_per_expert),
                 field("arena_bytes", &DoorStatus::arena_bytes), field("arena_used_bytes", &DoorStatus::arena_used_bytes),
                 optional_field("tokens_per_gpu_layer", &DoorStatus::tokens_per_gpu_layer)};
  friend bool operator==(const DoorStatus&, const DoorStatus&) = default;
};

}  // namespace troupe::messages
