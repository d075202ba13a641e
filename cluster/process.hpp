#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "actors/directory.hpp"
#include "actors/hooks.hpp"
#include "actors/system.hpp"
#include "cluster/bootstrap.hpp"
#include "cluster/config.hpp"
#include "cluster/wire.hpp"

/// What the coordinator's and the nodes' processes have in common, and their mains.
namespace troupe::cluster {

/// The process `troupe coordinator` / `troupe node`: reads its bootstrap from standard input, runs until told to stop,
/// its launcher is gone, or it cannot go on. Result: the exit code.
int run_coordinator_process();
int run_node_process();

/// A value that one thread waits for and any thread gives, once.
template <class T>
class Once {
 public:
  void give(T value) {
    const std::lock_guard lock(mutex_);
    if (value_) return;
    value_ = std::move(value);
    given_.notify_all();
  }
  T wait() {
    std::unique_lock lock(mutex_);
    given_.wait(lock, [this] { return value_.has_value(); });
    return *value_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable given_;
  std::optional<T> value_;
};

/// The control wire of a process with its links: remote actors become findable in `directory`. Frames that come in go
/// to the actors they name, unless they are of an older incarnation than the view knows.
class ControlPlane {
 public:
  ControlPlane(actors::System& system, std::shared_ptr<actors::Directory> directory,
               std::shared_ptr<actors::Identity> identity, actors::Log log);
  ~ControlPlane();
  ControlPlane(const ControlPlane&) = delete;
  ControlPlane& operator=(const ControlPlane&) = delete;

  Result<void> start(WireOptions options);
  Wire& wire() { return *wire_; }
  /// Incarnations that frames are checked against.
  void set_view(const messages::ViewPublished& view);
  std::uint64_t stale_frames() const { return stale_.load(); }
  /// Ends links and proxies, then the wire.
  void stop(std::chrono::milliseconds linger);

 private:
  void on_frame(messages::Frame frame);
  caf::actor make_proxy(const std::string& node, const std::string& name);

  actors::System& system_;
  std::shared_ptr<actors::Directory> directory_;
  std::shared_ptr<actors::Identity> identity_;
  actors::Log log_;
  std::unique_ptr<Wire> wire_;
  std::mutex mutex_;
  std::map<std::string, caf::actor> links_;
  std::map<std::string, std::uint64_t> incarnations_;
  std::atomic<std::uint64_t> stale_{0};
};

/// The address to bind for a configured host: itself where it is a numeric address or "localhost", else all interfaces.
std::string bind_address(const std::string& host);

}  // namespace troupe::cluster
