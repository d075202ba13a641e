#define BOOST_TEST_MODULE config_property
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>
#include <rapidcheck.h>

#include "cluster/config.hpp"
#include "cluster/config_keys.hpp"
#include "tests/cluster/config_support.hpp"

using namespace troupe;
using namespace troupe::cluster;
using namespace troupe::cluster::test;

namespace {

/// RapidCheck with a fixed seed unless RC_PARAMS says otherwise; it prints the RC_PARAMS that repeat a failure.
template <class Property>
void holds(const char* name, Property&& property) {
  setenv("RC_PARAMS", "seed=20240611 max_success=300", 0);  // 0: what is set already stays
  BOOST_TEST_MESSAGE(name << ": RC_PARAMS=\"" << std::getenv("RC_PARAMS") << "\"");
  BOOST_TEST(rc::check(name, std::forward<Property>(property)));
}

std::int64_t integer(std::int64_t least, std::int64_t most) {
  return *rc::gen::inRange<std::int64_t>(least, most == INT64_MAX ? most : most + 1);
}
bool chance(int percent) {
  return integer(0, 99) < percent;
}

double number(double least, double most) {
  return least + (most - least) * static_cast<double>(integer(0, 1 << 20)) / static_cast<double>(1 << 20);
}

std::string word() {
  static const std::string letters = "abcXYZ019_-.";
  std::string text = "w";
  for (std::int64_t i = integer(0, 8); i > 0; --i) {
    text += letters[static_cast<std::size_t>(integer(0, static_cast<std::int64_t>(letters.size()) - 1))];
  }
  return text;
}

/// A value within the key's range.
ConfigValue value_for(const ConfigKey& key) {
  switch (key.type) {
    case KeyType::kBool:
      return chance(50);
    case KeyType::kInteger:
      return integer(key.least, key.most);
    case KeyType::kNumber:
      return number(key.least_number, key.most_number);
    case KeyType::kChoice:
      return std::string(
          key.choices[static_cast<std::size_t>(integer(0, static_cast<std::int64_t>(key.choices.size()) - 1))]);
    case KeyType::kIntegers: {
      std::vector<std::int64_t> list;
      for (std::int64_t i = integer(1, 4); i > 0; --i) list.push_back(integer(key.least, key.most));
      return list;
    }
    case KeyType::kNumbers: {
      std::vector<double> list;
      for (std::int64_t i = integer(1, 4); i > 0; --i) list.push_back(number(key.least_number, key.most_number));
      return list;
    }
    case KeyType::kStrings:
      return std::vector<std::string>{word(), word()};
    case KeyType::kString:
    case KeyType::kPath:
      break;
  }
  return word() + (chance(20) ? " \"\\\t\x01 \xc3\xa9" : "");
}

/// A config text that gives random keys random values, each within its range: many are sound, and many are not.
std::string random_text() {
  std::string text;
  const std::int64_t nodes = integer(0, 3);
  for (const std::string_view each : config_tables()) {
    const bool model = each == "model";
    for (std::int64_t n = 0; n < (each == "nodes" ? nodes : 1); ++n) {
      if (!model && each != "nodes" && chance(50)) continue;
      text.append(each == "nodes" ? "[[nodes" : "[")
          .append(each == "nodes" ? "" : each)
          .append(each == "nodes" ? "]]\n" : "]\n");
      for (const ConfigKey& key : config_keys()) {
        if (key.table != each || key.use == KeyUse::kRefused) continue;
        const bool shape = model && (key.name == "layers" || key.name == "experts" || key.name == "top_k" ||
                                     key.name == "d_model" || key.name == "d_ff");
        if (shape) {
          const std::int64_t most = key.name == "experts" ? 16 : key.name == "top_k" ? 3 : 64;
          text += std::string(key.name) + " = " + std::to_string(integer(key.name == "experts" ? 3 : 1, most)) + "\n";
        } else if (chance(15)) {
          text += std::string(key.name) + " = " + to_text(value_for(key)) + "\n";
        }
      }
    }
  }
  return text;
}

/// A sound config that sets keys which depend on each other, so that every one has a chance to appear.
std::string sound_text() {
  std::string text = "[model]\npreset = " +
                     to_text(ConfigValue{std::string(preset_names()[static_cast<std::size_t>(integer(0, 3))])}) + "\n";
  const std::int64_t experts = 8 * integer(1, 8);
  text += "experts = " + std::to_string(experts) + "\nlayers = " + std::to_string(integer(1, 60)) + "\n";
  if (chance(50)) {
    text +=
        "gate = \"sigmoid_group\"\ngroups = 4\ntop_groups = 4\ntop_k = 2\nrouted_scale = " + to_text(number(0.1, 9)) +
        "\n";
  } else {
    text += "gate = \"topk_softmax\"\ntop_k = 4\nseed = " + std::to_string(integer(0, INT64_MAX - 1)) + "\n";
  }
  text += "[cluster]\nname = " + to_text(word()) + "\n";
  if (chance(50)) text += "ledger = " + to_text("d/" + word() + " \"x\"") + "\n";
  const std::int64_t nodes = integer(0, 3);
  for (std::int64_t n = 0; n < nodes; ++n) {
    text +=
        "[[nodes]]\ngpus = " + std::to_string(integer(1, 8)) + "\ncontrol_port = " + std::to_string(7000 + n) + "\n";
    if (chance(30)) text += "slots_per_gpu = " + std::to_string(integer(1, experts)) + "\n";
    if (chance(30)) text += "host = \"127.0.0." + std::to_string(integer(1, 9)) + "\"\n";
  }
  if (chance(50)) text += "[placement]\norder = \"round_robin\"\n";
  if (chance(50))
    text += "[capacity]\nfactor = " + to_text(number(0.5, 3)) + "\n" + (chance(50) ? "overflow = \"drop\"\n" : "");
  if (chance(50)) text += "[security]\ncurve = false\n";
  if (chance(50)) text += "[transport]\nbulk = \"ucx\"\nucx_tls = \"tcp,self\"\n";
  if (chance(50)) text += "[heat]\nhalf_life_windows = " + to_text(number(0.01, 100)) + "\n";
  switch (integer(0, 3)) {
    case 0:
      text += "[workload]\nkind = \"zipf\"\nzipf_exponent = " + to_text(number(0, 8)) + "\n";
      break;
    case 1:
      text += "[workload]\nkind = \"statistics\"\nfile = \"w/" + word() + ".toml\"\ndomains = [\"a\", \"b\\u00e9\"]\n";
      break;
    case 2:
      text += "[workload]\nkind = \"explicit\"\nfile = \"r.csv\"\narrivals = \"a.csv\"\narrivals_speed = 2.5\n";
      break;
    default:
      text += "[workload]\nseed = " + std::to_string(integer(0, INT64_MAX - 1)) + "\n";
  }
  return text;
}

std::string message_of(const Result<Config>& config) {
  return config ? std::string() : config.error().message;
}

void reads_back_equal(const Config& config) {
  const std::string written = to_toml(config);
  const auto again = parse_config(written, config.file);
  if (!again) RC_FAIL(written + "\n" + again.error().message);
  RC_ASSERT(*again == config);
  RC_ASSERT(to_toml(*again) == written);
  RC_ASSERT(plan_digest(*again) == plan_digest(config));
}

}  // namespace

