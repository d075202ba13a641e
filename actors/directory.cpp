#include "actors/directory.hpp"

namespace troupe::actors {

void Directory::add(const std::string& node, const std::string& name, caf::actor actor) {
  const std::lock_guard lock(mutex_);
  local_[{node, name}] = std::move(actor);
}

void Directory::remove(const std::string& node, const std::string& name) {
  const std::lock_guard lock(mutex_);
  local_.erase({node, name});
}

void Directory::set_proxies(MakeProxy make) {
  const std::lock_guard lock(mutex_);
  make_ = std::move(make);
}

caf::actor Directory::find_local(const std::string& node, const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = local_.find({node, name});
  return found == local_.end() ? caf::actor{} : found->second;
}

caf::actor Directory::find(const std::string& node, const std::string& name) {
  const std::lock_guard lock(mutex_);
  if (const auto found = local_.find({node, name}); found != local_.end()) return found->second;
  if (const auto found = proxies_.find({node, name}); found != proxies_.end()) return found->second;
  if (!make_) return {};
  caf::actor proxy = make_(node, name);
  if (proxy) proxies_[{node, name}] = proxy;
  return proxy;
}

std::vector<caf::actor> Directory::clear() {
  const std::lock_guard lock(mutex_);
  std::vector<caf::actor> proxies;
  for (auto& [key, actor] : proxies_) proxies.push_back(std::move(actor));
  proxies_.clear();
  local_.clear();
  make_ = nullptr;
  return proxies;
}

}  // namespace troupe::actors
