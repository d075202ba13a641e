#include "actors/system.hpp"

#include <algorithm>
#include <thread>

#include <caf/atom.hpp>

namespace troupe::actors {

System::System() : config_(std::make_unique<caf::actor_system_config>()) {
  // Pooled actors only decide; compute is on device threads. So few workers do, and a bounded number of messages per
  // turn keeps one busy actor from holding a worker.
  const auto workers = static_cast<std::int64_t>(std::clamp(std::thread::hardware_concurrency(), 2U, 4U));
  config_->set("scheduler.policy", caf::atom("sharing"));
  config_->set("scheduler.max-threads", workers);
  config_->set("scheduler.max-throughput", std::int64_t{64});
  config_->set("logger.console", caf::atom("none"));
  system_ = std::make_unique<caf::actor_system>(*config_);
}

System::~System() = default;

}  // namespace troupe::actors
