#define BOOST_TEST_MODULE local_cluster
#include "actors/local_cluster.hpp"

#include <cmath>
#include <cstring>
#include <future>
#include <limits>
#include <vector>

#include <boost/test/unit_test.hpp>

#include "gpu/reference.hpp"

using namespace troupe;
using std::chrono::seconds;

namespace {

scheduling::ModelShape small_model() {
  scheduling::ModelShape shape;
  shape.layers = 3;
  shape.experts = 8;
  shape.top_k = 2;
  shape.d_model = 48;
  shape.d_ff = 80;
  shape.seed = 7;
  return shape;
}

/// The same numbers on every machine: a small integer generator (splitmix64).
std::uint64_t scrambled(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31U);
}

float value_of(std::uint64_t token, std::uint64_t dimension) {
  return static_cast<float>(static_cast<double>(scrambled(token * 4096 + dimension) % 20001) / 10000.0 - 1.0);
}

/// Tokens first .. first+count-1 of stream `stream`; routed by the client where `routed`, else by the gate.
messages::Submit make_submit(const scheduling::ModelShape& shape, std::uint64_t stream, std::uint64_t first,
                             std::uint32_t count, bool routed) {
  messages::Submit submit;
  submit.request = {stream + 1, first + 1};
  submit.stream = stream;
  submit.first_sequence = first;
  submit.tokens = count;
  std::vector<float> hidden(std::size_t{count} * shape.d_model);
  for (std::uint32_t t = 0; t < count; ++t) {
    for (std::uint32_t d = 0; d < shape.d_model; ++d)
      hidden[t * shape.d_model + d] = value_of(stream * 100000 + first + t, d);
  }
  submit.hidden.resize(hidden.size() * sizeof(float));
  std::memcpy(submit.hidden.data(), hidden.data(), submit.hidden.size());
  if (routed) {
    for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
      for (std::uint32_t t = 0; t < count; ++t) {
        const std::uint64_t dice = scrambled(stream * 1000003 + (first + t) * 31 + layer);
        const auto a = static_cast<std::int32_t>(dice % shape.experts);
        const auto b = static_cast<std::int32_t>(
            (static_cast<std::uint64_t>(a) + 1 + (dice >> 8U) % (shape.experts - 1)) % shape.experts);
        submit.route_ids.insert(submit.route_ids.end(), {a, b});
        submit.route_weights.insert(submit.route_weights.end(), {0.6F, 0.4F});
      }
    }
  }
  return submit;
}

struct Served {
  std::vector<float> hidden;  // stream after stream, by sequence
  std::vector<std::uint8_t> flags;
  std::vector<std::uint64_t> per_gpu;
  std::uint64_t out_of_order = 0;
};

constexpr std::uint64_t kStreams = 5;
constexpr std::uint32_t kTokensPerStream = 60;

/// Serves kStreams streams in requests of `request_tokens`, all under way at once.
Served serve(actors::LocalClusterOptions options, std::uint32_t request_tokens) {
  auto cluster = actors::LocalCluster::start(options);
  BOOST_TEST_REQUIRE(cluster.has_value(), (cluster ? "" : cluster.error().message));
  const std::size_t d = options.shape.d_model;
  Served served;
  served.hidden.resize(kStreams * kTokensPerStream * d);
  served.flags.resize(kStreams * kTokensPerStream);
  std::mutex mutex;
  std::vector<std::uint64_t> next(kStreams, 0);
  std::vector<std::string> errors;
  std::size_t open = 0;
  std::condition_variable changed;
  for (std::uint32_t first = 0; first < kTokensPerStream; first += request_tokens) {
    for (std::uint64_t stream = 0; stream < kStreams; ++stream) {
      const std::uint32_t count = std::min(request_tokens, kTokensPerStream - first);
      {
        const std::lock_guard lock(mutex);
        ++open;
      }
      (*cluster)->submit(static_cast<std::uint32_t>(stream % options.nodes),
                         make_submit(options.shape, stream, first, count, stream % 2 == 0), seconds(60),
                         [&, stream](messages::Answer answer) {
                           const std::lock_guard lock(mutex);
                           if (answer.code != 0) errors.push_back(answer.message);
                           if (answer.first_sequence != next[stream]) ++served.out_of_order;
                           next[stream] = answer.first_sequence + answer.tokens;
                           const std::size_t at = stream * kTokensPerStream + answer.first_sequence;
                           if (answer.code == 0)
                             std::memcpy(served.hidden.data() + at * d, answer.hidden.data(), answer.hidden.size());
                           for (std::size_t i = 0; i < answer.flags.size(); ++i) served.flags[at + i] = answer.flags[i];
                           --open;
                           changed.notify_all();
                         });
    }
  }
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return open == 0; });  // every submit is called back by its deadline
  for (const std::string& error : errors) BOOST_ERROR(error);
  lock.unlock();
  for (std::uint32_t node = 0; node < options.nodes; ++node) {
    auto status = (*cluster)->status(node, seconds(10));
    BOOST_TEST_REQUIRE(status.has_value());
    served.per_gpu.insert(served.per_gpu.end(), status->tokens_per_gpu.begin(), status->tokens_per_gpu.end());
  }
  return served;
}

