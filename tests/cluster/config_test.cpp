#define BOOST_TEST_MODULE config
#include "cluster/config.hpp"

#include <algorithm>
#include <fstream>
#include <string>

#include <boost/test/unit_test.hpp>

#include "cluster/config_keys.hpp"
#include "tests/cluster/config_support.hpp"

using namespace troupe;
using namespace troupe::cluster;
using namespace troupe::cluster::test;

namespace {

Overrides sets(std::vector<std::string> list) {
  Overrides overrides;
  overrides.set = std::move(list);
  return overrides;
}

std::vector<std::uint32_t> slots_of(const Config& config) {
  std::vector<std::uint32_t> slots;
  for (const auto& gpu : config.gpu_slots()) slots.push_back(gpu.slots_per_layer);
  return slots;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_preset_alone_is_a_whole_config) {
  const Config config = parsed("[model]\npreset = \"mixtral-8x7b\"\n");
  BOOST_TEST(config.model.layers == 32U);
  BOOST_TEST(config.model.experts == 8U);
  BOOST_TEST(config.model.top_k == 2U);
  BOOST_TEST(config.model.d_model == 4096U);
  BOOST_TEST(config.model.d_ff == 14336U);
  BOOST_TEST((config.model.gate == scheduling::GateKind::kSoftmaxTopKRenorm));
  BOOST_REQUIRE(config.nodes.size() == 1);
  BOOST_TEST(config.nodes[0].name == "n0");
  BOOST_TEST(config.nodes[0].host == "127.0.0.1");
  BOOST_TEST(config.total_gpus() == 1U);
  BOOST_TEST(slots_of(config) == std::vector<std::uint32_t>{8}, boost::test_tools::per_element());
  BOOST_TEST((config.workload.kind == WorkloadKind::kGate));
}

BOOST_AUTO_TEST_CASE(presets_have_the_shapes_of_the_published_models) {
  struct Row {
    const char* name;
    std::uint32_t layers, experts, top_k, d_model, d_ff;
    scheduling::GateKind gate;
  };
  for (const Row& row : {Row{"mixtral-8x7b", 32, 8, 2, 4096, 14336, scheduling::GateKind::kSoftmaxTopKRenorm},
                         Row{"olmoe-7b", 16, 64, 8, 2048, 1024, scheduling::GateKind::kSoftmaxTopK},
                         Row{"qwen3-30b-a3b", 48, 128, 8, 2048, 768, scheduling::GateKind::kSoftmaxTopKRenorm},
                         Row{"deepseek-v3", 58, 256, 8, 7168, 2048, scheduling::GateKind::kSigmoidGroup}}) {
    BOOST_TEST_CONTEXT(row.name) {
      const Config config = parsed(std::string("[model]\npreset = \"") + row.name + "\"\n");
      BOOST_TEST(config.model.name == row.name);
      BOOST_TEST(config.model.layers == row.layers);
      BOOST_TEST(config.model.experts == row.experts);
      BOOST_TEST(config.model.top_k == row.top_k);
      BOOST_TEST(config.model.d_model == row.d_model);
      BOOST_TEST(config.model.d_ff == row.d_ff);
      BOOST_TEST((config.model.gate == row.gate));
    }
  }
  const Config deepseek = parsed("[model]\npreset = \"deepseek-v3\"\n");
  BOOST_TEST(deepseek.model.groups == 8U);
  BOOST_TEST(deepseek.model.top_groups == 4U);
  BOOST_TEST(deepseek.model.routed_scale == 2.5F);
}

BOOST_AUTO_TEST_CASE(a_key_overrides_the_number_of_a_preset) {
  const Config config = parsed("[model]\nlayers = 1\npreset = \"mixtral-8x7b\"\n");
  BOOST_TEST(config.model.layers == 1U);
  BOOST_TEST(config.model.d_ff == 14336U);
  BOOST_TEST(config.model.name == "mixtral-8x7b");
}

BOOST_AUTO_TEST_CASE(an_empty_config_says_what_a_model_needs) {
  const std::string message = refused("");
  BOOST_TEST(contains(message, "model.preset to one of mixtral-8x7b, olmoe-7b, qwen3-30b-a3b, deepseek-v3"));
  BOOST_TEST(contains(message, "missing: layers, experts, top_k, d_model, d_ff"));
}

BOOST_AUTO_TEST_CASE(a_file_that_is_not_there_is_named) {
  const auto config = load_config("no/such/folder/a.toml");
  BOOST_REQUIRE(!config);
  BOOST_TEST(config.error().message == "no/such/folder/a.toml: no such file; check the path");
  BOOST_TEST(!load_config(TROUPE_SOURCE_DIR).has_value());
}

BOOST_AUTO_TEST_CASE(text_that_is_not_toml_is_an_error_with_its_line) {
  const std::string message = refused("[model]\npreset = \"mixtral-8x7b\"\nlayers = = 2\n");
  BOOST_TEST(message.rfind("t.toml:3: not TOML: ", 0) == 0U, message);
  BOOST_TEST(contains(refused("[model]\nlayers = 1\nlayers = 2\n"), "t.toml:3: not TOML"));
}

BOOST_AUTO_TEST_CASE(paths_are_relative_to_the_folder_of_the_file) {
  const auto config = parse_config(kSmallModel + "[cluster]\nledger = \"../runs/l.db\"\n", "/etc/troupe/a.toml");
  BOOST_REQUIRE(config.has_value());
  BOOST_TEST(config->ledger.string() == "/etc/runs/l.db");
  const auto absolute = parse_config(kSmallModel + "[cluster]\nledger = \"/var/l.db\"\n", "/etc/troupe/a.toml");
  BOOST_REQUIRE(absolute.has_value());
  BOOST_TEST(absolute->ledger.string() == "/var/l.db");
}

BOOST_AUTO_TEST_CASE(a_capacity_factor_becomes_tokens_per_replica) {
  // 2 GPUs x 100 tokens x top-2 over 8 experts: an even share is 50.
  const std::string text =
      kSmallModel + "[[nodes]]\ngpus = 2\n[limits]\nmax_tokens_per_pass = 100\n[capacity]\nfactor = 1.25\n";
  const Config config = parsed(text);
  BOOST_TEST(config.capacity.tokens_per_replica == 63U);
  BOOST_TEST(parsed(to_toml(config)).capacity.tokens_per_replica == 63U);
}

BOOST_AUTO_TEST_CASE(C02_counts_that_do_not_divide_work) {
  const auto with = [](const std::string& nodes, std::uint32_t experts) {
    return parsed("[model]\npreset = \"mixtral-8x7b\"\nexperts = " + std::to_string(experts) + "\n" + nodes);
  };
  const auto expect = [](const std::vector<std::uint32_t>& slots, const std::vector<std::uint32_t>& wanted) {
    BOOST_TEST(slots == wanted, boost::test_tools::per_element());
  };
  expect(slots_of(with("[[nodes]]\ngpus = 3\n", 256)), {86, 86, 86});
  expect(slots_of(with("[[nodes]]\ngpus = 3\n", 8)), {3, 3, 3});
  expect(slots_of(with("[[nodes]]\ngpus = 2\n[[nodes]]\ngpus = 3\n", 8)), {2, 2, 2, 2, 2});
  expect(slots_of(with("[[nodes]]\ngpus = 2\nslots_per_gpu = 3\n[[nodes]]\ngpus = 3\n", 8)), {3, 3, 1, 1, 1});
  // All experts on the first node: the second keeps room for one, since no GPU is without slots.
  expect(slots_of(with("[[nodes]]\nslots_per_gpu = 8\n[[nodes]]\n", 8)), {8, 1});
}

BOOST_AUTO_TEST_CASE(C02_what_does_not_fit_is_refused_with_the_nearest_value) {
  const std::string text = "[model]\npreset = \"mixtral-8x7b\"\n[[nodes]]\ngpus = 4\n[placement]\n";
  BOOST_TEST(refused(text + "slots_per_gpu = 1\n") ==
             "t.toml:6: placement.slots_per_gpu = 1 holds 4 of 8 experts; set at least 2");
  BOOST_TEST(contains(
      refused(text + "slots_per_gpu = -1\n"),
      "t.toml:6: placement.slots_per_gpu = -1 is out of range; slots_per_gpu takes an integer from 0 to 4096, the "
      "nearest is 0"));
  BOOST_TEST(contains(refused(text + "slots_per_gpu = 9\n"), "a GPU never holds one twice; set at most 8"));
  BOOST_TEST(
      contains(refused("[model]\npreset = \"deepseek-v3\"\n[[nodes]]\ngpus = 3\n[placement]\nslots_per_gpu = 85\n"),
               "placement.slots_per_gpu = 85 holds 255 of 256 experts; set at least 86"));
  BOOST_TEST(contains(
      refused("[model]\npreset = \"mixtral-8x7b\"\n[[nodes]]\nslots_per_gpu = 2\n[[nodes]]\nslots_per_gpu = 3\n"),
      "the nodes' slots_per_gpu hold 5 of 8 experts; set nodes.0.slots_per_gpu to at least 5"));
}

BOOST_AUTO_TEST_CASE(nodes_can_be_fewer_or_more_than_the_file_has) {
  const std::string text = kSmallModel +
                           "[[nodes]]\nname = \"n1\"\ncontrol_port = 7001\ndoor_port = 8001\ngpus = 2\n"
                           "[[nodes]]\nname = \"n2\"\ncontrol_port = 7003\ndoor_port = 8002\n";
  Overrides overrides;
  overrides.nodes = 1;
  BOOST_TEST(parsed(text, overrides).nodes.size() == 1U);
  overrides.nodes = 4;
  const Config four = parsed(text, overrides);
  BOOST_REQUIRE(four.nodes.size() == 4);
  BOOST_TEST(four.nodes[2].name == "n3");
  BOOST_TEST(four.nodes[3].name == "n4");
  BOOST_TEST(four.nodes[2].control_port == 7005);
  BOOST_TEST(four.nodes[3].control_port == 7007);
  BOOST_TEST(four.nodes[3].door_port == 8004);
  BOOST_TEST(four.nodes[3].gpus == 1U);
  overrides.gpus = 3;
  BOOST_TEST(parsed(text, overrides).total_gpus() == 12U);
  overrides.nodes = 0;
  BOOST_TEST(contains(refused(text, overrides), "--nodes 0: 0 nodes; set 1 to 256"));
}

BOOST_AUTO_TEST_CASE(nodes_made_after_a_node_without_a_number_get_names_and_ports_that_are_free) {
  const std::string text =
      kSmallModel + "[coordinator]\nport = 7002\n[[nodes]]\nname = \"alpha\"\ncontrol_port = 7000\ndoor_port = 7001\n";
  Overrides overrides;
  overrides.nodes = 3;
  const Config config = parsed(text, overrides);
  BOOST_TEST(config.nodes[1].name == "alpha2");
  BOOST_TEST(config.nodes[2].name == "alpha3");
}

BOOST_AUTO_TEST_CASE(nodes_can_be_made_without_any_in_the_file) {
  Overrides overrides;
  overrides.nodes = 3;
  overrides.gpus = 2;
  const Config config = parsed(kSmallModel, overrides);
  BOOST_REQUIRE(config.nodes.size() == 3);
  BOOST_TEST(config.nodes[0].name == "n0");
  BOOST_TEST(config.nodes[2].name == "n2");
  BOOST_TEST(config.total_gpus() == 6U);
}

BOOST_AUTO_TEST_CASE(set_changes_any_key_and_the_last_one_wins) {
  const std::string text =
      kSmallModel + "[[nodes]]\nname = \"a\"\n[[nodes]]\nname = \"b\"\n[limits]\nmax_tokens_per_pass = 8\n";
  const Config config =
      parsed(text, sets({"limits.max_tokens_per_pass=64", "nodes.1.gpus=3", "telemetry.log_level=debug",
                         "heat.imbalance_threshold=2", "limits.max_tokens_per_pass=65"}));
  BOOST_TEST(config.limits.max_tokens_per_pass == 65U);
  BOOST_TEST(config.nodes[0].gpus == 1U);
  BOOST_TEST(config.nodes[1].gpus == 3U);
  BOOST_TEST(config.telemetry.log_level == "debug");
  BOOST_TEST(config.heat.imbalance_threshold == 2.0);
  const Config routes = parsed(kSmallModel, sets({"workload.kind=explicit", "workload.route_offsets=[0, 1]"}));
  BOOST_TEST(routes.workload.route_offsets.size() == 2U);
}

BOOST_AUTO_TEST_CASE(a_set_that_is_wrong_says_so_in_the_terms_of_the_command_line) {
  BOOST_TEST(refused(kSmallModel, sets({"limits.max_tokens_per_pass"})) ==
             "--set limits.max_tokens_per_pass: not of the form table.key=value; write for instance "
             "limits.max_tokens_per_pass=64");
  BOOST_TEST(
      contains(refused(kSmallModel, sets({"nodes.7.gpus=2"})), "there is no node 7; the nodes are numbered 0 to 0"));
  BOOST_TEST(
      contains(refused(kSmallModel, sets({"nodes.gpus=2"})), "a node's key is written nodes.NUMBER.key, from 0"));
  BOOST_TEST(refused(kSmallModel, sets({"limits.max_token_per_pass=1"})) ==
             "--set limits.max_token_per_pass=1: limits.max_token_per_pass = 1 is not a key; did you mean "
             "limits.max_tokens_per_pass?");
  BOOST_TEST(contains(refused(kSmallModel, sets({std::string("cluster.name=\xff\xfe")})), "not valid UTF-8"));
}

BOOST_AUTO_TEST_CASE(the_digest_covers_what_nodes_must_agree_on_and_nothing_else) {
  const std::string text = kSmallModel + "[[nodes]]\nname = \"a\"\n[[nodes]]\nname = \"b\"\n";
  const std::uint64_t digest = plan_digest(parsed(text));
  for (const char* same : {"coordinator.port=9000", "nodes.1.host=127.0.0.2", "nodes.0.door_port=9001",
                           "telemetry.log_level=warn", "workload.tokens=7", "workload.streams=3", "workload.seed=9",
                           "cluster.ledger=l.db", "security.keys=k", "launch.command=sh -c {command}"}) {
    BOOST_TEST(plan_digest(parsed(text, sets({"nodes.1.host=192.0.2.1", same, "workload.streams=2"}))) == digest, same);
  }
  for (const char* other :
       {"model.layers=3", "model.seed=2", "model.d_ff=256", "model.transport=f32", "model.gate=softmax_topk",
        "nodes.1.gpus=2", "nodes.1.name=c", "nodes.1.slots_per_gpu=5", "placement.order=round_robin",
        "placement.slots_per_gpu=5", "capacity.tokens_per_replica=9", "transport.inbox_bytes=65536",
        "transport.bulk=ucx", "limits.max_tokens_per_pass=7", "limits.max_rows_per_round=99",
        "limits.exchange_timeout_ms=5", "cluster.name=x", "heat.window_passes=3", "security.curve=false"}) {
    BOOST_TEST(plan_digest(parsed(text, sets({other}))) != digest, other);
  }
}

BOOST_AUTO_TEST_CASE(a_path_that_toml_cannot_hold_is_refused) {
  const auto config = parse_config(kSmallModel + "[cluster]\nledger = \"l.db\"\n", "/tmp/\xff\xfe/a.toml");
  BOOST_REQUIRE(!config.has_value());
  BOOST_TEST(contains(config.error().message, "lies in a folder whose name is not UTF-8"));
}

BOOST_AUTO_TEST_CASE(the_reference_document_lists_every_key_as_it_is) {
  const std::string file = std::string(TROUPE_SOURCE_DIR) + "/docs/config.md";
  std::ifstream in(file);
  const std::string document((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const std::string reference = config_reference();
  BOOST_TEST(contains(document, reference),
             "docs/config.md differs from the key table in the code; its reference must read:\n"
                 << reference);
  for (const ConfigKey& key : config_keys()) {
    BOOST_TEST(contains(document, "| `" + std::string(key.name) + "` |"), key.name);
    BOOST_TEST(!key.help.empty(), key.name);
  }
}
