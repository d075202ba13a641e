#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <cblas.h>

#include "bench/bench.hpp"
#include "bench/limits.hpp"
#include "gpu/bf16.hpp"
#include "gpu/cpu/memory_available.hpp"
#include "gpu/device.hpp"
#include "scheduling/model_shape.hpp"

/// Expert compute of the CPU device on one core: bf16 weights of four models' shapes, 1 to 256 rows.
///
/// The limit is the lower of two, measured beside each repetition: the peak of fused multiply-adds, and the reading of
/// all weights once at memory speed. The peer does the same three products in f32, as OpenBLAS has no bf16 of the kind
/// (f32 sums over exact products); so it reads twice the bytes, which counts where the memory is the limit. Times are
/// the thread's own.
namespace troupe::bench {
namespace {

struct Model {
  const char* name;
  std::uint32_t d_model;
  std::uint32_t d_ff;
};

constexpr Model kModels[] = {
    {"mixtral", 4096, 14336}, {"olmoe", 2048, 1024}, {"qwen3-30b-a3b", 2048, 768}, {"deepseek-v3", 7168, 2048}};
constexpr std::uint32_t kRows[] = {1, 4, 16, 64, 256};
constexpr std::uint32_t kMaxRows = 256;

/// Experts are used in turn, so many that none is still in a cache when its turn comes, as in a layer that serves.
constexpr std::size_t kWeightsInTurn = std::size_t{128} << 20U;
constexpr int kLeastRepetitions = 3;
constexpr int kMostRepetitions = 41;

scheduling::ModelShape shape_of(const Model& model) {
  scheduling::ModelShape shape;
  shape.name = model.name;
  shape.d_model = model.d_model;
  shape.d_ff = model.d_ff;
  shape.experts = static_cast<std::uint32_t>((kWeightsInTurn + shape.expert_bytes() - 1) / shape.expert_bytes());
  return shape;
}

std::string case_name(const Model& model, std::uint32_t rows) {
  return std::string("expert ") + model.name + " " + std::to_string(rows) + (rows == 1 ? " row" : " rows");
}

bool wanted(const Options& options, const std::string& name) {
  return options.only.empty() || std::any_of(options.only.begin(), options.only.end(), [&](const std::string& part) {
           return name.find(part) != std::string::npos;
         });
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// Rows of values in -1..1; which ones is of no importance.
std::vector<float> some_values(std::size_t count) {
  std::vector<float> values(count);
  std::uint32_t state = 1;
  for (float& value : values) {
    state = state * 1664525U + 1013904223U;
    value = static_cast<float>(static_cast<std::int32_t>(state)) / 2147483648.0F;
  }
  return values;
}

/// The same products by OpenBLAS.
class Peer {
 public:
  explicit Peer(std::size_t most_parameters)
      : weights_(most_parameters, 0.01F), x_(some_values(kMaxRows * std::size_t{8192})) {
    ::openblas_set_num_threads(1);
  }

  static const char* name(std::uint32_t rows) { return rows == 1 ? "OpenBLAS sgemv, f32" : "OpenBLAS sgemm, f32"; }

  void run(const scheduling::ModelShape& shape, std::uint32_t rows) {
    const std::size_t matrix = std::size_t{shape.d_model} * shape.d_ff;
    if ((turn_ + 1) * 3 * matrix > weights_.size()) turn_ = 0;
    const float* const weights = weights_.data() + turn_ * 3 * matrix;
    ++turn_;
    gate_.resize(std::size_t{rows} * shape.d_ff);
    up_.resize(gate_.size());
    y_.resize(std::size_t{rows} * shape.d_model);
    product(rows, shape.d_ff, shape.d_model, x_.data(), weights, gate_.data());
    product(rows, shape.d_ff, shape.d_model, x_.data(), weights + matrix, up_.data());
    product(rows, shape.d_model, shape.d_ff, gate_.data(), weights + 2 * matrix, y_.data());
  }

 private:
  /// y [rows x outer] = x [rows x inner] times the transpose of w [outer x inner].
  static void product(std::uint32_t rows, std::uint32_t outer, std::uint32_t inner, const float* x, const float* w,
                      float* y) {
    const auto m = static_cast<blasint>(rows);
    const auto n = static_cast<blasint>(outer);
    const auto k = static_cast<blasint>(inner);
    if (rows == 1) {
      ::cblas_sgemv(CblasRowMajor, CblasNoTrans, n, k, 1.0F, w, k, x, 1, 0.0F, y, 1);
    } else {
      ::cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, 1.0F, x, k, w, k, 0.0F, y, n);
    }
  }

  std::vector<float> weights_;
  std::vector<float> x_;
  std::vector<float> gate_;
  std::vector<float> up_;
  std::vector<float> y_;
  std::size_t turn_ = 0;
};

/// The CPU device with a model's experts loaded.
struct Loaded {
  scheduling::ModelShape shape;
  std::unique_ptr<gpu::Device> device;
  std::vector<std::byte> in;
  std::vector<std::byte> out;
  std::uint32_t turn = 0;