/// What the answers must be, from one process without actors.
std::vector<float> reference(const scheduling::ModelShape& shape) {
  gpu::PassTokens pass;
  pass.tokens = kStreams * kTokensPerStream;
  pass.route_ids.assign(std::size_t{shape.layers} * pass.tokens * shape.top_k, -1);
  pass.route_weights.assign(pass.route_ids.size(), 0.0F);
  for (std::uint64_t stream = 0; stream < kStreams; ++stream) {
    const messages::Submit submit = make_submit(shape, stream, 0, kTokensPerStream, stream % 2 == 0);
    const auto* values = reinterpret_cast<const float*>(submit.hidden.data());
    pass.hidden.insert(pass.hidden.end(), values, values + submit.hidden.size() / sizeof(float));
    pass.client_routed.insert(pass.client_routed.end(), kTokensPerStream, stream % 2 == 0 ? 1 : 0);
    if (submit.route_ids.empty()) continue;
    const std::size_t n = kTokensPerStream * shape.top_k;
    for (std::size_t layer = 0; layer < shape.layers; ++layer) {
      const std::size_t to = (layer * pass.tokens + stream * kTokensPerStream) * shape.top_k;
      std::copy_n(submit.route_ids.begin() + static_cast<std::ptrdiff_t>(layer * n), n,
                  pass.route_ids.begin() + static_cast<std::ptrdiff_t>(to));
      std::copy_n(submit.route_weights.begin() + static_cast<std::ptrdiff_t>(layer * n), n,
                  pass.route_weights.begin() + static_cast<std::ptrdiff_t>(to));
    }
  }
  auto flags = gpu::run_reference(shape, *gpu::make_synthetic_weights(shape), pass);
  BOOST_TEST_REQUIRE(flags.has_value());
  return pass.hidden;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

actors::LocalClusterOptions cluster_of(std::uint32_t nodes, std::uint32_t gpus) {
  actors::LocalClusterOptions options;
  options.shape = small_model();
  options.nodes = nodes;
  options.gpus_per_node = gpus;
  return options;
}

}  // namespace

BOOST_AUTO_TEST_CASE(answers_have_the_same_bits_for_any_number_of_nodes_gpus_and_any_batch) {
  const std::vector<float> want = reference(small_model());
  struct Case {
    std::uint32_t nodes, gpus, max_tokens_per_pass, request_tokens;
  };
  for (const Case c :
       {Case{1, 1, 256, 60}, Case{1, 4, 256, 7}, Case{2, 2, 16, 20}, Case{4, 1, 5, 1}, Case{3, 1, 64, 13}}) {
    BOOST_TEST_CONTEXT(c.nodes << " nodes x " << c.gpus << " GPUs, at most " << c.max_tokens_per_pass
                               << " tokens a pass, requests of " << c.request_tokens) {
      auto options = cluster_of(c.nodes, c.gpus);
      options.max_tokens_per_pass = c.max_tokens_per_pass;
      const Served served = serve(options, c.request_tokens);
      BOOST_TEST(same_bits(served.hidden, want));
      BOOST_TEST(served.out_of_order == 0u);
      std::uint64_t visits = 0;
      for (const std::uint64_t n : served.per_gpu) visits += n;
      BOOST_TEST(visits == std::uint64_t{kStreams} * kTokensPerStream * options.shape.layers * options.shape.top_k);
    }
  }
}

BOOST_AUTO_TEST_CASE(C18_more_rows_than_the_limit_are_split_into_rounds_with_the_same_bits) {
  auto options = cluster_of(2, 1);
  options.max_rows_per_round = 8;
  BOOST_TEST(same_bits(serve(options, 30).hidden, reference(options.shape)));
}

BOOST_AUTO_TEST_CASE(the_overflow_policy_wait_changes_no_bit) {
  auto options = cluster_of(2, 2);
  options.capacity.tokens_per_replica = 3;
  options.capacity.overflow = scheduling::Overflow::kWait;
  const Served served = serve(options, 20);
  BOOST_TEST(same_bits(served.hidden, reference(options.shape)));
  for (const std::uint8_t flag : served.flags) BOOST_TEST_REQUIRE(flag == messages::kTokenExact);
}

