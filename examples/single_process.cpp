// A whole cluster in one process: two nodes of two GPUs each, eight experts per layer, and one request through a door.
#include <chrono>
#include <cstdio>
#include <cstring>

#include "actors/local_cluster.hpp"

int main() {
  using namespace troupe;
  actors::LocalClusterOptions options;
  options.shape.layers = 2;
  options.shape.experts = 8;
  options.shape.top_k = 2;
  options.shape.d_model = 64;
  options.shape.d_ff = 128;
  options.nodes = 2;
  options.gpus_per_node = 2;
  auto cluster = actors::LocalCluster::start(options);
  if (!cluster) {
    std::fprintf(stderr, "%s\n", cluster.error().message.c_str());
    return 1;
  }

  // Sixteen tokens; the model's gate chooses their experts.
  messages::Submit submit;
  submit.request = {1, 1};
  submit.tokens = 16;
  std::vector<float> hidden(std::size_t{submit.tokens} * options.shape.d_model);
  for (std::size_t i = 0; i < hidden.size(); ++i) hidden[i] = static_cast<float>(i % 17) / 8.0F - 1.0F;
  submit.hidden.resize(hidden.size() * sizeof(float));
  std::memcpy(submit.hidden.data(), hidden.data(), submit.hidden.size());

  const auto answer = (*cluster)->ask(0, submit, std::chrono::seconds(10));
  if (!answer) {
    std::fprintf(stderr, "%s\n", answer.error().message.c_str());
    return 1;
  }
  std::memcpy(hidden.data(), answer->hidden.data(), answer->hidden.size());
  std::printf("%u tokens answered in passes %llu to %llu; the first value is %g\n", answer->tokens,
              static_cast<unsigned long long>(answer->first_pass), static_cast<unsigned long long>(answer->last_pass),
              static_cast<double>(hidden[0]));

  for (std::uint32_t node = 0; node < options.nodes; ++node) {
    const auto status = (*cluster)->status(node, std::chrono::seconds(10));
    if (!status) continue;
    for (const auto visits : status->tokens_per_gpu)
      std::printf("%s computed %llu token visits\n", status->node.c_str(), static_cast<unsigned long long>(visits));
  }
}
