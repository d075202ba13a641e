#define BOOST_TEST_MODULE config_mistakes
#include <algorithm>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

#include "cluster/config.hpp"
#include "tests/cluster/config_support.hpp"

using namespace troupe;
using namespace troupe::cluster;
using namespace troupe::cluster::test;

namespace {

/// A config that must be refused, and what the message must say.
struct Mistake {
  const char* what;
  std::string text;
  std::string says;
};

void check(const std::vector<Mistake>& mistakes) {
  for (const Mistake& mistake : mistakes) {
    BOOST_TEST_CONTEXT(mistake.what) {
      const std::string message = refused(mistake.text);
      BOOST_TEST(contains(message, mistake.says), "said: " << message);
      BOOST_TEST(message.find('\n') == std::string::npos, "one mistake told more than once: " << message);
    }
  }
}

const std::string kTwoNodes = kSmallModel + "[[nodes]]\nname = \"a\"\n[[nodes]]\nname = \"b\"\n";

}  // namespace

BOOST_AUTO_TEST_CASE(C38_a_misspelt_key_is_an_error_that_names_the_nearest) {
  check({
      {"key", kSmallModel + "[limits]\nmax_tokns_per_pass = 64\n",
       "t.toml:8: limits.max_tokns_per_pass = 64 is not a key; did you mean limits.max_tokens_per_pass?"},
      {"table", kSmallModel + "[limts]\nmax_tokens_per_pass = 64\n",
       "[limts] is not a table of the config; did you mean [limits]?"},
      {"key of another table", kSmallModel + "[limits]\nlog_level = \"info\"\n", "did you mean telemetry.log_level?"},
      {"key without a table", "max_rows_per_round = 4\n" + kSmallModel, "did you mean limits.max_rows_per_round?"},
      {"key of a node", kSmallModel + "[[nodes]]\ngpu = 2\n",
       "nodes.0.gpu = 2 is not a key; did you mean nodes.0.gpus?"},
      {"nothing like it", kSmallModel + "[heat]\nbanana_split_sundae = 2\n", "the keys of [heat] are window_passes"},
      {"a choice", kSmallModel + "gate = \"softmx_topk\"\n", "did you mean \"softmax_topk\"?"},
      {"a preset", "[model]\npreset = \"mixtral-8x7\"\n", "did you mean \"mixtral-8x7b\"?"},
      {"overflow", kSmallModel + "[capacity]\ntokens_per_replica = 4\noverflow = \"wat\"\n",
       "capacity.overflow = \"wat\" is not one of \"wait\", \"drop\", \"next\", \"replica\"; did you mean \"wait\"?"},
      {"a table in a table", kSmallModel + "[limits.more]\nx = 1\n",
       "limits.more = (a value of another kind) is not a key"},
      {"nodes in single brackets", kSmallModel + "[nodes]\ngpus = 1\n", "write [[nodes]] in double brackets"},
  });
}

BOOST_AUTO_TEST_CASE(C38_a_value_of_the_wrong_type_or_size_is_an_error) {
  check({
      {"text for a number", kSmallModel + "[limits]\nmax_rows_per_round = \"many\"\n",
       "limits.max_rows_per_round = \"many\" is of the wrong type; write an integer from 1 to 1048576 rows"},
      {"a fraction", kSmallModel + "[limits]\nmax_rows_per_round = 2.5\n", "wrong type; write an integer"},
      {"negative", kSmallModel + "[[nodes]]\ngpus = -1\n",
       "nodes.0.gpus = -1 is out of range; gpus takes an integer from 1 to 64"},
      {"zero GPUs", kSmallModel + "[[nodes]]\ngpus = 0\n", "the nearest is 1"},
      {"beyond a port", kSmallModel + "[coordinator]\nport = 65536\n", "integer from 0 to 65535, the nearest is 65535"},
      {"beyond 32 bits", kSmallModel + "[limits]\nmax_queued_tokens = 4294967297\n", "the nearest is 16777216"},
      {"not a number", kSmallModel + "[heat]\nhalf_life_windows = nan\n",
       "heat.half_life_windows = nan is out of range"},
      {"infinite", kSmallModel + "[heat]\nhalf_life_windows = inf\n", "heat.half_life_windows = inf is out of range"},
      {"below 1", kSmallModel + "[heat]\nimbalance_threshold = 0.5\n", "the nearest is 1.0"},
      {"a list", kSmallModel + "[cluster]\nname = [\"a\"]\n",
       "cluster.name = [\"a\"] is of the wrong type; write a string"},
      {"a date", kSmallModel + "[workload]\nseed = 2026-01-01\n", "is of the wrong type"},
      {"a mixed list", kSmallModel + "[workload]\nkind = \"statistics\"\nfile = \"x.toml\"\ndomains = [1, \"c4\"]\n",
       "workload.domains = (a value of another kind) is of the wrong type; write a list of strings"},
      {"true for a number", kSmallModel + "[limits]\nmax_rows_per_round = true\n", "is of the wrong type"},
  });
}

