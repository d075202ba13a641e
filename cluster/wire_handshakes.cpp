#include "cluster/wire_handshakes.hpp"

#include <utility>

#include <zmq.h>

namespace troupe::cluster {

int HandshakeWatch::events() {
  return ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED |
         ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;
}

std::optional<HandshakeWatch::Refusal> HandshakeWatch::on_event(std::uint16_t event, std::uint32_t value) {
  switch (event) {
    case ZMQ_EVENT_ACCEPTED:
      shaking_.insert(value);
      break;
    case ZMQ_EVENT_HANDSHAKE_SUCCEEDED:
      ++successes_;
      settle_group();
      break;
    // One thread of ZeroMQ's tells of a failure and then of the end of that connection, with nothing in between.
    case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL:
      why_ = Refusal::kBrokenOff;
      break;
    case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL:
      why_ = Refusal::kProtocol;
      break;
    case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH:
      why_ = Refusal::kKey;
      break;
    case ZMQ_EVENT_DISCONNECTED: {
      const auto why = std::exchange(why_, Refusal::kNoise);
      if (shaking_.erase(value) == 0) break;  // had succeeded
      settle_group();
      if (why == Refusal::kNoise && surplus_ > 0) {
        --surplus_;
        break;
      }
      return why;
    }
    default:
      break;
  }
  return std::nullopt;
}

void HandshakeWatch::settle_group() {
  if (successes_ < shaking_.size()) return;
  surplus_ += successes_ - shaking_.size();
  shaking_.clear();
  successes_ = 0;
}

}  // namespace troupe::cluster
