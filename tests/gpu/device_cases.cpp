#include "tests/gpu/device_cases.hpp"

#include <cmath>
#include <random>
#include <stdexcept>

#include "gpu/bf16.hpp"

namespace troupe::gpu::test {

scheduling::ModelShape shape_of(std::uint32_t d_model, std::uint32_t d_ff, int weights, int transport) {
  scheduling::ModelShape shape;
  shape.d_model = d_model;
  shape.d_ff = d_ff;
  shape.weights = weights == bf16 ? scheduling::WeightType::kBf16 : scheduling::WeightType::kF32;
  shape.transport = transport == bf16 ? scheduling::TransportType::kBf16 : scheduling::TransportType::kF32;
  return shape;
}

std::string name_of(const scheduling::ModelShape& shape) {
  return std::to_string(shape.d_model) + " x " + std::to_string(shape.d_ff) + ", weights of " +
         std::to_string(bytes_of(shape.weights)) + " bytes, rows of " + std::to_string(bytes_of(shape.transport));
}

std::unique_ptr<cpu::CpuDevice> device_of(const scheduling::ModelShape& shape, std::uint32_t slots,
                                          std::uint32_t max_rows, const std::string& instruction_set) {
  auto device = cpu::CpuDevice::make(shape, {slots, max_rows}, instruction_set);
  if (!device) throw std::runtime_error(device.error().message);
  return std::move(*device);
}

std::vector<float> random_values(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<float> values(count);
  for (float& value : values)
    value = static_cast<float>(static_cast<std::int64_t>(random() >> 40U) - (1 << 23)) / 4194304.0F;
  return values;
}

std::vector<std::byte> random_rows(const scheduling::ModelShape& shape, std::uint32_t rows, std::uint64_t seed) {
  std::vector<std::byte> out(rows * shape.row_bytes());
  to_transport(shape.transport, random_values(std::size_t{rows} * shape.d_model, seed), out);
  return out;
}

std::vector<std::byte> rows_of(const scheduling::ModelShape& shape, std::span<const std::byte> rows,
                               std::uint32_t first, std::uint32_t count) {
  const auto part = rows.subspan(first * shape.row_bytes(), count * shape.row_bytes());
  return {part.begin(), part.end()};
}

std::vector<float> values_of(const scheduling::ModelShape& shape, std::span<const std::byte> rows) {
  std::vector<float> values(rows.size() / bytes_of(shape.transport));
  from_transport(shape.transport, rows, values);
  return values;
}

std::vector<std::byte> run_one(Device& device, const scheduling::ModelShape& shape, std::uint32_t slot,
                               std::span<const std::byte> in) {
  std::vector<std::byte> out(in.size());
  const ExpertRows group{slot, 0, static_cast<std::uint32_t>(in.size() / shape.row_bytes())};
  if (auto done = device.run_experts({&group, 1}, in, out); !done) throw std::runtime_error(done.error().message);
  return out;
}

std::vector<double> plain_swiglu(const scheduling::ModelShape& shape, ExpertId expert, const WeightSource& source,
                                 std::span<const std::byte> in) {
  using Matrix = WeightSource::Matrix;
  const std::size_t d = shape.d_model;
  const std::size_t f = shape.d_ff;
  std::vector<float> w1(f * d);
  std::vector<float> w3(f * d);
  std::vector<float> w2(d * f);
  const bool read = source.read(expert, Matrix::kW1, 0, shape.d_ff, w1) &&
                    source.read(expert, Matrix::kW3, 0, shape.d_ff, w3) &&
                    source.read(expert, Matrix::kW2, 0, shape.d_model, w2);
  if (!read) throw std::runtime_error("the source does not give the expert");
  const std::vector<float> x = values_of(shape, in);
  std::vector<double> y(x.size());
  std::vector<double> hidden(f);
  for (std::size_t r = 0; r < x.size() / d; ++r) {
    for (std::size_t u = 0; u < f; ++u) {
      double gate = 0;
      double up = 0;
      for (std::size_t k = 0; k < d; ++k) {
        gate += double{w1[u * d + k]} * double{x[r * d + k]};
        up += double{w3[u * d + k]} * double{x[r * d + k]};
      }
      hidden[u] = gate / (1 + std::exp(-gate)) * up;
    }
    for (std::size_t c = 0; c < d; ++c) {
      for (std::size_t u = 0; u < f; ++u) y[r * d + c] += double{w2[c * f + u]} * hidden[u];
    }
  }
  return y;
}

double relative_error(std::span<const double> expected, std::span<const float> actual) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference += std::pow(double{actual[i]} - expected[i], 2);
    norm += std::pow(expected[i], 2);
  }
  return std::sqrt(difference / norm);
}

}  // namespace troupe::gpu::test
