#include "cluster/logger.hpp"

#include <memory>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace troupe::cluster {
namespace {

spdlog::level::level_enum level_of(actors::LogLevel level) {
  switch (level) {
    case actors::LogLevel::kTrace:
      return spdlog::level::trace;
    case actors::LogLevel::kDebug:
      return spdlog::level::debug;
    case actors::LogLevel::kInfo:
      return spdlog::level::info;
    case actors::LogLevel::kWarn:
      return spdlog::level::warn;
    case actors::LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

}  // namespace

actors::Log make_logger(const std::string& level, const std::string& who) {
  auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  auto logger = std::make_shared<spdlog::logger>("troupe", sink);
  logger->set_level(level == "warn" ? spdlog::level::warn : spdlog::level::from_str(level));
  logger->set_pattern("%H:%M:%S.%e %l " + (who.empty() ? std::string() : who + ": ") + "%v");
  return [logger](actors::LogLevel at, std::string_view text) { logger->log(level_of(at), "{}", text); };
}

}  // namespace troupe::cluster
