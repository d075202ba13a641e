#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <caf/actor.hpp>
#include <caf/allowed_unsafe_message_type.hpp>

#include "gpu/pass_runner.hpp"
#include "messages/client.hpp"
#include "messages/control.hpp"
#include "messages/envelope.hpp"
#include "scheduling/placement.hpp"

/// What actors of one process say to each other. These never travel; what travels is in messages/.
namespace troupe::actors {

/// -> link, from a proxy: send `payload` to the actor `to` of the link's peer.
struct Outbound {
  std::string to;
  messages::Payload payload;
};

/// node -> gpu: the first view and epoch are here. Connect the bulk channel and load the experts.
struct PrepareGpu {
  messages::ViewPublished view;
  Rank rank;
  messages::EpochPublished epoch;
};
/// gpu -> node: connected, and every expert of the epoch serves.
struct GpuReady {
  std::uint32_t gpu = 0;
  View view;
  Epoch epoch;
};
/// gpu -> node: this GPU cannot go on.
struct GpuFailed {
  std::uint32_t gpu = 0;
  Error error;
};

/// expert -> gpu: load me.
struct LoadSlot {
  ExpertId expert;
  std::uint32_t device_slot = 0;
};
/// gpu -> expert: the weights are in the slot, or why not.
struct SlotLoaded {
  bool ok = false;
  Error error;
};
/// expert -> gpu: I serve / I could not be loaded.
struct ExpertServing {
  std::uint32_t device_slot = 0;
};
struct ExpertFailed {
  std::uint32_t device_slot = 0;
  Error error;
};
/// gpu -> expert: token visits that the slot computed since the last such message.
struct ExpertWorked {
  std::uint64_t tokens = 0;
  PassNumber last_pass;
};
/// Anyone -> expert; answered with ExpertStatus.
struct ExpertStatusAsked {};
struct ExpertStatus {
  ExpertId expert;
  std::string state;
  std::uint64_t tokens = 0;
  std::uint64_t last_pass = 0;
};

/// door -> gpu: compute these tokens. `key` is the door's.
struct TokensArrived {
  std::uint64_t key = 0;
  std::shared_ptr<const messages::Submit> submit;
};
/// gpu -> door: done, or failed with answer.code.
struct TokensDone {
  std::uint64_t key = 0;
  std::shared_ptr<messages::Answer> answer;
};

/// Device thread -> gpu: results of its jobs.
struct DeviceMade {
  bool ok = false;
  Error error;
};
struct BulkConnected {
  View view;
  std::shared_ptr<gpu::AllToAll> exchange;  ///< null: see error
  Error error;
};
struct PassRan {
  PassNumber pass;
  std::shared_ptr<gpu::PassTokens> tokens;
  std::shared_ptr<Result<gpu::PassOutcome>> outcome;
};
struct SlotJobDone {
  std::uint32_t device_slot = 0;
  bool ok = false;
  Error error;
};

/// gpu -> heat reporter, after each pass.
struct PassHeat {
  std::uint32_t gpu = 0;
  PassNumber pass;
  std::uint64_t valid_tokens = 0;
  std::shared_ptr<const std::vector<std::uint32_t>> routed;  ///< [layers x experts]
};

/// Anyone -> gpu; answered with GpuStatus.
struct GpuStatusAsked {};
struct GpuStatus {
  std::uint32_t gpu = 0;
  std::uint64_t passes = 0;
  std::uint64_t all_to_all_bytes = 0;
  std::uint64_t all_to_all_ns = 0;
  std::uint64_t step_ns = 0;
  std::vector<std::uint64_t> computed;  ///< [layers] token visits
  std::vector<std::uint64_t> step_time_ns;
  std::vector<std::uint64_t> routed;  ///< [layers x experts]
  gpu::ArenaUse arena;
  std::string state;
};

/// node -> heat reporter: who I am.
struct HeatIdentity {
  NodeId node;
  Incarnation incarnation;
};
/// node -> door: this node is ready; submissions are taken from now on.
struct DoorOpened {
  View view;
  Epoch epoch;
};
/// node -> door: submissions are refused from now on, with this reason.
struct DoorClosed {
  Error error;
};

/// Process -> node: finish as after a Shutdown message.
struct StopNode {
  std::string reason;
};

/// Membership -> placement manager: plan for this view.
struct PlanForView {
  messages::ViewPublished view;
};
/// placement manager -> membership: this epoch is in the ledger and sent, or why not.
struct EpochIssued {
  Epoch epoch;
  bool ok = false;
  Error error;
};
/// Timer of the membership actor.
struct BeatTick {};
/// Timer of a link that has frames to send again.
struct RetryTick {};
/// Process -> membership: end the cluster.
struct StopCluster {
  std::string reason;
};

}  // namespace troupe::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::Outbound)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::PrepareGpu)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::GpuReady)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::GpuFailed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::LoadSlot)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::SlotLoaded)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::ExpertServing)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::ExpertFailed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::ExpertWorked)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::ExpertStatusAsked)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::ExpertStatus)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::TokensArrived)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::TokensDone)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::DeviceMade)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::BulkConnected)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::PassRan)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::SlotJobDone)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::PassHeat)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::GpuStatusAsked)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::GpuStatus)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::HeatIdentity)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::DoorOpened)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::DoorClosed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::StopNode)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::PlanForView)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::EpochIssued)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::BeatTick)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::RetryTick)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::StopCluster)