BOOST_AUTO_TEST_CASE(what_is_written_reads_back_equal) {
  holds("sound configs round-trip", [] {
    const std::string text = sound_text();
    const auto config = parse_config(text, "some/folder/t.toml");
    if (!config) {
      // Slots drawn at random may hold too few experts, and nothing else may be wrong.
      RC_ASSERT(message_of(config).find("experts; set") != std::string::npos);
      RC_TAG(std::string("refused"));
      return;
    }
    RC_TAG(std::string("sound"));
    reads_back_equal(*config);
  });
}

BOOST_AUTO_TEST_CASE(any_values_within_their_ranges_are_taken_or_refused_with_reasons) {
  holds("random configs", [] {
    const std::string text = random_text();
    const auto config = parse_config(text, "t.toml");
    RC_TAG(std::string(config ? "sound" : "refused"));
    if (config) {
      reads_back_equal(*config);
      for (const auto& gpu : config->gpu_slots()) RC_ASSERT(gpu.slots_per_layer >= 1U);
      return;
    }
    RC_ASSERT(config.error().code == ErrorCode::kBadConfig);
    RC_ASSERT(config.error().message.rfind("t.toml", 0) == 0U);
  });
}

BOOST_AUTO_TEST_CASE(every_key_is_written_back_with_the_value_it_was_given) {
  // For each key, a config in which it has an effect, and a value that is not its default.
  const std::string model = kSmallModel + "gate = \"sigmoid_group\"\n";
  const std::string nodes = "[[nodes]]\n[[nodes]]\nhost = \"192.0.2.1\"\n";
  struct Given {
    std::string key;
    std::string value;
    std::vector<std::string> with;
  };
  const std::vector<Given> all = {
      {"cluster.name", "\"x\"", {}},
      {"cluster.ledger", "\"/l.db\"", {}},
      {"model.preset", "\"olmoe-7b\"", {"model.experts=64"}},
      {"model.layers", "3", {}},
      {"model.experts", "16", {}},
      {"model.top_k", "3", {}},
      {"model.d_model", "65", {}},
      {"model.d_ff", "129", {}},
      {"model.weights", "\"f32\"", {}},
      {"model.transport", "\"f32\"", {}},
      {"model.gate", "\"topk_softmax\"", {}},
      {"model.groups", "4", {"model.top_groups=2"}},
      {"model.top_groups", "2", {"model.groups=4"}},
      {"model.routed_scale", "2.5", {}},
      {"model.seed", "9223372036854775807", {}},
      {"coordinator.host", "\"127.0.0.9\"", {}},
      {"coordinator.port", "7000", {}},
      {"nodes.1.name", "\"zed\"", {}},
      {"nodes.1.host", "\"192.0.2.7\"", {}},
      {"nodes.1.control_port", "7001", {}},
      {"nodes.1.door_port", "7002", {}},
      {"nodes.1.gpus", "3", {}},
      {"nodes.1.slots_per_gpu", "5", {}},
      {"transport.bulk", "\"ucx\"", {}},
      {"transport.inbox_bytes", "65536", {}},
      {"transport.ucx_tls", "\"tcp\"", {}},
      {"placement.order", "\"round_robin\"", {}},
      {"placement.slots_per_gpu", "5", {}},
      {"capacity.tokens_per_replica", "77", {}},
      {"capacity.overflow", "\"drop\"", {"capacity.tokens_per_replica=1"}},
      {"heat.window_passes", "3", {}},
      {"heat.half_life_windows", "0.25", {}},
      {"heat.imbalance_threshold", "1.75", {}},
      {"security.curve", "false", {"nodes.1.host=127.0.0.3"}},
      {"security.keys", "\"/k\"", {}},
      {"limits.max_tokens_per_pass", "7", {}},
      {"limits.max_rows_per_round", "7", {}},
      {"limits.max_queued_tokens", "20000", {}},
      {"limits.max_request_tokens", "64", {}},
      {"limits.exchange_timeout_ms", "7", {}},
      {"limits.request_timeout_ms", "7", {}},
      {"limits.join_timeout_ms", "7", {}},
      {"limits.heartbeat_interval_ms", "7", {}},
      {"limits.heartbeat_limit_ms", "700", {}},
      {"limits.shutdown_timeout_ms", "7", {}},
      {"telemetry.log_level", "\"trace\"", {}},
      {"launch.command", "\"ssh {host} {command}\"", {}},
      {"workload.kind", "\"zipf\"", {}},
      {"workload.file", "\"/w.toml\"", {"workload.kind=statistics"}},
      {"workload.domains", "[\"a\", \"b\"]", {"workload.kind=statistics", "workload.file=w.toml"}},
      {"workload.tokens", "77", {}},
      {"workload.streams", "7", {}},
      {"workload.tokens_per_request", "7", {}},
      {"workload.in_flight", "7", {}},
      {"workload.zipf_exponent", "1.25", {"workload.kind=zipf"}},
      {"workload.zipf_drift", "0.1", {"workload.kind=zipf"}},
      {"workload.arrivals", "\"/a.csv\"", {}},
      {"workload.arrivals_speed", "7.5", {"workload.arrivals=/a.csv"}},
      {"workload.seed", "7", {}},
      {"workload.route_offsets", "[3, 4]", {"workload.kind=explicit"}},
      {"workload.route_weights", "[0.6, 0.4]", {"workload.kind=explicit", "workload.route_offsets=[0, 1]"}},
  };
  std::set<std::string> covered;
  for (const Given& given : all) {
    BOOST_TEST_CONTEXT(given.key) {
      Overrides overrides;
      overrides.set = given.with;
      overrides.set.push_back(given.key + "=" + given.value);
      const Config config = parsed(model + nodes, overrides);
      const std::string written = to_toml(config);
      const std::string name = given.key.substr(given.key.rfind('.') + 1);
      BOOST_TEST(contains(written, "\n" + name + " = " + given.value + "\n"), written);
      const auto again = parse_config(written, config.file);
      BOOST_REQUIRE_MESSAGE(again.has_value(), message_of(again));
      BOOST_TEST((*again == config));
      covered.insert(given.key.substr(0, given.key.find('.')) + "." + name);
    }
  }
  // A new key must join the list above. These have one value only, or live on in another key.
  const std::set<std::string> others = {"model.checkpoint", "nodes.device", "placement.strategy", "capacity.factor",
                                        "migration.enabled"};
  for (const ConfigKey& key : config_keys()) {
    const std::string name = std::string(key.table) + "." + std::string(key.name);
    BOOST_TEST((covered.contains(name) || others.contains(name)), name << " is not covered");
  }
}
