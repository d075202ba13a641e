#define BOOST_TEST_MODULE workload
#include "cluster/workload.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>
#include <unistd.h>

#include "cluster/workload_parts.hpp"
#include "tests/cluster/config_support.hpp"

using namespace troupe;
using namespace troupe::cluster;
using namespace troupe::cluster::test;

namespace {

/// A folder for the files of one case; gone with it.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "troupe-workload-XXXXXX").string();
    BOOST_REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
    return (path_ / name).string();
  }

 private:
  std::filesystem::path path_;
};

struct Token {
  std::vector<float> hidden;
  std::vector<std::int32_t> ids;  ///< [layers x top_k]
  std::vector<float> weights;
  friend bool operator==(const Token&, const Token&) = default;
};

/// All tokens of a workload by stream and sequence number, having checked what every workload promises.
std::map<std::pair<std::uint64_t, std::uint64_t>, Token> tokens_of(const Config& config, const Workload& workload) {
  std::map<std::pair<std::uint64_t, std::uint64_t>, Token> tokens;
  std::map<std::uint64_t, std::uint64_t> next;
  const scheduling::ModelShape& m = config.model;
  for (std::uint64_t i = 0; i < workload.total_requests(); ++i) {
    const WorkItem item = workload.item(i);
    const messages::Submit& s = item.submit;
    BOOST_REQUIRE(s.tokens >= 1);
    BOOST_REQUIRE(s.tokens <= config.workload.tokens_per_request);
    BOOST_REQUIRE(s.stream < config.workload.streams);
    BOOST_REQUIRE(s.first_sequence == next[s.stream]);  // consecutive from 0
    next[s.stream] += s.tokens;
    BOOST_REQUIRE(s.hidden.size() == std::size_t{s.tokens} * m.d_model * 4);
    const bool routes = config.workload.kind != WorkloadKind::kGate;
    BOOST_REQUIRE(s.route_ids.size() == (routes ? std::size_t{m.layers} * s.tokens * m.top_k : 0U));
    BOOST_REQUIRE(s.route_weights.size() == s.route_ids.size());
    for (std::uint32_t t = 0; t < s.tokens; ++t) {
      Token token;
      token.hidden.resize(m.d_model);
      std::memcpy(token.hidden.data(), s.hidden.data() + std::size_t{t} * m.d_model * 4, std::size_t{m.d_model} * 4);
      for (std::uint32_t l = 0; routes && l < m.layers; ++l) {
        const auto at = static_cast<std::ptrdiff_t>((std::size_t{l} * s.tokens + t) * m.top_k);
        token.ids.insert(token.ids.end(), s.route_ids.begin() + at, s.route_ids.begin() + at + m.top_k);
        token.weights.insert(token.weights.end(), s.route_weights.begin() + at, s.route_weights.begin() + at + m.top_k);
      }
      BOOST_REQUIRE(tokens.emplace(std::pair{s.stream, s.first_sequence + t}, std::move(token)).second);
    }
  }
  BOOST_REQUIRE(tokens.size() == workload.total_tokens());
  BOOST_REQUIRE(workload.total_tokens() == config.workload.tokens);
  return tokens;
}

std::map<std::pair<std::uint64_t, std::uint64_t>, Token> tokens_of(const Config& config) {
  const auto workload = make_workload(config);
  BOOST_REQUIRE_MESSAGE(workload.has_value(), (workload ? std::string() : workload.error().message));
  return tokens_of(config, **workload);
}

std::string no_workload(const Config& config) {
  const auto workload = make_workload(config);
  BOOST_REQUIRE(!workload.has_value());
  BOOST_TEST((workload.error().code == ErrorCode::kBadConfig));
  return workload.error().message;
}

Config with(const std::string& workload) {
  return parsed(kSmallModel + "[workload]\n" + workload);
}

Config statistics(const std::string& more) {
  return with("kind = \"statistics\"\nfile = \"" TROUPE_SOURCE_DIR "/configs/workloads/mixtral-domains.toml\"\n" +
              more);
}

