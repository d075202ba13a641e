#include <algorithm>

#include "scheduling/join_machine.hpp"

namespace troupe::scheduling {

void BeatWatch::on_beat(const std::string& node, Incarnation incarnation, std::uint64_t now_ns) {
  const auto found = beats_.find(node);
  if (found == beats_.end()) {
    if (beats_.size() < kMaxWatched) beats_.emplace(node, Beat{incarnation, now_ns, false});
    return;
  }
  Beat& beat = found->second;
  if (incarnation < beat.incarnation) return;
  beat = {incarnation, std::max(beat.at_ns, now_ns), false};
}

void BeatWatch::forget(const std::string& node) {
  beats_.erase(node);
}

std::vector<BeatWatch::Silent> BeatWatch::silent(std::uint64_t now_ns) {
  std::vector<Silent> result;
  if (limit_ns_ == 0) return result;
  for (auto& [node, beat] : beats_) {
    if (beat.reported || now_ns <= beat.at_ns || now_ns - beat.at_ns <= limit_ns_) continue;
    beat.reported = true;
    result.push_back({node, now_ns - beat.at_ns});
  }
  return result;
}

}  // namespace troupe::scheduling
