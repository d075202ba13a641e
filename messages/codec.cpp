#include "messages/codec.hpp"

#include "messages/codec_templates.hpp"
#include "messages/envelope.hpp"

namespace troupe::messages {

void detail::ByteSink::write(const char* data, std::size_t size) {
  const auto* first = reinterpret_cast<const std::byte*>(data);
  bytes.insert(bytes.end(), first, first + size);
}

#define TROUPE_CODEC(T)                                                  \
  template void detail::write_value<T>(Packer & packer, const T& value); \
  template bool detail::read_value<T>(Reader & reader, T & value);       \
  template std::vector<std::byte> encode<T>(const T& value);             \
  template Result<T> decode<T>(std::span<const std::byte> bytes, const CodecLimits& limits);

TROUPE_CODEC(Envelope)
TROUPE_CODEC(Join)
TROUPE_CODEC(JoinAccepted)
TROUPE_CODEC(Reject)
TROUPE_CODEC(Leave)
TROUPE_CODEC(ViewPublished)
TROUPE_CODEC(EpochPublished)
TROUPE_CODEC(NodeReady)
TROUPE_CODEC(ServingStarted)
TROUPE_CODEC(PassOpened)
TROUPE_CODEC(HeatReport)
TROUPE_CODEC(Heartbeat)
TROUPE_CODEC(Shutdown)
TROUPE_CODEC(Ping)
TROUPE_CODEC(Pong)
TROUPE_CODEC(Submit)
TROUPE_CODEC(Answer)
TROUPE_CODEC(DoorStatusAsked)
TROUPE_CODEC(DoorStatus)

#undef TROUPE_CODEC

}  // namespace troupe::messages