BOOST_AUTO_TEST_CASE(C38_numbers_of_the_model_that_contradict_each_other_are_errors) {
  const std::string grouped = "[model]\npreset = \"deepseek-v3\"\nlayers = 1\n";
  check({
      {"top_k beyond experts", "[model]\npreset = \"mixtral-8x7b\"\ntop_k = 9\n",
       "t.toml:3: model.top_k = 9 of 8 experts; set at most 8"},
      {"groups do not divide", grouped + "groups = 7\n", "model.groups = 7 does not divide 256 experts; set 4, say"},
      {"more best groups than groups", grouped + "top_groups = 9\n", "model.top_groups = 9 of 8 groups; set at most 8"},
      {"too few to choose from", grouped + "groups = 128\ntop_groups = 2\n",
       "leaves 4 experts to choose 8 from; set at least 4"},
      {"groups without a grouping gate", kSmallModel + "groups = 2\n",
       "model.groups = 2 has no effect unless model.gate = \"sigmoid_group\"; remove it"},
      {"too many experts in all", "[model]\npreset = \"mixtral-8x7b\"\nlayers = 300\nexperts = 4096\n",
       "t.toml:4: model.layers = 300 of 4096 experts each are more than the 1048576 replicas of a placement; set at "
       "most 256"},
      {"checkpoint", kSmallModel + "checkpoint = \"/models/m\"\n",
       "model.checkpoint = \"/models/m\" is not available: only synthetic weights, made from model.seed, are "
       "available"},
  });
}

BOOST_AUTO_TEST_CASE(C38_nodes_that_get_in_each_others_way_are_errors) {
  const auto two = [](const std::string& first, const std::string& second) {
    return kSmallModel + "[[nodes]]\n" + first + "\n[[nodes]]\n" + second + "\n";
  };
  check({
      {"a name twice", two("name = \"a\"", "name = \"a\""),
       "t.toml:10: nodes.1.name = \"a\" is the name of nodes.0 too"},
      {"a default name twice", two("name = \"n1\"", "gpus = 2"), "nodes.1.name = \"n1\" is the name of nodes.0 too"},
      {"one port", two("name = \"a\"\ncontrol_port = 7000", "name = \"b\"\ndoor_port = 7000"),
       "nodes.1.door_port = 7000 on 127.0.0.1 is taken by nodes.0.control_port; set another, or 0 for any free port"},
      {"localhost is 127.0.0.1", two("control_port = 7000", "host = \"localhost\"\ncontrol_port = 7000"),
       "is taken by"},
      {"own ports", kSmallModel + "[[nodes]]\ncontrol_port = 7000\ndoor_port = 7000\n",
       "is taken by nodes.0.control_port"},
      {"the coordinator's port", kSmallModel + "[coordinator]\nport = 7000\n[[nodes]]\ncontrol_port = 7000\n",
       "is taken by coordinator.port"},
      {"odd name", kSmallModel + "[[nodes]]\nname = \"a b\"\n", "nodes.0.name = \"a b\" is no plain name"},
      {"path as a name", kSmallModel + "[[nodes]]\nname = \"../x\"\n", "no plain name"},
      {"newline in a name", kSmallModel + "[[nodes]]\nname = \"a\\nb\"\n", "\"a\\u000ab\" is no plain name"},
      {"no name", kSmallModel + "[[nodes]]\nname = \"\"\n", "no plain name"},
      {"reserved", kSmallModel + "[[nodes]]\nname = \"coordinator\"\n", "neither coordinator nor client"},
      {"reserved too", kSmallModel + "[[nodes]]\nname = \"client\"\n", "neither coordinator nor client"},
      {"an option as a host", kSmallModel + "[[nodes]]\nhost = \"-oProxyCommand=x\"\n", "is no host name or address"},
      {"a shell command as a host", kSmallModel + "[[nodes]]\nhost = \"a;reboot\"\n", "is no host name or address"},
      {"every address", kSmallModel + "[[nodes]]\nhost = \"0.0.0.0\"\n", "is no address that peers can reach"},
      {"nobody", "nodes = []\n" + kSmallModel, "t.toml:1: nodes = [] leaves nobody to compute"},
      {"a number as a node", "nodes = [1]\n" + kSmallModel, "nodes.0 = 1 is not a table; write [[nodes]]"},
      {"the wire open to all", kSmallModel + "[[nodes]]\nhost = \"192.0.2.1\"\n[security]\ncurve = false\n",
       "nodes.0.host = \"192.0.2.1\" is not on loopback, and security.curve = false would leave the wire open to "
       "anyone"},
      {"looks like loopback", kSmallModel + "[[nodes]]\nhost = \"127.example.org\"\n[security]\ncurve = false\n",
       "is not on loopback"},
      {"a coordinator open to all", kSmallModel + "[coordinator]\nhost = \"192.0.2.1\"\n[security]\ncurve = false\n",
       "coordinator.host = \"192.0.2.1\" is not on loopback"},
      {"shared memory between hosts",
       two("host = \"192.0.2.1\"", "host = \"192.0.2.2\"") + "[transport]\nbulk = \"shm\"\n",
       "which transport.bulk = \"shm\" cannot reach"},
  });
  // Port 0 is any free port: as often as one likes.
  parsed(two("control_port = 0\ndoor_port = 0", "control_port = 0\ndoor_port = 0"));
  // The same port on two hosts is no conflict.
  parsed(two("host = \"192.0.2.1\"\ncontrol_port = 7000", "host = \"192.0.2.2\"\ncontrol_port = 7000"));
}

