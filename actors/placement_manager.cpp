#include <memory>
#include <utility>

#include <caf/event_based_actor.hpp>
#include <caf/stateful_actor.hpp>

#include "actors/local_messages.hpp"
#include "actors/membership.hpp"
#include "actors/unexpected.hpp"
#include "scheduling/dispatch.hpp"
#include "scheduling/heat.hpp"

namespace troupe::actors {
namespace {

struct PlacementState {
  static constexpr const char* name = "troupe.placement";
  caf::event_based_actor* self;
  PlacementOptions options;
  scheduling::Placement placement;
  messages::ViewPublished view;
  std::unique_ptr<scheduling::HeatBook> heat;
  std::uint64_t windows_judged = 0;

  explicit PlacementState(caf::event_based_actor* s) : self(s) {}

  void log(LogLevel level, const std::string& text) const {
    if (options.log) options.log(level, text);
  }

  EpochIssued on_plan(const PlanForView& m) {
    auto last = options.ledger->last();
    if (!last) return {Epoch{}, false, last.error()};
    auto plan = scheduling::plan_uniform(options.shape, options.slots, options.order, last->epoch.next());
    if (!plan) return {Epoch{}, false, plan.error()};
    // An epoch must be in the ledger before any rank hears of it: a coordinator that dies in between would otherwise
    // come back with an older epoch than its ranks.
    const messages::EpochPublished message = scheduling::to_message(*plan, m.view.view);
    if (auto done = options.ledger->write_epoch(message); !done) return {Epoch{}, false, done.error()};
    placement = std::move(*plan);
    view = m.view;
    options.identity->epoch = message.epoch.value;
    std::vector<NodeId> nodes;
    for (const messages::Member& member : view.members) {
      nodes.push_back(member.node_id);
      self->send(options.directory->find(member.node, kNode), message);
    }
    heat = std::make_unique<scheduling::HeatBook>(options.shape, nodes, options.half_life_windows);
    log(LogLevel::kInfo, "epoch " + std::to_string(message.epoch.value) + ": " +
                             std::to_string(message.replicas.size()) + " replicas placed");
    return {message.epoch, true, {}};
  }

  void on_heat(const messages::HeatReport& m) {
    if (!heat) return;
    if (auto done = heat->on_report(m); !done) log(LogLevel::kWarn, "heat report refused: " + done.error().message);
    if (heat->complete_windows() == windows_judged) return;
    windows_judged = heat->complete_windows();
    judge();
  }

  /// The load check: heat per GPU and layer under the current placement.
  void judge() {
    for (std::uint32_t layer = 0; layer < options.shape.layers; ++layer) {
      std::vector<std::uint64_t> per_gpu(options.slots.size(), 0);
      for (const scheduling::Replica& replica : placement.replicas) {
        if (replica.expert.layer != layer) continue;
        for (std::size_t g = 0; g < options.slots.size(); ++g) {
          if (options.slots[g].gpu != replica.gpu) continue;
          const double tokens =
              heat->heat()[std::size_t{layer} * options.shape.experts + replica.expert.expert] * replica.share;
          per_gpu[g] += static_cast<std::uint64_t>(tokens);
        }
      }
      const scheduling::LoadCheck check = scheduling::check_load(per_gpu, options.imbalance_threshold);
      if (!check.over) continue;
      const GpuId gpu = options.slots[check.busiest].gpu;
      log(LogLevel::kDebug, "layer " + std::to_string(layer) + ": GPU " + std::to_string(gpu.node.value) + "/" +
                                std::to_string(gpu.gpu) + " carries " + std::to_string(check.imbalance) +
                                " x the mean load");
    }
  }

  caf::behavior make_behavior() {
    self->set_default_handler(count_unexpected);
    return {
        [this](const PlanForView& m) {
          const EpochIssued issued = on_plan(m);
          self->send(caf::actor_cast<caf::actor>(self->current_sender()), issued);
        },
        [this](const messages::HeatReport& m) { on_heat(m); },
    };
  }
};

}  // namespace

caf::actor spawn_placement_manager(caf::actor_system& system, PlacementOptions options) {
  return system.spawn([options](caf::stateful_actor<PlacementState>* self) {
    self->state.options = options;
    return self->state.make_behavior();
  });
}

}  // namespace troupe::actors
