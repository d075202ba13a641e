#include "actors/heat_reporter.hpp"

#include <map>
#include <utility>
#include <vector>

#include <caf/event_based_actor.hpp>
#include <caf/stateful_actor.hpp>

#include "actors/local_messages.hpp"
#include "actors/unexpected.hpp"

namespace troupe::actors {
namespace {

struct HeatReporterState {
  static constexpr const char* name = "troupe.heat";
  caf::event_based_actor* self;
  std::string node;
  std::uint32_t gpus = 0;
  std::uint32_t window_passes = 1;
  scheduling::ModelShape shape;
  std::shared_ptr<Directory> directory;
  HeatIdentity identity;

  struct Window {
    std::uint32_t passes_seen = 0;  ///< over all GPUs; gpus x window_passes makes it complete
    std::uint64_t valid_tokens = 0;
    std::vector<std::uint64_t> cells;
  };
  /// GPUs of a node are at most a pass apart, so at most two windows are open.
  std::map<std::uint64_t, Window> open;

  explicit HeatReporterState(caf::event_based_actor* s) : self(s) {}

  void on_pass(const PassHeat& m) {
    const std::uint64_t number = (m.pass.value - 1) / window_passes;
    Window& window = open[number];
    window.cells.resize(m.routed->size(), 0);
    for (std::size_t i = 0; i < m.routed->size(); ++i) window.cells[i] += (*m.routed)[i];
    window.valid_tokens += m.valid_tokens;
    if (++window.passes_seen < gpus * window_passes) return;
    report(number, window);
    open.erase(number);
  }

  void report(std::uint64_t number, const Window& window) {
    messages::HeatReport report{identity.node, identity.incarnation, number, window.valid_tokens, {}};
    for (std::size_t i = 0; i < window.cells.size(); ++i) {
      if (window.cells[i] == 0) continue;
      const auto layer = static_cast<std::uint32_t>(i / shape.experts);
      const auto expert = static_cast<std::uint32_t>(i % shape.experts);
      report.cells.push_back({ExpertId{layer, expert}, window.cells[i]});
    }
    if (const caf::actor manager = directory->find(kCoordinator, kPlacement)) self->send(manager, std::move(report));
  }

  caf::behavior make_behavior() {
    self->set_default_handler(count_unexpected);
    return {
        [this](const HeatIdentity& m) { identity = m; },
        [this](const PassHeat& m) { on_pass(m); },
    };
  }
};

}  // namespace

caf::actor spawn_heat_reporter(caf::actor_system& system, std::string node, std::uint32_t gpus,
                               std::uint32_t window_passes, scheduling::ModelShape shape,
                               std::shared_ptr<Directory> directory) {
  return system.spawn([=](caf::stateful_actor<HeatReporterState>* self) {
    HeatReporterState& state = self->state;
    state.node = node;
    state.gpus = gpus;
    state.window_passes = window_passes;
    state.shape = shape;
    state.directory = directory;
    return state.make_behavior();
  });
}

}  // namespace troupe::actors
