#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "bench/bench.hpp"
#include "gpu/all_to_all.hpp"
#include "gpu/device.hpp"
#include "gpu/pass_runner.hpp"
#include "scheduling/placement.hpp"

namespace troupe::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct Shape {
  const char* name;
  std::uint32_t experts, top_k, d_model, d_ff;
};

double us_of(const std::function<void()>& work) {
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

/// Tokens whose experts are i mod E, i+1 mod E, ...: every expert gets the same number of rows.
gpu::PassTokens make_tokens(const scheduling::ModelShape& shape, std::uint32_t tokens) {
  gpu::PassTokens pass;
  pass.tokens = tokens;
  pass.hidden.resize(std::size_t{tokens} * shape.d_model);
  for (std::size_t i = 0; i < pass.hidden.size(); ++i) pass.hidden[i] = static_cast<float>(i % 31) / 16.0F - 0.9F;
  pass.client_routed.assign(tokens, 1);
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    for (std::uint32_t t = 0; t < tokens; ++t) {
      for (std::uint32_t k = 0; k < shape.top_k; ++k) {
        pass.route_ids.push_back(static_cast<std::int32_t>((t + k) % shape.experts));
        pass.route_weights.push_back(1.0F / static_cast<float>(shape.top_k));
      }
    }
  }
  return pass;
}

/// One rank with all experts: what a step costs beyond its expert compute and one copy each of dispatch and combine.
Result<Row> measure(const Shape& s, std::uint32_t tokens, const Options& options) {
  scheduling::ModelShape shape;
  shape.layers = 1;
  shape.experts = s.experts;
  shape.top_k = s.top_k;
  shape.d_model = s.d_model;
  shape.d_ff = s.d_ff;
  const std::uint32_t rows = tokens * s.top_k;
  auto device = gpu::make_cpu_device(shape, gpu::DeviceOptions{s.experts, std::max(rows, 1U)});
  if (!device) return tl::unexpected(device.error());
  const auto weights = gpu::make_synthetic_weights(shape);
  for (std::uint32_t e = 0; e < s.experts; ++e) {
    if (auto done = (*device)->load_expert(e, ExpertId{0, e}, *weights); !done) return tl::unexpected(done.error());
  }
  auto endpoints = gpu::make_in_process_endpoints(1);
  const messages::BulkAddress address = endpoints[0]->address();
  auto exchange =
      endpoints[0]->connect(View{1}, Rank{0}, std::span(&address, 1), Clock::now() + std::chrono::seconds(10));
  if (!exchange) return tl::unexpected(exchange.error());
  const scheduling::GpuSlots slots{GpuId{NodeId{0}, 0}, s.experts};
  auto placement =
      scheduling::plan_uniform(shape, std::span(&slots, 1), scheduling::UniformOrder::kContiguous, Epoch{1});
  if (!placement) return tl::unexpected(placement.error());
  const scheduling::RankPlace place{slots.gpu};
  auto sites = scheduling::resolve(shape, *placement, std::span(&place, 1));
  if (!sites) return tl::unexpected(sites.error());
  gpu::PassRunnerOptions runner_options;
  runner_options.slots_per_layer = s.experts;
  runner_options.max_rows_per_round = rows;
  gpu::PassRunner runner(shape, runner_options, **device);

  std::vector<std::byte> in(rows * shape.row_bytes());
  std::vector<std::byte> out(in.size());
  std::vector<std::byte> copy(in.size());
  std::vector<gpu::ExpertRows> groups;
  for (std::uint32_t e = 0, first = 0; e < s.experts; ++e) {
    std::uint32_t n = 0;
    for (std::uint32_t t = 0; t < tokens; ++t) {
      for (std::uint32_t k = 0; k < s.top_k; ++k) n += (t + k) % s.experts == e ? 1 : 0;
    }
    if (n > 0) groups.push_back({e, first, n});
    first += n;
  }
  const gpu::PassTokens tokens_in = make_tokens(shape, tokens);
  std::vector<double> step;
  std::vector<double> floor;
  Result<void> failed{};
  const auto until = Clock::now() + std::chrono::duration<double>(options.seconds_per_case);
  // The step and its floor in turn, so that a drift of the machine's speed meets both.
  for (std::uint64_t i = 1; failed && (i < 6 || Clock::now() < until); ++i) {
    gpu::PassTokens pass = tokens_in;
    step.push_back(us_of([&] {
      if (auto done = runner.run(PassNumber{i}, *sites, **exchange, pass); !done) failed = tl::unexpected(done.error());
    }));
    floor.push_back(us_of([&] {
      if (auto done = (*device)->run_experts(groups, in, out); !done) failed = done;
      std::memcpy(copy.data(), in.data(), in.size());
      std::memcpy(copy.data(), out.data(), out.size());
    }));
  }
  if (!failed) return tl::unexpected(failed.error());
  Row row;
  row.name = std::string(s.name) + " " + std::to_string(tokens) + " tokens";
  row.unit = "us";
  row.value = median(step);
  row.limit = median(floor);
  row.limit_name = "compute + 2 copies";
  row.ratio = row.value > 0 ? row.limit / row.value : 0;
  return row;
}

}  // namespace

Result<std::vector<Row>> bench_step(const Options& options) {
  const Shape shapes[] = {{"demo 256x512 E8 k2", 8, 2, 256, 512}, {"olmoe 2048x1024 E64 k8", 64, 8, 2048, 1024}};
  std::vector<Row> rows;
  for (const Shape& shape : shapes) {
    for (const std::uint32_t tokens : {1U, 16U, 64U, 256U}) {
      const std::string name = std::string(shape.name) + " " + std::to_string(tokens) + " tokens";
      const auto wanted = [&](const std::string& part) { return name.find(part) != std::string::npos; };
      if (!options.only.empty() && std::none_of(options.only.begin(), options.only.end(), wanted)) continue;
      auto row = measure(shape, tokens, options);
      if (!row) return tl::unexpected(row.error());
      rows.push_back(std::move(*row));
    }
  }
  return rows;
}

}  // namespace troupe::bench
