#pragma once

#include <mutex>

#include "actors/hooks.hpp"

namespace troupe::actors {

/// A ledger that lives as long as its process: for single-process clusters, where coordinator and ranks die together.
class MemoryLedger final : public Ledger {
 public:
  Result<Last> last() override {
    const std::lock_guard lock(mutex_);
    return last_;
  }
  Result<void> write_incarnation(const std::string&, Incarnation incarnation) override {
    const std::lock_guard lock(mutex_);
    last_.incarnation = incarnation;
    return {};
  }
  Result<void> write_view(const messages::ViewPublished& view) override {
    const std::lock_guard lock(mutex_);
    last_.view = view.view;
    return {};
  }
  Result<void> write_epoch(const messages::EpochPublished& epoch) override {
    const std::lock_guard lock(mutex_);
    last_.epoch = epoch.epoch;
    return {};
  }

 private:
  std::mutex mutex_;
  Last last_;
};

}  // namespace troupe::actors
