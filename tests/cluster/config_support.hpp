#pragma once

#include <boost/test/unit_test.hpp>

#include <string>

#include "cluster/config.hpp"

/// Helpers of the config and workload tests.
namespace troupe::cluster::test {

/// The three lines on which most cases build.
inline const std::string kSmallModel = "[model]\nlayers = 2\nexperts = 8\ntop_k = 2\nd_model = 64\nd_ff = 128\n";

inline Config parsed(const std::string& text, const Overrides& overrides = {}) {
  auto config = parse_config(text, "t.toml", overrides);
  BOOST_REQUIRE_MESSAGE(config.has_value(), (config ? std::string() : config.error().message));
  return *config;
}

/// The message of a text that must be refused.
inline std::string refused(const std::string& text, const Overrides& overrides = {}) {
  const auto config = parse_config(text, "t.toml", overrides);
  BOOST_REQUIRE_MESSAGE(!config, "taken, but should have been refused:\n" + text);
  BOOST_TEST((config.error().code == ErrorCode::kBadConfig));
  return config.error().message;
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace troupe::cluster::test
