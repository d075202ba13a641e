#define BOOST_TEST_MODULE check_plan
#include <filesystem>
#include <set>
#include <string>
#include <tuple>

#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include "cluster/config.hpp"
#include "tests/cluster/config_support.hpp"

using namespace troupe;
using namespace troupe::cluster;
using namespace troupe::cluster::test;

namespace {

std::string text_of(const Config& config) {
  const auto text = describe_plan(config, false);
  BOOST_REQUIRE_MESSAGE(text.has_value(), (text ? std::string() : text.error().message));
  return *text;
}

nlohmann::json json_of(const Config& config) {
  const auto text = describe_plan(config, true);
  BOOST_REQUIRE_MESSAGE(text.has_value(), (text ? std::string() : text.error().message));
  return nlohmann::json::parse(*text);
}

Config file(const std::string& name) {
  const auto config = load_config(std::string(TROUPE_SOURCE_DIR) + "/configs/" + name);
  BOOST_REQUIRE_MESSAGE(config.has_value(), (config ? std::string() : config.error().message));
  return *config;
}

/// Every expert of every layer once, no slot twice, and all within the layers there are.
void check_placement(const nlohmann::json& plan) {
  std::set<std::tuple<unsigned, unsigned>> experts;
  std::set<std::tuple<unsigned, std::string, unsigned, unsigned>> slots;
  for (const auto& group : plan["placement"]["groups"]) {
    for (const auto& range : group["layers"]) {
      for (unsigned layer = range["first"]; layer <= range["last"].get<unsigned>(); ++layer) {
        BOOST_REQUIRE(layer < plan["model"]["layers"].get<unsigned>());
        for (const auto& replica : group["replicas"]) {
          BOOST_REQUIRE(experts.insert({layer, replica["expert"]}).second);
          BOOST_REQUIRE(slots.insert({layer, replica["node"], replica["gpu"], replica["slot"]}).second);
        }
      }
    }
  }
  BOOST_TEST(experts.size() ==
             plan["model"]["layers"].get<std::size_t>() * plan["model"]["experts"].get<std::size_t>());
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_config_in_the_repository_can_be_described) {
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(TROUPE_SOURCE_DIR) + "/configs")) {
    if (entry.path().extension() != ".toml") continue;
    BOOST_TEST_CONTEXT(entry.path().string()) {
      ++found;
      const auto config = load_config(entry.path());
      BOOST_REQUIRE_MESSAGE(config.has_value(), (config ? std::string() : config.error().message));
      const std::string text = text_of(*config);
      BOOST_TEST_MESSAGE(text);
      for (const NodeConfig& node : config->nodes) BOOST_TEST(contains(text, node.name + "/0"));
      check_placement(json_of(*config));
    }
  }
  BOOST_TEST(found >= 5);
}

BOOST_AUTO_TEST_CASE(the_demo_runs_twenty_thousand_tokens_on_two_nodes_of_two_gpus) {
  const auto plan = json_of(file("demo.toml"));
  BOOST_TEST(plan["nodes"].size() == 2U);
  BOOST_TEST(plan["nodes"][0]["gpus"] == 2);
  BOOST_TEST(plan["workload"]["tokens"].get<int>() >= 20000);
  BOOST_TEST(plan["transport"]["pairs"][0]["pairs"] == 2);
  BOOST_TEST(plan["transport"]["pairs"][1]["pairs"] == 4);
}

BOOST_AUTO_TEST_CASE(the_true_shape_of_mixtral_fits_24_gib) {
  const auto plan = json_of(file("mixtral-8x7b.toml"));
  BOOST_TEST(plan["model"]["expert_bytes"].get<std::uint64_t>() == 3ULL * 4096 * 14336 * 2);
  BOOST_TEST(plan["hosts"][0]["bytes"].get<std::uint64_t>() < (24ULL << 30));
  BOOST_TEST(plan["model"]["preset_changes"][0]["key"] == "layers");
  BOOST_TEST(plan["model"]["preset_changes"][0]["in_preset"] == "32");
}

BOOST_AUTO_TEST_CASE(the_text_shows_what_a_preset_was_changed_to_and_what_is_off) {
  const std::string text = text_of(parsed("[model]\npreset = \"mixtral-8x7b\"\nlayers = 1\n"));
  for (const char* part :
       {"model mixtral-8x7b", "layers = 1 overrides the preset's 32", "176,160,768 parameters, 336.0 MiB",
        "coordinator", "127.0.0.1", "any", "0-7", "off\n", "migration: experts stay", "capacity limit"}) {
    BOOST_TEST(contains(text, part), part << " is missing in\n" << text);
  }
}

BOOST_AUTO_TEST_CASE(text_and_json_speak_of_the_same_things) {
  const Config config = parsed(kSmallModel +
                               "[[nodes]]\nname = \"a\"\ngpus = 2\ncontrol_port = 7011\n[[nodes]]\nname = \"b\"\n"
                               "[capacity]\ntokens_per_replica = 77\noverflow = \"drop\"\n");
  const std::string text = text_of(config);
  const auto plan = json_of(config);
  BOOST_TEST(plan["capacity"]["tokens_per_replica"] == 77);
  BOOST_TEST(contains(text, "77 tokens per replica and round; overflow: drop"));
  BOOST_TEST(plan["nodes"][0]["control_port"] == 7011);
  BOOST_TEST(contains(text, "7011"));
  for (const auto& off : plan["off"]) BOOST_TEST(contains(text, off.get<std::string>()));
}

BOOST_AUTO_TEST_CASE(C02_uneven_nodes_and_counts_that_do_not_divide_are_planned) {
  for (const char* nodes : {"[[nodes]]\ngpus = 3\n", "[[nodes]]\ngpus = 2\n[[nodes]]\ngpus = 3\n",
                            "[[nodes]]\ngpus = 2\nslots_per_gpu = 3\n[[nodes]]\ngpus = 3\n"}) {
    check_placement(json_of(parsed(std::string("[model]\npreset = \"deepseek-v3\"\nlayers = 5\n") + "experts = 256\n" +
                                   std::string("[[nodes]]\ngpus = 3\n"))));
    check_placement(json_of(parsed(kSmallModel + nodes)));
  }
}

BOOST_AUTO_TEST_CASE(C02_a_cluster_larger_than_its_host_is_marked_before_anything_is_read) {
  const Config config = parsed("[model]\npreset = \"deepseek-v3\"\n[[nodes]]\n");
  const auto plan = json_of(config);
  BOOST_TEST(plan["hosts"][0]["bytes"].get<std::uint64_t>() > std::uint64_t{1'300'000'000'000});
  if (plan["hosts"][0]["memory_bytes"].get<std::uint64_t>() > std::uint64_t{1'300'000'000'000}) return;  // a large host
  BOOST_TEST(plan["hosts"][0]["fits"] == false);
  BOOST_TEST(contains(text_of(config), "TOO MUCH"));
}

BOOST_AUTO_TEST_CASE(a_plan_whose_workload_is_not_there_says_so) {
  const auto text =
      describe_plan(parsed(kSmallModel + "[workload]\nkind = \"statistics\"\nfile = \"/no/such.csv\"\n"), false);
  BOOST_REQUIRE(!text.has_value());
  BOOST_TEST(text.error().message == "/no/such.csv: no such file; check the path");
}
