#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "messages/error.hpp"
#include "messages/fields.hpp"
#include "messages/ids.hpp"

/// What the actors of a cluster say to each other. Plain values; who sends what to whom stands at each struct.
namespace troupe::messages {

/// How to reach one GPU worker's bulk inboxes. Empty strings mean: not offered.
struct BulkAddress {
  std::string host_key;    ///< equal on two workers that can share memory: boot id and network namespace
  std::string shm_name;    ///< abstract unix socket that hands out the inbox's memfd
  std::string ucx_address; ///< UCX worker address, opaque bytes
  static constexpr std::string_view kName = "BulkAddress";
  static constexpr auto kFields = std::tuple{field("host_key", &BulkAddress::host_key), field("shm_name", &BulkAddress::shm_name),
                                             field("ucx_address", &BulkAddress::ucx_address)};
  friend bool operator==(const BulkAddress&, const BulkAddress&) = default;
};

/// node -> coordinator: I am up. The first message of an incarnation.
struct Join {
  std::string node;             ///< the node's name in the config
  std::uint64_t start_nonce = 0;///< random per process start: a repeated Join of one start is recognised by it
  std::uint64_t plan_digest = 0;///< digest of the effective config: model, limits, transport; unequal ones are refused (C18)
  std::string control_endpoint; ///< where peers reach its control socket, tcp://host:port
  std::string control_key;      ///< its CURVE public key, Z85; empty on the plain loopback wire
  std::string door_endpoint;    ///< where clients reach its door
  std::vector<BulkAddress> gpus;///< one per GPU worker, in GPU order
  std::uint32_t max_tokens_per_pass = 0; ///< its row limit; unequal ones are found here (C18)
  static constexpr std::string_view kName = "Join";
  static constexpr auto kFields =
      std::tuple{field("node", &Join::node), field("start_nonce", &Join::start_nonce), field("plan_digest", &Join::plan_digest),
                 field("control_endpoint", &Join::control_endpoint), field("control_key", &Join::control_key),
                 field("door_endpoint", &Join::door_endpoint), field("gpus", &Join::gpus),
                 field("max_tokens_per_pass", &Join::max_tokens_per_pass)};
  friend bool operator==(const Join&, const Join&) = default;
};

/// coordinator -> node: you are in, under this number and incarnation.
struct JoinAccepted {
  std::string node;
  std::uint64_t start_nonce = 0;
  NodeId node_id;
  Incarnation incarnation;
  static constexpr std::string_view kName = "JoinAccepted";
  static constexpr auto kFields =
      std::tuple{field("node", &JoinAccepted::node), field("start_nonce", &JoinAccepted::start_nonce),
                 field("node_id", &JoinAccepted::node_id), field("incarnation", &JoinAccepted::incarnation)};
  friend bool operator==(const JoinAccepted&, const JoinAccepted&) = default;
};

/// Any party -> sender of a message that could not be taken. `code` is an ErrorCode.
struct Reject {
  std::string about;       ///< name of the message that is refused
  std::uint16_t code = 0;
  std::string message;
  static constexpr std::string_view kName = "Reject";
  static constexpr auto kFields =
      std::tuple{field("about", &Reject::about), field("code", &Reject::code), field("message", &Reject::message)};
  friend bool operator==(const Reject&, const Reject&) = default;
};

/// node -> coordinator: I go, do not wait for me.
struct Leave {
  std::string node;
  std::string reason;
  static constexpr std::string_view kName = "Leave";
  static constexpr auto kFields = std::tuple{field("node", &Leave::node), field("reason", &Leave::reason)};
  friend bool operator==(const Leave&, const Leave&) = default;
};

/// One live node of a view.
struct Member {
  std::string node;
  NodeId node_id;
  Incarnation incarnation;
  std::string control_endpoint;
  std::string control_key;
  std::string door_endpoint;
  std::vector<BulkAddress> gpus;
  static constexpr std::string_view kName = "Member";
  static constexpr auto kFields =
      std::tuple{field("node", &Member::node), field("node_id", &Member::node_id), field("incarnation", &Member::incarnation),
                 field("control_endpoint", &Member::control_endpoint), field("control_key", &Member::control_key),
                 field("door_endpoint", &Member::door_endpoint), field("gpus", &Member::gpus)};
  friend bool operator==(const Member&, const Member&) = default;
};

/// coordinator -> all nodes: the membership from now on. Ranks are the GPUs of the members in order.
struct ViewPublished {
  View view;
  std::vector<Member> members;
  static constexpr std::string_view kName = "ViewPublished";
  static constexpr auto kFields = std::tuple{field("view", &ViewPublished::view), field("members", &ViewPublished::members)};
  friend bool operator==(const ViewPublished&, const ViewPublished&) = default;
};

/// One replica of an expert: a slot of a GPU, and the share of the expert's tokens that it takes.
struct ReplicaEntry {
  ExpertId expert;
  GpuId gpu;
  std::uint32_t slot = 0;  ///< slot of the expert's layer on that GPU: 0 .. slots_per_gpu-1
  double share = 1.0;      ///< shares of an expert's replicas sum to 1
  static constexpr std::string_view kName = "ReplicaEntry";
  static constexpr auto kFields = std::tuple{field("expert", &ReplicaEntry::expert), field("gpu", &ReplicaEntry::gpu),
                                             field("slot", &ReplicaEntry::slot), field("share", &ReplicaEntry::share)};
  friend bool operator==(const ReplicaEntry&, const ReplicaEntry&) = default;
};

/// placement manager -> all nodes: the placement of this epoch, in full.
struct EpochPublished {
  Epoch epoch;
  View view;  ///< the membership that it was planned for
  std::vector<ReplicaEntry> replicas;
  static constexpr std::string_view kName = "EpochPublished";
  static constexpr auto kFields = std::tuple{field("epoch", &EpochPublished::epoch), field("view", &EpochPublished::view),
                                             field("replicas", &EpochPublished::replicas)};
  friend bool operator==(const EpochPublished&, const EpochPublished&) = default;
};

/// node -> coordinator: the weights of this epoch are loaded and the bulk channels of this view are up.
struct NodeReady {
  std::string node;
  View view;
  Epoch epoch;
  static constexpr std::string_view kName = "NodeReady";
  static constexpr auto kFields =
      std::tuple{field("node", &NodeReady::node), field("view", &NodeReady::view), field("epoch", &NodeReady::epoch)};
  friend bool operator==(const NodeReady&, const NodeReady&) = default;
};

/// coordinator -> all nodes: every member is ready; ranks may open passes.
struct ServingStarted {
  View view;
  Epoch epoch;
  static constexpr std::string_view kName = "ServingStarted";
  static constexpr auto kFields = std::tuple{field("view", &ServingStarted::view), field("epoch", &ServingStarted::epoch)};
  friend bool operator==(const ServingStarted&, const ServingStarted&) = default;
};

/// rank -> all ranks of its view: the opening round of a pass.
struct PassOpened {
  View view;
  PassNumber pass;
  Rank from;
  Epoch newest_epoch;        ///< the newest that this rank holds
  std::uint32_t tokens = 0;  ///< tokens that this rank brings
  static constexpr std::string_view kName = "PassOpened";
  static constexpr auto kFields =
      std::tuple{field("view", &PassOpened::view), field("pass", &PassOpened::pass), field("from", &PassOpened::from),
                 field("newest_epoch", &PassOpened::newest_epoch), field("tokens", &PassOpened::tokens)};
  friend bool operator==(const PassOpened&, const PassOpened&) = default;
};

/// One cell of a heat report.
struct HeatCell {
  ExpertId expert;
  std::uint64_t tokens = 0;  ///< token visits (token, expert) in the window that this rank routed
  static constexpr std::string_view kName = "HeatCell";
  static constexpr auto kFields = std::tuple{field("expert", &HeatCell::expert), field("tokens", &HeatCell::tokens)};
  friend bool operator==(const HeatCell&, const HeatCell&) = default;
};

/// heat reporter of a node -> placement manager: what the node's ranks routed in one window. Droppable.
struct HeatReport {
  NodeId node;
  Incarnation incarnation;
  std::uint64_t window = 0;
  std::uint64_t valid_tokens = 0;  ///< per layer, valid tokens x top_k must equal the layer's sum of cells
  std::vector<HeatCell> cells;
  static constexpr std::string_view kName = "HeatReport";
  static constexpr auto kFields =
      std::tuple{field("node", &HeatReport::node), field("incarnation", &HeatReport::incarnation),
                 field("window", &HeatReport::window), field("valid_tokens", &HeatReport::valid_tokens),
                 field("cells", &HeatReport::cells)};
  friend bool operator==(const HeatReport&, const HeatReport&) = default;
};

/// Sent by the heartbeat thread of a node, never by an actor: a busy node is not a dead one.
struct Heartbeat {
  std::string node;
  Incarnation incarnation;
  std::uint64_t beat = 0;
  static constexpr std::string_view kName = "Heartbeat";
  static constexpr auto kFields = std::tuple{field("node", &Heartbeat::node), field("incarnation", &Heartbeat::incarnation),
                                             field("beat", &Heartbeat::beat)};
  friend bool operator==(const Heartbeat&, const Heartbeat&) = default;
};

/// coordinator -> node: finish, free everything, exit.
struct Shutdown {
  std::string reason;
  static constexpr std::string_view kName = "Shutdown";
  static constexpr auto kFields = std::tuple{field("reason", &Shutdown::reason)};
  friend bool operator==(const Shutdown&, const Shutdown&) = default;
};

/// Round trip for measurements and liveness questions: answered with the same `cookie`.
struct Ping {
  std::uint64_t cookie = 0;
  static constexpr std::string_view kName = "Ping";
  static constexpr auto kFields = std::tuple{field("cookie", &Ping::cookie)};
  friend bool operator==(const Ping&, const Ping&) = default;
};
struct Pong {
  std::uint64_t cookie = 0;
  static constexpr std::string_view kName = "Pong";
  static constexpr auto kFields = std::tuple{field("cookie", &Pong::cookie)};
  friend bool operator==(const Pong&, const Pong&) = default;
};

}  // namespace troupe::messages
