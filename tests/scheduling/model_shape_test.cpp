#define BOOST_TEST_MODULE scheduling_model_shape
#include "scheduling/model_shape.hpp"

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

namespace troupe::scheduling {

BOOST_AUTO_TEST_CASE(sizes_follow_from_the_shape) {
  ModelShape shape;
  shape.d_model = 64;
  shape.d_ff = 128;
  BOOST_TEST(shape.expert_parameters() == 3U * 64 * 128);
  BOOST_TEST(shape.expert_bytes() == 3U * 64 * 128 * 2);
  BOOST_TEST(shape.row_bytes() == 128U);
  shape.weights = WeightType::kF32;
  shape.transport = TransportType::kF32;
  BOOST_TEST(shape.expert_bytes() == 3U * 64 * 128 * 4);
  BOOST_TEST(shape.row_bytes() == 256U);
}

BOOST_AUTO_TEST_CASE(shapes_without_sense_are_refused_by_field) {
  struct Row {
    std::string field;
    std::function<void(ModelShape&)> change;
  };
  const std::vector<Row> table = {
      {"model.layers", [](ModelShape& s) { s.layers = 0; }},
      {"model.experts", [](ModelShape& s) { s.experts = 0; }},
      {"model.experts", [](ModelShape& s) { s.experts = 0x80000000U; }},
      {"model.d_model", [](ModelShape& s) { s.d_model = 0; }},
      {"model.d_ff", [](ModelShape& s) { s.d_ff = 0; }},
      {"model.top_k", [](ModelShape& s) { s.top_k = 0; }},
      {"model.top_k", [](ModelShape& s) { s.top_k = 9; }},
      {"model.routed_scale", [](ModelShape& s) { s.routed_scale = 0; }},
      {"model.routed_scale", [](ModelShape& s) { s.routed_scale = std::numeric_limits<float>::quiet_NaN(); }},
      {"model.routed_scale", [](ModelShape& s) { s.routed_scale = std::numeric_limits<float>::infinity(); }},
      {"model.groups", [](ModelShape& s) { s.groups = 0; }},
      {"model.groups", [](ModelShape& s) { s.groups = 3; }},
      {"model.top_groups", [](ModelShape& s) { s.top_groups = 0; }},
      {"model.top_groups", [](ModelShape& s) { s.top_groups = 5; }},
      {"model.top_groups", [](ModelShape& s) { s.top_k = 3; }},
  };
  ModelShape good;
  good.gate = GateKind::kSigmoidGroup;
  good.groups = 4;
  good.top_groups = 1;
  BOOST_REQUIRE(check_shape(good).has_value());
  BOOST_REQUIRE(check_shape(ModelShape{}).has_value());
  for (const Row& row : table) {
    ModelShape shape = good;
    row.change(shape);
    const auto checked = check_shape(shape);
    BOOST_REQUIRE(!checked.has_value());
    BOOST_TEST(checked.error().message.starts_with(row.field),
               checked.error().message << " should begin with " << row.field);
  }
}

BOOST_AUTO_TEST_CASE(groups_of_other_gates_do_not_matter) {
  ModelShape shape;
  shape.groups = 3;
  shape.top_groups = 7;
  BOOST_TEST(check_shape(shape).has_value());
}

}  // namespace troupe::scheduling
