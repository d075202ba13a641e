#include "gpu/reference.hpp"

#include <algorithm>
#include <cstring>

#include "gpu/bf16.hpp"

namespace troupe::gpu {

Result<std::vector<std::uint8_t>> run_reference(const scheduling::ModelShape& shape, const WeightSource& weights,
                                                PassTokens& tokens, const ReferenceOptions& options) {
  const std::size_t n = tokens.tokens;
  const std::size_t k = shape.top_k;
  const std::size_t row_bytes = shape.row_bytes();
  auto made = make_cpu_device(shape, DeviceOptions{1, options.rows_per_call});
  if (!made) return fail_in("reference", made.error());
  Device& device = **made;

  std::vector<std::uint8_t> flags(n, 0);
  std::vector<std::byte> normed(n * row_bytes);
  std::vector<std::byte> results(n * k * row_bytes);
  std::vector<std::byte> in;
  std::vector<std::byte> out;
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    device.rms_norm(tokens.tokens, tokens.hidden, normed);

    const std::size_t first = layer * n * k;
    scheduling::Routes routes =
        scheduling::route_by_client(shape, tokens.tokens, std::span(tokens.route_ids).subspan(first, n * k),
                                    std::span(tokens.route_weights).subspan(first, n * k));
    if (std::find(tokens.client_routed.begin(), tokens.client_routed.end(), 0) != tokens.client_routed.end()) {
      if (auto done = device.load_gate(layer, weights); !done) return tl::unexpected(done.error());
      std::vector<float> row(shape.d_model);
      std::vector<float> logits(shape.experts);
      for (std::size_t t = 0; t < n; ++t) {
        if (tokens.client_routed[t] != 0) continue;
        from_transport(shape.transport, std::span(normed).subspan(t * row_bytes, row_bytes), row);
        if (auto done = device.run_gate(layer, 1, row, logits); !done) return tl::unexpected(done.error());
        const scheduling::Routes one = scheduling::route_by_gate(shape, 1, logits, device.gate_bias(layer));
        std::copy_n(one.ids.begin(), k, routes.ids.begin() + static_cast<std::ptrdiff_t>(t * k));
        std::copy_n(one.weights.begin(), k, routes.weights.begin() + static_cast<std::ptrdiff_t>(t * k));
        routes.flags[t] = one.flags[0];
      }
    }
    for (std::size_t t = 0; t < n; ++t) flags[t] = static_cast<std::uint8_t>(flags[t] | routes.flags[t]);

    // Visits of each expert, as indices into [tokens x top_k].
    std::vector<std::vector<std::size_t>> visits(shape.experts);
    std::vector<const std::byte*> parts(n * k, nullptr);
    for (std::size_t i = 0; i < n * k; ++i) {
      if (routes.ids[i] < 0) continue;
      visits[static_cast<std::size_t>(routes.ids[i])].push_back(i);
      parts[i] = results.data() + i * row_bytes;
    }
    for (std::uint32_t expert = 0; expert < shape.experts; ++expert) {
      if (options.cancelled && options.cancelled()) return fail(ErrorCode::kAborted, "reference: stopped");
      if (options.progress) {
        options.progress((layer + static_cast<double>(expert) / shape.experts) / static_cast<double>(shape.layers));
      }
      const std::vector<std::size_t>& mine = visits[expert];
      if (mine.empty()) continue;
      if (auto done = device.load_expert(0, ExpertId{layer, expert}, weights); !done)
        return fail_in("reference", done.error());
      for (std::size_t begin = 0; begin < mine.size(); begin += options.rows_per_call) {
        const std::size_t rows = std::min<std::size_t>(options.rows_per_call, mine.size() - begin);
        in.resize(rows * row_bytes);
        out.resize(rows * row_bytes);
        for (std::size_t i = 0; i < rows; ++i) {
          std::memcpy(in.data() + i * row_bytes, normed.data() + mine[begin + i] / k * row_bytes, row_bytes);
        }
        const ExpertRows group{0, 0, static_cast<std::uint32_t>(rows)};
        if (auto done = device.run_experts(std::span(&group, 1), in, out); !done)
          return fail_in("reference", done.error());
        for (std::size_t i = 0; i < rows; ++i) {
          std::memcpy(results.data() + mine[begin + i] * row_bytes, out.data() + i * row_bytes, row_bytes);
        }
      }
      device.release_slot(0);
    }
    device.combine(tokens.tokens, shape.top_k, parts, routes.weights, tokens.hidden);
  }
  if (options.progress) options.progress(1.0);
  return flags;
}

}  // namespace troupe::gpu
