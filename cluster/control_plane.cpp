#include <utility>

#include <arpa/inet.h>

#include "actors/link.hpp"
#include "actors/node.hpp"
#include "cluster/process.hpp"

namespace troupe::cluster {

std::string bind_address(const std::string& host) {
  if (host == "localhost") return "127.0.0.1";
  in_addr v4{};
  in6_addr v6{};
  const bool numeric = ::inet_pton(AF_INET, host.c_str(), &v4) == 1 || ::inet_pton(AF_INET6, host.c_str(), &v6) == 1;
  return numeric ? host : "0.0.0.0";
}

ControlPlane::ControlPlane(actors::System& system, std::shared_ptr<actors::Directory> directory,
                           std::shared_ptr<actors::Identity> identity, actors::Log log)
    : system_(system), directory_(std::move(directory)), identity_(std::move(identity)), log_(std::move(log)) {}

ControlPlane::~ControlPlane() {
  stop(std::chrono::milliseconds{0});
}

Result<void> ControlPlane::start(WireOptions options) {
  auto wire =
      Wire::start(std::move(options), [this](messages::Frame frame, const PeerHandle&) { on_frame(std::move(frame)); });
  if (!wire) return tl::unexpected(wire.error());
  wire_ = std::move(*wire);
  directory_->set_proxies([this](const std::string& node, const std::string& name) { return make_proxy(node, name); });
  return {};
}

void ControlPlane::set_view(const messages::ViewPublished& view) {
  const std::lock_guard lock(mutex_);
  for (const messages::Member& member : view.members) incarnations_[member.node] = member.incarnation.value;
}

void ControlPlane::on_frame(messages::Frame frame) {
  std::uint64_t known = 0;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = incarnations_.find(frame.envelope.from); found != incarnations_.end()) known = found->second;
  }
  auto delivered = actors::deliver(*directory_, identity_->node, std::move(frame), known);
  if (!delivered && stale_.fetch_add(1) == 0 && log_) log_(actors::LogLevel::kDebug, delivered.error().message);
}

caf::actor ControlPlane::make_proxy(const std::string& node, const std::string& name) {
  const std::lock_guard lock(mutex_);
  caf::actor& link = links_[node];
  if (!link) {
    link = actors::spawn_link(
        system_.caf(), node,
        [wire = wire_.get()](const std::string& peer, messages::Frame frame, bool droppable) {
          return wire->send(peer, std::move(frame), droppable);
        },
        identity_, log_);
  }
  return actors::spawn_proxy(system_.caf(), link, name);
}

void ControlPlane::stop(std::chrono::milliseconds linger) {
  if (!wire_) return;
  // Proxies hand what they still hold to their links, links to the wire; only then may the wire flush and go.
  constexpr std::chrono::milliseconds kActorDeadline{2000};
  (void)actors::stop_actors(system_.caf(), directory_->clear(), kActorDeadline);
  std::vector<caf::actor> links;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [peer, link] : links_) links.push_back(std::move(link));
    links_.clear();
  }
  (void)actors::stop_actors(system_.caf(), std::move(links), kActorDeadline);
  wire_->stop(linger);
  wire_.reset();
}

}  // namespace troupe::cluster
