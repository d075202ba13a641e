#define BOOST_TEST_MODULE config_files
#include <filesystem>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

#include "cluster/config.hpp"
#include "cluster/workload.hpp"

using namespace troupe;
using namespace troupe::cluster;

namespace {

std::filesystem::path configs() {
  return std::filesystem::path(TROUPE_SOURCE_DIR) / "configs";
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_config_in_the_repository_loads_and_makes_its_workload) {
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator(configs())) {
    if (entry.path().extension() != ".toml") continue;
    BOOST_TEST_CONTEXT(entry.path().string()) {
      ++found;
      const auto config = load_config(entry.path());
      BOOST_REQUIRE_MESSAGE(config.has_value(), (config ? "" : config.error().message));
      const auto workload = make_workload(*config);
      BOOST_REQUIRE_MESSAGE(workload.has_value(), (workload ? "" : workload.error().message));
      BOOST_TEST((*workload)->total_tokens() == config->workload.tokens);
    }
  }
  BOOST_TEST(found >= 5);
}