BOOST_AUTO_TEST_CASE(C38_settings_without_effect_are_errors) {
  check({
      {"migration with one GPU", kSmallModel + "[migration]\nenabled = true\n",
       "t.toml:8: migration.enabled = true has no effect: there is one GPU"},
      {"overflow without a limit", kSmallModel + "[capacity]\noverflow = \"drop\"\n",
       "capacity.overflow = \"drop\" has no effect without capacity.tokens_per_replica or capacity.factor; remove it"},
      {"overflow to replicas that are not there",
       kSmallModel + "[capacity]\ntokens_per_replica = 4\noverflow = \"replica\"\n",
       "placement.strategy = \"uniform\" makes one of each; set \"wait\""},
      {"slots that every node overrides",
       kSmallModel + "[[nodes]]\nslots_per_gpu = 8\n[placement]\nslots_per_gpu = 8\n",
       "has no effect: every node has slots_per_gpu of its own"},
      {"ucx without ucx", kSmallModel + "[transport]\nbulk = \"shm\"\nucx_tls = \"tcp\"\n",
       "transport.ucx_tls = \"tcp\" has no effect while transport.bulk = \"shm\""},
      {"keys without curve", kSmallModel + "[security]\ncurve = false\nkeys = \"k\"\n",
       "has no effect while security.curve = false"},
      {"zipf on recorded statistics",
       kSmallModel + "[workload]\nkind = \"statistics\"\nfile = \"w.toml\"\nzipf_exponent = 1.2\n",
       "workload.zipf_exponent = 1.2 has no effect unless workload.kind = \"zipf\"; remove it"},
      {"a file for the gate", kSmallModel + "[workload]\nfile = \"w.toml\"\n",
       "has no effect unless workload.kind = \"statistics\" or \"explicit\""},
      {"speed of no arrivals", kSmallModel + "[workload]\narrivals_speed = 2\n",
       "has no effect without workload.arrivals"},
      {"a command for other hosts", kSmallModel + "[launch]\ncommand = \"ssh {host} {command}\"\n",
       "has no effect: every node is on loopback"},
      {"a device that is not built", kSmallModel + "[[nodes]]\ndevice = \"cuda\"\n",
       "nodes.0.device = \"cuda\", but this build has no CUDA backend; set \"cpu\""},
  });
}

BOOST_AUTO_TEST_CASE(C38_migration_that_this_version_does_not_do_is_refused_rather_than_ignored) {
  if (migration_available()) return;
  BOOST_TEST(contains(refused(kTwoNodes + "[migration]\nenabled = true\n"),
                      "this version leaves experts where they were placed"));
}

