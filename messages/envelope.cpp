#include "messages/envelope.hpp"

#include <limits>
#include <new>
#include <type_traits>
#include <utility>

#include "messages/codec_messages.hpp"

namespace troupe::messages {

namespace {

constexpr std::uint32_t kFrameParts = 3;  // [envelope, payload name, payload]

// The version is the first field of the first part in every version of the wire, so it can be told before the rest is
// understood.
bool read_version(detail::Reader& reader, std::uint64_t& version) {
  std::uint32_t count = 0;
  if (!reader.open_array(count, 1) || !reader.open_array(count, 1)) return false;
  return reader.read_unsigned(version, std::numeric_limits<std::uint64_t>::max());
}

template <std::size_t I = 0>
bool read_payload(detail::Reader& reader, std::string_view name, Payload& payload) {
  if constexpr (I == std::variant_size_v<Payload>) {
    return reader.fail(ErrorCode::kBadMessage, "no message is called '" + detail::printable(name) + "'");
  } else {
    using Message = std::variant_alternative_t<I, Payload>;
    if (name != Message::kName) return read_payload<I + 1>(reader, name, payload);
    return detail::read_value(reader, payload.emplace<I>());
  }
}

bool read_frame(detail::Reader& reader, Frame& frame) {
  std::uint32_t parts = 0;
  if (!reader.open_array(parts, 1)) return false;
  if (parts != kFrameParts) {
    return reader.fail(ErrorCode::kBadMessage, "an array of " + std::to_string(parts) + ", but a frame has " +
                                                   std::to_string(kFrameParts) + " parts");
  }
  if (!detail::read_value(reader, frame.envelope)) return false;
  std::string name;
  if (!reader.read_string(name)) return reader.fail_in("payload name");
  if (!read_payload(reader, name, frame.payload)) return false;
  reader.close();
  return reader.expect_end();
}

}  // namespace

std::string_view payload_name(const Payload& payload) {
  return std::visit([](const auto& message) { return std::decay_t<decltype(message)>::kName; }, payload);
}

std::vector<std::byte> encode_frame(const Frame& frame) {
  detail::ByteSink sink;
  detail::Packer packer(sink);
  packer.pack_array(kFrameParts);
  detail::write_value(packer, frame.envelope);
  const auto name = payload_name(frame.payload);
  packer.pack_str(static_cast<std::uint32_t>(name.size()));
  packer.pack_str_body(name.data(), static_cast<std::uint32_t>(name.size()));
  std::visit([&](const auto& message) { detail::write_value(packer, message); }, frame.payload);
  return std::move(sink.bytes);
}

Result<Frame> decode_frame(std::span<const std::byte> bytes, const CodecLimits& limits) {
  if (auto fits = detail::check_size("frame", bytes.size(), limits); !fits) return tl::unexpected<Error>(fits.error());
  try {
    detail::Reader front(bytes, limits);
    std::uint64_t version = 0;
    if (!read_version(front, version)) {
      front.fail_in("frame");
      return tl::unexpected<Error>(front.error());
    }
    if (version != kWireVersion) {
      return fail(ErrorCode::kMismatch, "frame: wire version " + std::to_string(version) + ", ours is " +
                                            std::to_string(kWireVersion) + "; run the same release on both sides");
    }
    detail::Reader reader(bytes, limits);
    Frame frame;
    if (!read_frame(reader, frame)) {
      reader.fail_in("frame ");
      return tl::unexpected<Error>(reader.error());
    }
    return frame;
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kLimit, "no memory to decode a frame of " + std::to_string(bytes.size()) + " bytes");
  }
}

}  // namespace troupe::messages
