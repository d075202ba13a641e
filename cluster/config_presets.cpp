#include <array>

#include "cluster/config_keys.hpp"

namespace troupe::cluster {
namespace {

using scheduling::GateKind;
using scheduling::ModelShape;

ModelShape preset(std::string name, std::uint32_t layers, std::uint32_t experts, std::uint32_t top_k,
                  std::uint32_t d_model, std::uint32_t d_ff, GateKind gate) {
  ModelShape shape;
  shape.name = std::move(name);
  shape.layers = layers;
  shape.experts = experts;
  shape.top_k = top_k;
  shape.d_model = d_model;
  shape.d_ff = d_ff;
  shape.gate = gate;
  return shape;
}

// The numbers are those of the published models' own configuration files.
std::vector<ModelShape> make_presets() {
  std::vector<ModelShape> presets;
  presets.push_back(preset("mixtral-8x7b", 32, 8, 2, 4096, 14336, GateKind::kSoftmaxTopKRenorm));
  presets.push_back(preset("olmoe-7b", 16, 64, 8, 2048, 1024, GateKind::kSoftmaxTopK));
  presets.push_back(preset("qwen3-30b-a3b", 48, 128, 8, 2048, 768, GateKind::kSoftmaxTopKRenorm));
  // 61 layers, of which the first three are dense.
  presets.push_back(preset("deepseek-v3", 58, 256, 8, 7168, 2048, GateKind::kSigmoidGroup));
  presets.back().groups = 8;
  presets.back().top_groups = 4;
  presets.back().routed_scale = 2.5F;
  return presets;
}

const std::vector<ModelShape>& presets() {
  static const std::vector<ModelShape> all = make_presets();
  return all;
}

}  // namespace

const scheduling::ModelShape* find_preset(std::string_view name) {
  for (const ModelShape& shape : presets()) {
    if (shape.name == name) return &shape;
  }
  return nullptr;
}

std::span<const std::string_view> preset_names() {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> list;
    for (const ModelShape& shape : presets()) list.emplace_back(shape.name);
    return list;
  }();
  return names;
}

}  // namespace troupe::cluster
