#include "cluster/progress.hpp"

#include <algorithm>
#include <cstdio>

#include <sys/ioctl.h>
#include <unistd.h>

namespace troupe::cluster {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kRedraw{100};
constexpr milliseconds kPlainEvery{5000};
constexpr std::size_t kBarWidth = 30;

std::size_t columns() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20) return size.ws_col;
  return 80;
}

}  // namespace

Progress::Progress(Mode mode) : silent_(mode == Mode::kSilent), terminal_(::isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  clear();
}

void Progress::phase(const std::string& name) {
  clear();
  phase_ = name;
  note_.clear();
  done_ = total_ = 0;
  phase_start_ = last_ = steady_clock::now();
  if (!silent_ && terminal_) draw();
}

void Progress::update(std::uint64_t done, std::uint64_t total, const std::string& note) {
  done_ = done;
  total_ = total;
  note_ = note;
  if (silent_) return;
  const auto now = steady_clock::now();
  if (now - last_ < (terminal_ ? kRedraw : kPlainEvery)) return;
  last_ = now;
  draw();
}

void Progress::line(const std::string& text) {
  if (terminal_) clear();
  std::fprintf(stderr, "%s\n", text.c_str());
}

void Progress::clear() {
  if (!drawn_) return;
  drawn_ = false;
  std::fputs("\r\033[K", stderr);
}

void Progress::draw() {
  const double share = total_ == 0 ? 0.0 : std::min(1.0, static_cast<double>(done_) / static_cast<double>(total_));
  char text[256];
  if (!terminal_) {
    std::snprintf(text, sizeof text, "%s: %3.0f %%%s%s", phase_.c_str(), share * 100, note_.empty() ? "" : ", ",
                  note_.c_str());
    std::fprintf(stderr, "%s\n", text);
    return;
  }
  const auto filled = static_cast<std::size_t>(share * static_cast<double>(kBarWidth));
  const std::string bar = std::string(filled, '#') + std::string(kBarWidth - filled, '.');
  const auto seconds =
      static_cast<double>(duration_cast<milliseconds>(steady_clock::now() - phase_start_).count()) / 1000.0;
  std::snprintf(text, sizeof text, "%-10s [%s] %3.0f %%  %s  %.0f s", phase_.c_str(), bar.c_str(), share * 100,
                note_.c_str(), seconds);
  std::string shown(text);
  shown.resize(std::min(shown.size(), columns() - 1));
  std::fprintf(stderr, "\r\033[K%s", shown.c_str());
  std::fflush(stderr);
  drawn_ = true;
}

}  // namespace troupe::cluster
