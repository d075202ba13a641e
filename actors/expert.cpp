#include "actors/expert.hpp"

#include <caf/event_based_actor.hpp>
#include <caf/exit_reason.hpp>
#include <caf/stateful_actor.hpp>

#include "actors/unexpected.hpp"
#include "scheduling/replica_machine.hpp"

namespace troupe::actors {
namespace {

struct ExpertState {
  static constexpr const char* name = "troupe.expert";
  caf::event_based_actor* self;
  caf::actor gpu;
  ExpertId expert;
  std::uint32_t device_slot = 0;
  scheduling::ReplicaMachine machine{ExpertId{}};
  std::uint64_t tokens = 0;
  PassNumber last_pass;

  explicit ExpertState(caf::event_based_actor* s) : self(s) {}

  void on_slot_loaded(const SlotLoaded& m) {
    auto moved = m.ok ? machine.on_loaded() : machine.on_load_failed();
    if (m.ok && moved) {
      self->send(gpu, ExpertServing{device_slot});
      return;
    }
    self->send(gpu, ExpertFailed{device_slot, moved ? m.error : moved.error()});
    self->quit();
  }

  caf::behavior make_behavior(const caf::actor& owner, ExpertId id, std::uint32_t slot) {
    gpu = owner;
    expert = id;
    device_slot = slot;
    machine = scheduling::ReplicaMachine(id);
    self->set_default_handler(count_unexpected);
    // The replica's weights are in its GPU's arena: without the gpu actor there is nothing left to stand for.
    self->monitor(gpu);
    self->set_down_handler([this](caf::down_msg&) {
      gpu = nullptr;
      self->quit();
    });
    self->send(gpu, LoadSlot{expert, device_slot});
    return {
        [this](const SlotLoaded& m) { on_slot_loaded(m); },
        [this](const ExpertWorked& m) {
          tokens += m.tokens;
          last_pass = m.last_pass;
        },
        [this](const ExpertStatusAsked&) {
          return ExpertStatus{expert, std::string(scheduling::to_string(machine.state())), tokens, last_pass.value};
        },
    };
  }
};

}  // namespace

caf::actor spawn_expert(caf::actor_system& system, const caf::actor& gpu, ExpertId expert, std::uint32_t device_slot) {
  return system.spawn(
      [=](caf::stateful_actor<ExpertState>* self) { return self->state.make_behavior(gpu, expert, device_slot); });
}

}  // namespace troupe::actors
