#include "scheduling/model_shape.hpp"

#include <limits>

namespace troupe::scheduling {
namespace {

/// A weight of 1 and rounding on top must not become infinite.
constexpr float kMaxRoutedScale = 1e30F;

tl::unexpected<Error> bad(const std::string& what) {
  return fail(ErrorCode::kBadInput, "model." + what);
}

}  // namespace

Result<void> check_shape(const ModelShape& shape) {
  const auto text = [](std::uint64_t value) { return std::to_string(value); };
  if (shape.layers == 0) return bad("layers = 0; set at least 1");
  if (shape.experts == 0) return bad("experts = 0; set at least 1");
  if (shape.experts > static_cast<std::uint32_t>(std::numeric_limits<std::int32_t>::max())) {
    return bad("experts = " + text(shape.experts) + "; ids of routes end at 2^31-1");
  }
  if (shape.d_model == 0) return bad("d_model = 0; set at least 1");
  if (shape.d_ff == 0) return bad("d_ff = 0; set at least 1");
  if (shape.top_k == 0 || shape.top_k > shape.experts) {
    return bad("top_k = " + text(shape.top_k) + " of " + text(shape.experts) + " experts; set 1 to " +
               text(shape.experts));
  }
  if (!(shape.routed_scale > 0.0F) || !(shape.routed_scale <= kMaxRoutedScale)) {
    return bad("routed_scale = " + std::to_string(shape.routed_scale) + "; set a number above 0, at most 1e30");
  }
  if (shape.gate != GateKind::kSigmoidGroup) return {};
  if (shape.groups == 0 || shape.experts % shape.groups != 0) {
    return bad("groups = " + text(shape.groups) + " does not divide " + text(shape.experts) + " experts");
  }
  if (shape.top_groups == 0 || shape.top_groups > shape.groups) {
    return bad("top_groups = " + text(shape.top_groups) + " of " + text(shape.groups) + " groups; set 1 to " +
               text(shape.groups));
  }
  const std::uint64_t per_group = shape.experts / shape.groups;
  if (shape.top_groups * per_group < shape.top_k) {
    return bad("top_groups = " + text(shape.top_groups) + " leaves " + text(shape.top_groups * per_group) +
               " experts to choose " + text(shape.top_k) + " from; set at least " +
               text((shape.top_k + per_group - 1) / per_group));
  }
  return {};
}

}  // namespace troupe::scheduling
