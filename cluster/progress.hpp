#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace troupe::cluster {

/// Progress on standard error: a bar where it is a terminal, else a plain line now and then. Silent when told so.
/// Thread rule: one thread.
class Progress {
 public:
  enum class Mode { kAuto, kSilent };
  explicit Progress(Mode mode);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// A phase of the work: "serving". Ends the one before.
  void phase(const std::string& name);
  /// done of total; `note` stands behind the bar.
  void update(std::uint64_t done, std::uint64_t total, const std::string& note);
  /// A whole line, without disturbing the bar.
  void line(const std::string& text);
  /// Takes the bar from the screen.
  void clear();

 private:
  void draw();
  bool silent_ = false;
  bool terminal_ = false;
  std::string phase_;
  std::string note_;
  std::uint64_t done_ = 0;
  std::uint64_t total_ = 0;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point phase_start_;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace troupe::cluster