BOOST_AUTO_TEST_CASE(C38_settings_that_contradict_each_other_are_errors) {
  const std::string zipf = kSmallModel + "[workload]\nkind = \"zipf\"\n";
  const std::string routes = kSmallModel + "[workload]\nkind = \"explicit\"\n";
  check({
      {"two limits", kSmallModel + "[capacity]\nfactor = 1.5\ntokens_per_replica = 4\n", "keep one"},
      {"no next choice", zipf + "[capacity]\ntokens_per_replica = 4\noverflow = \"next\"\n",
       "workload.kind = \"zipf\" sends its own routes, which have none"},
      {"heartbeats", kSmallModel + "[limits]\nheartbeat_limit_ms = 300\n", "set at least 400"},
      {"request beyond the queue", kSmallModel + "[limits]\nmax_queued_tokens = 4096\n",
       "limits.max_request_tokens = 16384 is more than a door may queue"},
      {"request beyond the limit", zipf + "tokens_per_request = 65\n[limits]\nmax_request_tokens = 64\n",
       "set at most that"},
      {"more in flight than is queued", zipf + "in_flight = 1000\ntokens_per_request = 100\n", "set at most 655"},
      {"more streams than tokens", zipf + "tokens = 4\n", "workload.streams = 16 for 4 tokens; set at most 4"},
      {"statistics of nothing", kSmallModel + "[workload]\nkind = \"statistics\"\n", "needs workload.file"},
      {"no routes", routes, "set workload.file or workload.route_offsets"},
      {"routes twice", routes + "file = \"r.csv\"\nroute_offsets = [0, 1]\n", "both give routes; keep one"},
      {"too few offsets", routes + "route_offsets = [0]\n", "has 1 offsets for model.top_k = 2"},
      {"an expert twice", routes + "route_offsets = [1, 9]\n", "names an expert twice"},
      {"weights for others", routes + "route_offsets = [0, 1]\nroute_weights = [1.0]\n", "has 1 weights for 2 offsets"},
      {"a command that starts nothing",
       kSmallModel + "[[nodes]]\nhost = \"192.0.2.1\"\n[launch]\ncommand = \"ssh {host}\"\n",
       "does not say where {command} goes"},
      {"a placeholder that is none",
       kSmallModel + "[[nodes]]\nhost = \"192.0.2.1\"\n[launch]\ncommand = \"ssh {hots} {command}\"\n",
       "launch.command has \"{hots}\"; there are {host}, {name} and {command}"},
      {"a request beyond a frame",
       "[model]\npreset = \"deepseek-v3\"\n[workload]\nin_flight = 1\ntokens_per_request = 4096\n",
       "do not fit a frame; set at most 2194"},
  });
}

BOOST_AUTO_TEST_CASE(C38_all_mistakes_are_told_at_once_in_the_order_of_the_file) {
  const std::string text =
      "[model]\n"
      "preset = \"mixtral-8x7b\"\n"
      "top_k = 9\n"
      "[[nodes]]\n"
      "name = \"a\"\n"
      "gpus = 0\n"
      "[[nodes]]\n"
      "name = \"a\"\n"
      "[limits]\n"
      "max_tokns_per_pass = 64\n"
      "[heat]\n"
      "half_life_windows = nan\n";
  const std::string message = refused(text);
  std::size_t at = 0;
  for (const char* line : {"t.toml:3: model.top_k", "t.toml:6: nodes.0.gpus", "t.toml:8: nodes.1.name",
                           "t.toml:10: limits.max_tokns_per_pass", "t.toml:12: heat.half_life_windows"}) {
    const std::size_t found = message.find(line, at);
    BOOST_TEST(found != std::string::npos, line << " is missing, or out of order, in:\n" << message);
    if (found != std::string::npos) at = found;
  }
  BOOST_TEST(std::count(message.begin(), message.end(), '\n') == 4);
}

BOOST_AUTO_TEST_CASE(a_text_full_of_mistakes_gets_a_bounded_answer) {
  std::string text = kSmallModel + "[limits]\n";
  for (int i = 0; i < 200; ++i) text += "nonsense" + std::to_string(i) + " = 1\n";
  const std::string message = refused(text);
  BOOST_TEST(contains(message, "and 150 more problems"));
}

BOOST_AUTO_TEST_CASE(a_key_nested_beyond_reason_is_refused_before_it_is_parsed) {
  std::string deep = "a";
  for (int i = 0; i < 100000; ++i) deep += ".a";
  BOOST_TEST(contains(refused(kSmallModel + "[" + deep + "]\n"), "t.toml:7: a key of more than"));
  BOOST_TEST(contains(refused(deep + " = 1\n"), "no table is nested so deep"));
  BOOST_TEST(contains(refused("x = [[[[{" + deep + " = 1}]]]]\n"), "no table is nested so deep"));
  std::string brackets;
  for (int i = 0; i < 100000; ++i) brackets += '[';
  BOOST_TEST(contains(refused("x = " + brackets + "\n"), "not TOML"));
  // Dots within text are no nesting.
  std::string dots = "..........";
  BOOST_TEST(contains(refused(kSmallModel + "[cluster]\nname = \"" + dots + "\" # a.b.c.d.e.f.g.h.i.j.k.l\n"),
                      "no plain name"));
}

BOOST_AUTO_TEST_CASE(a_text_that_is_too_long_is_refused) {
  BOOST_TEST(contains(refused(std::string(2 << 20, '#')), "bytes of config; at most"));
}