void check_routes(const Config& config, const Token& token) {
  const std::size_t k = config.model.top_k;
  for (std::size_t at = 0; at < token.ids.size(); at += k) {
    std::set<std::int32_t> distinct(token.ids.begin() + static_cast<std::ptrdiff_t>(at),
                                    token.ids.begin() + static_cast<std::ptrdiff_t>(at + k));
    BOOST_REQUIRE(distinct.size() == k);
    BOOST_REQUIRE(*distinct.begin() >= 0);
    BOOST_REQUIRE(*distinct.rbegin() < static_cast<std::int32_t>(config.model.experts));
    float sum = 0;
    for (std::size_t j = 0; j < k; ++j) {
      BOOST_REQUIRE(token.weights[at + j] > 0.0F);
      if (j > 0) BOOST_REQUIRE(token.weights[at + j] <= token.weights[at + j - 1]);
      sum += token.weights[at + j];
    }
    BOOST_REQUIRE(sum == 1.0F);  // exactly: they are multiples of 2^-16
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(what_a_token_is_does_not_depend_on_how_tokens_are_cut_into_requests) {
  for (const char* kind : {"kind = \"gate\"\n", "kind = \"zipf\"\nzipf_drift = 100.0\n"}) {
    const std::string text = std::string(kind) + "tokens = 500\nstreams = 7\n";
    const auto whole = tokens_of(with(text + "tokens_per_request = 500\n"));
    BOOST_TEST((whole == tokens_of(with(text + "tokens_per_request = 1\n"))));
    BOOST_TEST((whole == tokens_of(with(text + "tokens_per_request = 13\n"))));
    BOOST_TEST((whole != tokens_of(with(text + "seed = 2\n"))));
  }
  const std::string text = "tokens = 500\nstreams = 7\n";
  BOOST_TEST((tokens_of(statistics(text + "tokens_per_request = 3\n")) == tokens_of(statistics(text))));
}

BOOST_AUTO_TEST_CASE(nodes_and_gpus_do_not_change_the_workload) {
  Overrides overrides;
  overrides.nodes = 3;
  overrides.gpus = 2;
  const std::string text = kSmallModel + "[workload]\nkind = \"zipf\"\ntokens = 100\n";
  BOOST_TEST((tokens_of(parsed(text)) == tokens_of(parsed(text, overrides))));
}

BOOST_AUTO_TEST_CASE(every_count_of_tokens_streams_and_sizes_is_cut_without_gap_or_overlap) {
  for (const int tokens : {1, 2, 5, 16, 17, 100}) {
    for (const int streams : {1, 2, 3, 16}) {
      for (const int size : {1, 2, 7, 100}) {
        if (streams > tokens) continue;
        tokens_of(with("tokens = " + std::to_string(tokens) + "\nstreams = " + std::to_string(streams) +
                       "\ntokens_per_request = " + std::to_string(size) + "\n"));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(requests_take_turns_over_the_streams) {
  const Config config = with("tokens = 64\nstreams = 4\ntokens_per_request = 8\n");
  const auto workload = make_workload(config);
  BOOST_REQUIRE(workload.has_value());
  for (std::uint64_t i = 0; i < (*workload)->total_requests(); ++i) {
    BOOST_TEST((*workload)->item(i).submit.stream == i % 4);
    BOOST_TEST((*workload)->item(i).at_ns == 0U);
    BOOST_TEST((*workload)->item(i).submit.request.number == i);
  }
}

BOOST_AUTO_TEST_CASE(hidden_states_have_mean_0_and_root_mean_square_1_and_few_bits) {
  const auto tokens = tokens_of(with("tokens = 2000\n"));
  double sum = 0;
  double squares = 0;
  double count = 0;
  std::set<float> firsts;
  for (const auto& [place, token] : tokens) {
    for (const float x : token.hidden) {
      BOOST_REQUIRE(x * 1024.0F == std::floor(x * 1024.0F));
      BOOST_REQUIRE(std::fabs(x) <= 1.74F);
      sum += double{x};
      squares += double{x} * double{x};
      count += 1;
    }
    firsts.insert(token.hidden[0]);
  }
  BOOST_TEST(std::fabs(sum / count) < 0.01);
  BOOST_TEST(std::fabs(std::sqrt(squares / count) - 1.0) < 0.01);
  BOOST_TEST(firsts.size() > 500U);  // of 1774 values that it may have
}

BOOST_AUTO_TEST_CASE(the_numbers_are_the_same_on_every_machine) {
  // Written down once. If this fails, a run made with an earlier version cannot be compared with one of this version.
  BOOST_TEST(dice::roll(1, dice::Use::kHidden, 2, 3, 4) == 0x336c3255cbcc01feU);
  BOOST_TEST(dice::power_weight(1, 1.0) == std::uint64_t{1} << 40);
  BOOST_TEST(dice::power_weight(2, 1.0) == std::uint64_t{1} << 39);
  BOOST_TEST(dice::power_weight(4, 0.5) == std::uint64_t{1} << 39);
}

BOOST_AUTO_TEST_CASE(power_weights_follow_the_power_law_closely) {
  for (const double exponent : {0.0, 0.5, 1.0, 1.1, 2.0, 3.75}) {
    std::uint64_t last = UINT64_MAX;
    for (const std::uint64_t n : {1U, 2U, 3U, 7U, 100U, 1000U, 4096U}) {
      const double wanted = std::ldexp(std::pow(static_cast<double>(n), -exponent), 40);
      const std::uint64_t weight = dice::power_weight(n, exponent);
      BOOST_TEST(std::fabs(static_cast<double>(weight) - wanted) <= 1 + wanted * 1e-7, n << "^-" << exponent);
      BOOST_TEST(weight <= last);
      last = weight;
    }
  }
}

BOOST_AUTO_TEST_CASE(statistics_draw_experts_as_often_as_they_were_recorded) {
  const Config config = statistics("tokens = 30000\ndomains = [\"c4\", \"github\"]\n");
  // Place in the run: sequence x streams + stream. The text changes half way.
  std::vector<std::vector<double>> first(2, std::vector<double>(8));
  for (const auto& [place, token] : tokens_of(config)) {
    check_routes(config, token);
    const std::uint64_t number = place.second * config.workload.streams + place.first;
    // Layer 0, both choices: the table counts both.
    for (int j = 0; j < 2; ++j)
      first[number < 15000 ? 0 : 1][static_cast<std::size_t>(token.ids[static_cast<std::size_t>(j)])] += 1;
  }
  // Drawing two without repetition in proportion p gives about these shares of all choices; for tables as even as
  // these, within 3 % of p itself, and statistical error is below 2 %.
  const std::vector<std::vector<double>> recorded = {{56947, 49733, 50426, 49453, 52127, 57956, 42632, 58518},
                                                     {54849, 51938, 49502, 48693, 49404, 67714, 47790, 47902}};
  for (std::size_t d = 0; d < 2; ++d) {
    const double sum = std::accumulate(recorded[d].begin(), recorded[d].end(), 0.0);
    for (std::size_t e = 0; e < 8; ++e) {
      BOOST_TEST(std::fabs(first[d][e] / 30000 / (recorded[d][e] / sum) - 1) < 0.05, "domain " << d << " expert " << e);
    }
  }
}

BOOST_AUTO_TEST_CASE(draws_without_repetition_have_the_right_odds) {
  // Of weights 1, 2, 3, the pair (i, j) in this order has the odds w_i/6 x w_j/(6 - w_i).
  const WeightedDraw draw({1, 2, 3});
  std::map<std::pair<int, int>, double> seen;
  constexpr int kDraws = 60000;
  for (std::uint64_t key = 0; key < kDraws; ++key) {
    std::int32_t ids[2];
    draw.draw(7, key, ids);
    seen[{ids[0], ids[1]}] += 1.0 / kDraws;
  }
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) {
      const double odds = i == j ? 0 : (i + 1) / 6.0 * (j + 1) / (5.0 - i);
      BOOST_TEST(std::fabs(seen[{i, j}] - odds) < 0.008, i << " then " << j);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_draw_comes_to_an_end_where_one_weight_holds_nearly_everything) {
  const WeightedDraw draw({std::uint64_t{1} << 60, 1, 1, 0, 1});
  for (std::uint64_t key = 0; key < 200; ++key) {
    std::int32_t ids[4];
    draw.draw(7, key, ids);
    BOOST_REQUIRE((std::set<std::int32_t>(ids, ids + 4) == std::set<std::int32_t>{0, 1, 2, 4}));  // 3 has weight 0
  }
}

BOOST_AUTO_TEST_CASE(a_model_with_more_layers_than_the_table_goes_through_it_again) {
  Folder folder;
  // One expert pair per layer of the table, so that the row shows.
  const std::string file = folder.write("t.csv",
                                        "domain,layer,counts\n# a comment\n\n"
                                        "d,0,1,1,0,0,0,0,0,0\nd,1,0,0,1,1,0,0,0,0\nd,2,0,0,0,0,1,1,0,0\n");
  const Config config =
      parsed(kSmallModel + "[workload]\nkind = \"statistics\"\ntokens = 20\nstreams = 2\nfile = \"" + file + "\"\n",
             Overrides{{}, {}, {"model.layers=5"}});
  for (const auto& [place, token] : tokens_of(config)) {
    for (std::size_t layer = 0; layer < 5; ++layer) {
      const std::set<std::int32_t> pair(token.ids.begin() + static_cast<std::ptrdiff_t>(2 * layer),
                                        token.ids.begin() + static_cast<std::ptrdiff_t>(2 * layer + 2));
      const auto row = static_cast<std::int32_t>(layer % 3);
      BOOST_REQUIRE((pair == std::set<std::int32_t>{2 * row, 2 * row + 1}));
    }
  }
}

BOOST_AUTO_TEST_CASE(tables_that_are_wrong_are_errors_with_file_and_line) {
  Folder folder;
  const auto refuse = [&](const std::string& name, const std::string& text, const std::string& says) {
    const std::string file = folder.write(name, text);
    const std::string message = no_workload(with("kind = \"statistics\"\nfile = \"" + file + "\"\n"));
    BOOST_TEST(contains(message, file), message);
    BOOST_TEST(contains(message, says), message);
  };
  const std::string head = "[[domains]]\nname = \"a\"\n";
  refuse("a.toml", head + "counts = [[1, 2, 3]]\n", ":3: domain \"a\": 3 counts, but model.experts = 8");
  refuse("a.toml", head + "counts = [[1, 0, 0, 0, 0, 0, 0, 0]]\n",
         "1 experts have a count above 0, but model.top_k = 2");
  refuse("a.toml", head + "counts = [[1, -2, 3, 4, 5, 6, 7, 8]]\n", ":3: a count is an integer from 0 to 2^48");
  refuse("a.toml", head + "counts = [1, 2]\n", "counts holds a list for each layer");
  refuse("a.toml", head + "counts = []\n", "has no row of counts");
  refuse("a.toml", head, "needs counts");
  refuse("a.toml", "[[domains]]\ncounts = [[1]]\n", "a domain needs a name");
  refuse("a.toml", head + "count = 1\n", "\"count\" is no key of a domain");
  refuse("a.toml", "x = 1\n", ":1: \"x\" is not expected here");
  refuse("a.toml", "domains = 3\n", "is not expected here");
  refuse("a.toml", "= 3\n", ":1: not TOML");
  refuse("a.toml", "", "holds no domain");
  refuse("a.csv", "a,0,1,1,1\n", ":1: domain \"a\": 3 counts, but model.experts = 8");
  refuse("a.csv", "\n\na,1,1,1,1\n", ":3: layer \"1\" of domain \"a\": the next is 0");
  refuse("a.csv", "a,0,1,x,1\n", ":1: count \"x\" is not an integer");
  refuse("a.csv", "a,0\n", ":1: a row is domain,layer,count");
  refuse("a.txt", "a", "is a .toml or a .csv file");
  BOOST_TEST(
      contains(no_workload(with("kind = \"statistics\"\nfile = \"/no/such.toml\"\n")), "/no/such.toml: no such file"));
  BOOST_TEST(contains(no_workload(statistics("domains = [\"githb\"]\n")),
                      "the domains here are c4, github; did you mean \"github\"?"));
  // Another number of experts is another model.
  const std::string file = TROUPE_SOURCE_DIR "/configs/workloads/mixtral-domains.toml";
  const std::string message =
      no_workload(parsed(kSmallModel + "[workload]\nkind = \"statistics\"\nfile = \"" + file + "\"\n",
                         Overrides{{}, {}, {"model.experts=64"}}));
  BOOST_TEST(contains(message, "8 counts, but model.experts = 64"));
}

BOOST_AUTO_TEST_CASE(a_zipf_workload_has_hot_experts_of_its_own_in_each_layer) {
  const Config config = with("kind = \"zipf\"\nzipf_exponent = 1.5\ntokens = 20000\n");
  std::vector<std::vector<double>> share(2, std::vector<double>(8));
  for (const auto& [place, token] : tokens_of(config)) {
    check_routes(config, token);
    for (std::size_t layer = 0; layer < 2; ++layer)
      share[layer][static_cast<std::size_t>(token.ids[2 * layer])] += 1.0 / 20000;
  }
  double harmonic = 0;
  for (int r = 1; r <= 8; ++r) harmonic += std::pow(r, -1.5);
  std::vector<std::ptrdiff_t> hottest;
  for (std::size_t layer = 0; layer < 2; ++layer) {
    hottest.push_back(std::max_element(share[layer].begin(), share[layer].end()) - share[layer].begin());
    std::sort(share[layer].begin(), share[layer].end(), std::greater<>());
    for (std::size_t r = 0; r < 8; ++r) {
      BOOST_TEST(std::fabs(share[layer][r] - std::pow(static_cast<double>(r + 1), -1.5) / harmonic) < 0.015);
    }
  }
}

BOOST_AUTO_TEST_CASE(drift_moves_the_hot_set_in_mid_run) {
  const Config config = with("kind = \"zipf\"\nzipf_exponent = 8.0\nzipf_drift = 1.0\ntokens = 4000\nstreams = 1\n");
  std::vector<std::int32_t> hottest;
  const auto tokens = tokens_of(config);
  for (std::uint64_t part = 0; part < 4; ++part) {
    std::map<std::int32_t, int> counts;
    for (std::uint64_t n = part * 1000; n < part * 1000 + 1000; ++n) ++counts[tokens.at({0, n}).ids[0]];
    const auto most =
        std::max_element(counts.begin(), counts.end(), [](auto& a, auto& b) { return a.second < b.second; });
    BOOST_TEST(most->second > 950);
    hottest.push_back(most->first);
  }
  BOOST_TEST(std::set<std::int32_t>(hottest.begin(), hottest.end()).size() == 4U);
}

BOOST_AUTO_TEST_CASE(the_standing_example_gives_each_of_8_experts_64_tokens) {
  const auto config = load_config(std::string(TROUPE_SOURCE_DIR) + "/configs/mixtral-256.toml");
  BOOST_REQUIRE(config.has_value());
  BOOST_TEST(config->total_gpus() == 4U);
  std::map<std::int32_t, int> counts;
  for (const auto& [place, token] : tokens_of(*config)) {
    const auto number = static_cast<std::int32_t>(place.second * config->workload.streams + place.first);
    BOOST_REQUIRE((token.ids == std::vector<std::int32_t>{number % 8, (number + 1) % 8}));
    BOOST_REQUIRE((token.weights == std::vector<float>{0.6F, 0.4F}));
    for (const std::int32_t id : token.ids) ++counts[id];
  }
  BOOST_TEST(counts.size() == 8U);
  for (const auto& [expert, count] : counts) BOOST_TEST(count == 64);  // two experts on a GPU: 128
}

BOOST_AUTO_TEST_CASE(routes_from_a_file_are_taken_as_they_stand) {
  Folder folder;
  const std::string file = folder.write("r.csv",
                                        "token,layer,expert,expert,weight,weight\n"
                                        "0,0,3,5,0.75,0.25\n0,1,7,-1,1,0\n1,*,0,1,0.5,0.5\n9,0,0,1,1,1\n");
  const Config config = with("kind = \"explicit\"\ntokens = 2\nstreams = 1\nfile = \"" + file + "\"\n");
  const auto tokens = tokens_of(config);
  BOOST_TEST((tokens.at({0, 0}).ids == std::vector<std::int32_t>{3, 5, 7, -1}));
  BOOST_TEST((tokens.at({0, 0}).weights == std::vector<float>{0.75F, 0.25F, 1, 0}));
  BOOST_TEST((tokens.at({0, 1}).ids == std::vector<std::int32_t>{0, 1, 0, 1}));
}

BOOST_AUTO_TEST_CASE(route_files_that_are_wrong_are_errors_with_file_and_line) {
  Folder folder;
  const auto refuse = [&](const std::string& text, const std::string& says) {
    const std::string file = folder.write("r.csv", text);
    const std::string message =
        no_workload(with("kind = \"explicit\"\ntokens = 2\nstreams = 1\nfile = \"" + file + "\"\n"));
    BOOST_TEST(contains(message, file), message);
    BOOST_TEST(contains(message, says), message);
  };
  refuse("0,0,1,2,1\n", ":1: 5 cells; with model.top_k = 2 a line has 6");
  refuse("x,0,1,2,1,1\n", ":1: token \"x\" is not a number");
  refuse("0,2,1,2,1,1\n", ":1: layer \"2\" is not one of 0 to 1, nor * for all");
  refuse("0,0,8,2,1,1\n", ":1: expert \"8\" is not one of 0 to 7, nor -1 for none");
  refuse("0,0,-2,2,1,1\n", "expert \"-2\"");
  refuse("0,0,2,2,1,1\n", "expert 2 stands here twice");
  refuse("0,0,1,2,nan,1\n", "weight \"nan\" is not a number");
  refuse("0,0,1,2,1,1\n0,*,1,2,1,1\n", ":2: token 0 has routes in layer 0 already");
  refuse("0,*,1,2,1,1\n1,0,1,2,1,1\n", "token 1 has no routes in layer 1");
  refuse("", "token 0 has no routes in layer 0; workload.tokens = 2 needs a line for each");
}

BOOST_AUTO_TEST_CASE(arrivals_come_at_their_times) {
  Folder folder;
  const std::string file = folder.write(
      "a.csv",
      "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
      "2023-12-31 23:59:59.5000000,5,1\r\n2024-01-01 00:00:00.5,2,0\r\n2024-01-01T00:00:01.500000001,0,0\r\n"
      "2024-01-01 00:00:01.500000001,40,3\r\n");
  const Config config =
      with("arrivals = \"" + file + "\"\narrivals_speed = 2.0\ntokens = 20\nstreams = 2\ntokens_per_request = 4\n");
  const auto workload = make_workload(config);
  BOOST_REQUIRE_MESSAGE(workload.has_value(), (workload ? std::string() : workload.error().message));
  tokens_of(config, **workload);
  struct Expected {
    std::uint64_t at_ns, stream, first;
    std::uint32_t tokens;
  };
  // 6 tokens at once, 2 after a second, 12 of 43 after two: halved by the speed.
  const std::vector<Expected> expected = {{0, 0, 0, 4},
                                          {0, 0, 4, 2},
                                          {500'000'000, 1, 0, 2},
                                          {1'000'000'000, 0, 6, 4},
                                          {1'000'000'000, 0, 10, 4},
                                          {1'000'000'000, 0, 14, 4}};
  BOOST_REQUIRE((*workload)->total_requests() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const WorkItem item = (*workload)->item(i);
    BOOST_TEST(item.at_ns == expected[i].at_ns);
    BOOST_TEST(item.submit.stream == expected[i].stream);
    BOOST_TEST(item.submit.first_sequence == expected[i].first);
    BOOST_TEST(item.submit.tokens == expected[i].tokens);
  }
}

BOOST_AUTO_TEST_CASE(arrivals_keep_the_domain_of_a_token_whatever_the_size_of_requests) {
  Folder folder;
  const std::string file = folder.write("a.csv", "0,300\n1,50\n2.5,400\n");
  const std::string text = "arrivals = \"" + file + "\"\ntokens = 700\nstreams = 2\n";
  BOOST_TEST((tokens_of(statistics(text + "tokens_per_request = 1\n")) ==
              tokens_of(statistics(text + "tokens_per_request = 300\n"))));
}

BOOST_AUTO_TEST_CASE(arrivals_that_are_wrong_are_errors_with_file_and_line) {
  Folder folder;
  const auto refuse = [&](const std::string& text, const std::string& says) {
    const std::string file = folder.write("a.csv", text);
    const std::string message = no_workload(with("arrivals = \"" + file + "\"\n"));
    BOOST_TEST(contains(message, file), message);
    BOOST_TEST(contains(message, says), message);
  };
  refuse("2023-11-16 18:17:03.97,5,1\n2023-11-16 18:17:03.96,5,1\n",
         ":2: time 2023-11-16 18:17:03.96 is before that of the line above");
  refuse("2023-13-16 18:17:03,5,1\n", ":1: time \"2023-13-16 18:17:03\" is neither like");
  refuse("2023-11-16 18:17:03.,5,1\n", "is neither like");
  refuse("2023-11-16 18:17:03.0123456789,5,1\n", "is neither like");
  refuse("nan,5,1\n", "is neither like");
  refuse("0,-5,1\n", ":1: token count \"-5\" is not an integer");
  refuse("0,99999999999999999999\n", "is not an integer from 0 to");
  refuse("0\n", ":1: 1 cells; a line is TIMESTAMP");
  refuse("0,1,2,3\n", "4 cells");
  refuse("0,5,1\n", "6 tokens arrive in all, but workload.tokens = 20000; set at most that many");
}

BOOST_AUTO_TEST_CASE(a_recorded_trace_of_an_hour_can_be_replayed) {
  const std::string file = std::string(TROUPE_SOURCE_DIR) + "/../shared/data/arrivals/AzureLLMInferenceTrace_code.csv";
  if (!std::filesystem::exists(file)) {
    BOOST_TEST_MESSAGE("skipped: " << file << " is not there");
    return;
  }
  const Config config = with("arrivals = \"" + file + "\"\ntokens = 1000000\ntokens_per_request = 512\n");
  const auto workload = make_workload(config);
  BOOST_REQUIRE_MESSAGE(workload.has_value(), (workload ? std::string() : workload.error().message));
  // Its first two rows: 18:17:03.9799600 with 4818 tokens and 18:17:04.0319600 with 3188.
  BOOST_TEST((*workload)->item(9).at_ns == 0U);
  BOOST_TEST((*workload)->item(9).submit.tokens == 4818U - 9 * 512);
  BOOST_TEST((*workload)->item(10).at_ns == 52'000'000U);
  std::uint64_t last = 0;
  for (std::uint64_t i = 0; i < (*workload)->total_requests(); i += 97) {
    const std::uint64_t at = (*workload)->item(i).at_ns;
    BOOST_REQUIRE(at >= last);
    last = at;
  }
}

BOOST_AUTO_TEST_CASE(recorded_frequencies_of_other_models_can_be_used) {
  const std::string file = std::string(TROUPE_SOURCE_DIR) + "/../shared/data/heat/olmoe_domains.csv";
  if (!std::filesystem::exists(file)) {
    BOOST_TEST_MESSAGE("skipped: " << file << " is not there");
    return;
  }
  // The file has other columns in front: model and selection. A table for a workload is domain,layer,counts.
  std::ifstream in(file);
  std::string table;
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("olmoe,expert_counts,", 0) == 0) table += line.substr(20) + "\n";
  }
  Folder folder;
  const Config config = parsed(
      "[model]\npreset = \"olmoe-7b\"\nd_model = 64\n[workload]\nkind = \"statistics\"\ntokens = 500\nfile = \"" +
      folder.write("olmoe.csv", table) + "\"\n");
  for (const auto& [place, token] : tokens_of(config)) check_routes(config, token);
}
