#define BOOST_TEST_MODULE messages_codec_property
#include <cmath>

#include <boost/test/unit_test.hpp>
#include <rapidcheck.h>
#include <rapidcheck/boost_test.h>

#include "tests/messages/samples.hpp"

// A failing property prints its seed; RC_PARAMS="seed=..." repeats it.

namespace troupe::messages {
namespace {

template <class T>
rc::Gen<T> any() {
  if constexpr (Described<T>) {
    return rc::gen::exec([] {
      T value;
      for_each_field<T>([&]<class M>(const Field<T, M>& each) { value.*(each.member) = *any<M>(); });
      return value;
    });
  } else if constexpr (std::is_same_v<T, double>) {
    return rc::gen::suchThat(rc::gen::arbitrary<double>(), [](double value) { return std::isfinite(value); });
  } else if constexpr (std::is_same_v<T, std::byte>) {
    return rc::gen::map(rc::gen::arbitrary<std::uint8_t>(), [](std::uint8_t value) { return std::byte{value}; });
  } else if constexpr (std::is_same_v<T, ExpertId>) {
    return rc::gen::construct<ExpertId>(any<std::uint32_t>(), any<std::uint32_t>());
  } else if constexpr (std::is_same_v<T, GpuId>) {
    return rc::gen::construct<GpuId>(any<NodeId>(), any<std::uint16_t>());
  } else if constexpr (requires { typename T::number_type; }) {
    return rc::gen::map(any<typename T::number_type>(), [](auto number) { return T{number}; });
  } else if constexpr (requires { typename T::value_type; } && !std::is_same_v<T, std::string>) {
    return rc::gen::container<T>(any<typename T::value_type>());
  } else if constexpr (std::is_integral_v<T>) {
    // Every width of number, not the small ones alone.
    return rc::gen::oneOf(rc::gen::arbitrary<T>(),
                          rc::gen::inRange<T>(std::numeric_limits<T>::min(), std::numeric_limits<T>::max()),
                          rc::gen::element(std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
  } else {
    return rc::gen::arbitrary<T>();
  }
}

template <std::size_t I = 0>
Payload any_payload(std::size_t index) {
  if constexpr (I + 1 < std::variant_size_v<Payload>) {
    if (index != I) return any_payload<I + 1>(index);
  }
  return *any<std::variant_alternative_t<I, Payload>>();
}

Frame any_frame() {
  Frame frame;
  frame.envelope = *any<Envelope>();
  frame.envelope.version = kWireVersion;
  frame.payload = any_payload(*rc::gen::inRange<std::size_t>(0, std::variant_size_v<Payload>));
  return frame;
}

RC_BOOST_PROP(any_frame_comes_back_as_it_went, ()) {
  const auto frame = any_frame();
  const auto back = decode_frame(encode_frame(frame));
  RC_ASSERT(back.has_value());
  RC_ASSERT(*back == frame);
}

RC_BOOST_PROP(any_message_alone_comes_back_as_it_went, ()) {
  const auto frame = any_frame();
  std::visit(
      [](const auto& message) {
        const auto back = decode<std::decay_t<decltype(message)>>(encode(message));
        RC_ASSERT(back.has_value());
        RC_ASSERT(*back == message);
      },
      frame.payload);
}

RC_BOOST_PROP(no_part_of_a_frame_is_a_frame, ()) {
  auto bytes = encode_frame(any_frame());
  bytes.resize(*rc::gen::inRange<std::size_t>(0, bytes.size()));
  RC_ASSERT(!decode_frame(bytes).has_value());
}

RC_BOOST_PROP(any_bytes_are_taken_or_refused_with_a_reason, ()) {
  const auto bytes = *any<std::vector<std::byte>>();
  const auto frame = decode_frame(bytes);
  if (frame) {
    RC_ASSERT(decode_frame(encode_frame(*frame)).has_value());
  } else {
    RC_ASSERT(frame.error().code != ErrorCode::kNone);
    RC_ASSERT(!frame.error().message.empty());
  }
}

}  // namespace
}  // namespace troupe::messages