BOOST_AUTO_TEST_CASE(the_overflow_policy_drop_flags_each_token_that_it_touches_and_no_other) {
  auto options = cluster_of(2, 2);
  options.capacity.tokens_per_replica = 3;
  options.capacity.overflow = scheduling::Overflow::kDrop;
  const Served served = serve(options, 60);
  const std::vector<float> want = reference(options.shape);
  const std::size_t d = options.shape.d_model;
  std::size_t dropped = 0;
  for (std::size_t t = 0; t < served.flags.size(); ++t) {
    const bool same = std::memcmp(served.hidden.data() + t * d, want.data() + t * d, d * sizeof(float)) == 0;
    if ((served.flags[t] & messages::kTokenDropped) != 0) {
      ++dropped;
    } else {
      BOOST_TEST_REQUIRE(same);
    }
  }
  BOOST_TEST(dropped > 0u);
}

BOOST_AUTO_TEST_CASE(C12_C13_padding_and_ids_beyond_the_table_harm_no_other_token) {
  auto options = cluster_of(1, 2);
  auto cluster = actors::LocalCluster::start(options);
  BOOST_TEST_REQUIRE(cluster.has_value());
  const scheduling::ModelShape& shape = options.shape;
  messages::Submit good = make_submit(shape, 0, 0, 4, true);
  messages::Submit bad = good;
  bad.request.number = 99;
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    std::int32_t* const ids = bad.route_ids.data() + std::size_t{layer} * 4 * shape.top_k;
    ids[2] = static_cast<std::int32_t>(shape.experts);                             // token 1: one id beyond the table
    ids[4] = -1;                                                                   // token 2: one slot of padding
    ids[6] = ids[7] = layer == 0 ? std::numeric_limits<std::int32_t>::max() : -1;  // token 3: nothing valid
  }
  const auto want = (*cluster)->ask(0, good, seconds(10));
  const auto got = (*cluster)->ask(0, bad, seconds(10));
  BOOST_TEST_REQUIRE(want.has_value());
  BOOST_TEST_REQUIRE(got.has_value());
  const std::size_t row = shape.d_model * sizeof(float);
  BOOST_TEST(std::memcmp(want->hidden.data(), got->hidden.data(), row) == 0);  // token 0 is untouched
  BOOST_TEST_REQUIRE(got->flags.size() == 4u);
  BOOST_TEST(got->flags[0] == messages::kTokenExact);
  BOOST_TEST(got->flags[1] == messages::kTokenBadRoute);
  BOOST_TEST(got->flags[2] == messages::kTokenExact);
  BOOST_TEST(got->flags[3] == messages::kTokenBadRoute);
  // A token without any expert passes through the residual stream as it came.
  BOOST_TEST(std::memcmp(bad.hidden.data() + 3 * row, got->hidden.data() + 3 * row, row) == 0);
}

BOOST_AUTO_TEST_CASE(a_malformed_request_is_refused_with_the_numbers_and_the_cluster_serves_on) {
  auto options = cluster_of(1, 2);
  options.max_request_tokens = 32;
  auto cluster = actors::LocalCluster::start(options);
  BOOST_TEST_REQUIRE(cluster.has_value());
  const auto refused = [&](messages::Submit submit, ErrorCode code, const char* text) {
    static std::uint64_t number = 1000;
    submit.request.number = ++number;
    const auto answer = (*cluster)->ask(0, std::move(submit), seconds(10));
    BOOST_TEST_REQUIRE(!answer.has_value());
    BOOST_TEST(static_cast<int>(answer.error().code) == static_cast<int>(code));
    BOOST_TEST(answer.error().message.find(text) != std::string::npos, answer.error().message);
  };
  const messages::Submit good = make_submit(options.shape, 0, 0, 4, true);
  messages::Submit bad = good;
  bad.tokens = 0;
  refused(bad, ErrorCode::kBadInput, "0 tokens");
  bad = make_submit(options.shape, 0, 0, 33, false);
  refused(bad, ErrorCode::kLimit, "limits.max_request_tokens is 32");
  bad = good;
  bad.hidden.pop_back();
  refused(bad, ErrorCode::kBadInput, "767 came");
  bad = good;
  bad.route_ids.pop_back();
  refused(bad, ErrorCode::kBadInput, "layers x tokens x top_k = 24");
  bad = good;
  const float nan = std::nanf("");
  std::memcpy(bad.hidden.data() + 8, &nan, sizeof nan);
  refused(bad, ErrorCode::kBadInput, "hidden state 2 of token 0");
  BOOST_TEST((*cluster)->ask(0, good, seconds(10)).has_value());
}

BOOST_AUTO_TEST_CASE(C02_more_experts_than_slots_are_refused_before_any_weight_is_made) {
  auto options = cluster_of(1, 2);
  options.slots_per_gpu = 3;
  const auto cluster = actors::LocalCluster::start(options);
  BOOST_TEST_REQUIRE(!cluster.has_value());
  BOOST_TEST(static_cast<int>(cluster.error().code) == static_cast<int>(ErrorCode::kSlotsTooFew));
}

BOOST_AUTO_TEST_CASE(counts_that_do_not_divide_are_served) {
  auto options = cluster_of(3, 1);
  options.shape.experts = 7;
  BOOST_TEST(same_bits(serve(options, 11).hidden, reference(options.shape)));
}
