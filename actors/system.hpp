#pragma once

#include <memory>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>

namespace troupe::actors {

/// An actor system as Troupe uses it: few workers, no middleman, nothing printed. All actors must have ended before it
/// goes.
class System {
 public:
  System();
  ~System();
  System(const System&) = delete;
  System& operator=(const System&) = delete;
  caf::actor_system& caf() { return *system_; }

 private:
  std::unique_ptr<caf::actor_system_config> config_;
  std::unique_ptr<caf::actor_system> system_;
};

}  // namespace troupe::actors