  Result<void> run(std::uint32_t rows) {
    const gpu::ExpertRows group{turn, 0, rows};
    turn = (turn + 1) % shape.experts;
    const std::size_t bytes = rows * shape.row_bytes();
    return device->run_experts({&group, 1}, std::span(in).first(bytes), std::span(out).first(bytes));
  }
};

Result<Loaded> load(const Model& model) {
  Loaded loaded;
  loaded.shape = shape_of(model);
  auto device = gpu::make_cpu_device(loaded.shape, {loaded.shape.experts, kMaxRows});
  if (!device) return fail_in(model.name, device.error());
  loaded.device = std::move(*device);
  const auto weights = gpu::make_synthetic_weights(loaded.shape);
  for (std::uint32_t e = 0; e < loaded.shape.experts; ++e) {
    if (auto done = loaded.device->load_expert(e, {0, e}, *weights); !done) return fail_in(model.name, done.error());
  }
  loaded.in.resize(kMaxRows * loaded.shape.row_bytes());
  loaded.out.resize(loaded.in.size());
  gpu::to_transport(loaded.shape.transport, some_values(kMaxRows * std::size_t{model.d_model}), loaded.in);
  return loaded;
}

/// Seconds per call of `work`, which is called until `seconds` have passed.
template <class Work>
Result<double> time_of(double seconds, const Work& work) {
  const double start = thread_seconds();
  double took = 0;
  for (int calls = 1;; ++calls) {
    if (Result<void> done = work(); !done) return tl::unexpected(done.error());
    took = thread_seconds() - start;
    if (took >= seconds) return took / calls;
  }
}

Result<Row> run_case(const Options& options, const Limits& limits, const std::string& name, std::uint32_t rows,
                     Loaded& ours, Peer& peer) {
  const double flops = 2.0 * rows * static_cast<double>(ours.shape.expert_parameters());
  const double flops_per_byte = flops / static_cast<double>(ours.shape.expert_bytes());
  const double slice = options.seconds_per_case / 20;
  const auto measure = [&] {
    return std::pair(limits.fma_peak(slice / 4), limits.memory_read(slice / 4) * flops_per_byte);
  };

  std::vector<double> speeds;
  std::vector<double> peers;
  std::vector<double> peaks;
  std::vector<double> reads;
  std::vector<double> peak_ratios;
  std::vector<double> read_ratios;
  const double start = thread_seconds();
  if (auto warm = ours.run(rows); !warm) return tl::unexpected(warm.error());
  auto [peak, read] = measure();
  for (int i = 0; i < kMostRepetitions; ++i) {
    const auto took = time_of(slice, [&] { return ours.run(rows); });
    if (!took) return fail_in(name, took.error());
    const auto [next_peak, next_read] = measure();
    const auto peer_took = time_of(slice, [&]() -> Result<void> {
      peer.run(ours.shape, rows);
      return {};
    });
    speeds.push_back(1e-9 * flops / *took);
    peers.push_back(1e-9 * flops / *peer_took);
    peaks.push_back((peak + next_peak) / 2);
    reads.push_back((read + next_read) / 2);
    peak_ratios.push_back(speeds.back() / peaks.back());
    read_ratios.push_back(speeds.back() / reads.back());
    std::tie(peak, read) = measure();
    if (i + 1 >= kLeastRepetitions && thread_seconds() - start > 2.5 * options.seconds_per_case) break;
  }

  Row row;
  row.name = name;
  row.value = median(speeds);
  row.unit = "GFLOP/s";
  const bool memory_bound = median(reads) < median(peaks);
  row.limit = memory_bound ? median(reads) : median(peaks);
  row.limit_name = memory_bound ? "memory read" : "FMA peak";
  row.ratio = median(memory_bound ? read_ratios : peak_ratios);
  row.peer = median(peers);
  row.peer_name = Peer::name(rows);
  return row;
}

}  // namespace

Result<std::vector<Row>> bench_expert(const Options& options) {
  const auto any_case = [&](const Model& model) {
    return std::any_of(std::begin(kRows), std::end(kRows),
                       [&](std::uint32_t rows) { return wanted(options, case_name(model, rows)); });
  };
  std::size_t most_parameters = 0;
  std::size_t most_arena = 0;
  for (const Model& model : kModels) {
    if (!any_case(model)) continue;
    const scheduling::ModelShape shape = shape_of(model);
    most_parameters = std::max(most_parameters, shape.expert_parameters() * shape.experts);
    most_arena = std::max(most_arena, gpu::plan_cpu_arena(shape, {shape.experts, kMaxRows}).bytes);
  }
  std::vector<Row> rows;
  if (most_parameters == 0) return rows;
  const std::size_t needed = most_parameters * sizeof(float) + most_arena + (std::size_t{1} << 30U);
  if (const std::uint64_t there = gpu::cpu::available_memory_bytes(); there < needed) {
    return fail(ErrorCode::kIo, "bench expert: needs " + std::to_string(needed) + " bytes of memory, " +
                                    std::to_string(there) +
                                    " are available; choose cases of a smaller model, for instance 'olmoe'");
  }
  auto limits = Limits::make();
  if (!limits) return tl::unexpected(limits.error());
  Peer peer(most_parameters);
  for (const Model& model : kModels) {
    if (!any_case(model)) continue;
    auto loaded = load(model);
    if (!loaded) return tl::unexpected(loaded.error());
    for (const std::uint32_t n : kRows) {
      const std::string name = case_name(model, n);
      if (!wanted(options, name)) continue;
      auto row = run_case(options, **limits, name, n, *loaded, peer);
      if (!row) return tl::unexpected(row.error());
      rows.push_back(std::move(*row));
    }
  }
  return rows;
}

}  // namespace troupe::bench
