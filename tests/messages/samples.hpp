#pragma once

#include <cstddef>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "messages/envelope.hpp"

/// One telling frame per message, and an empty one: what golden vectors, truncations and mutations start from.
namespace troupe::messages::samples {

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

inline Envelope envelope() {
  Envelope envelope;
  envelope.from = "n1";
  envelope.to = "membership";
  envelope.incarnation = Incarnation{7};
  envelope.view = View{3};
  envelope.epoch = Epoch{300};
  envelope.sequence = 70'000;
  return envelope;
}

inline BulkAddress bulk_address() {
  return {"boot-id/4026531840", "troupe.n1.0", std::string("\x00\x01\xff ucx", 7)};
}

inline Member member(std::uint16_t number) {
  std::string name = "n";
  name += std::to_string(number);
  return {name,
          NodeId{number},
          Incarnation{40ULL + number},
          "tcp://127.0.0.1:7001",
          "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7",
          "tcp://127.0.0.1:7101",
          {bulk_address(), {}}};
}

/// Names are unique and lasting: they are the keys of the golden vectors.
inline std::vector<std::pair<std::string, Frame>> frames() {
  constexpr auto kMax64 = std::numeric_limits<std::uint64_t>::max();
  const RequestId request{0x0102030405060708ULL, 9};
  std::vector<std::pair<std::string, Frame>> all;
  const auto add = [&](std::string name, Payload payload) {
    all.emplace_back(std::move(name), Frame{envelope(), std::move(payload)});
  };
  add("Join", Join{"n1",
                   kMax64,
                   0x1122334455667788ULL,
                   "tcp://127.0.0.1:7001",
                   "",
                   "tcp://[::1]:7101",
                   {bulk_address(), {}},
                   4096});
  add("JoinAccepted", JoinAccepted{"n1", kMax64, NodeId{65535}, Incarnation{8}});
  add("Reject",
      Reject{"Join", static_cast<std::uint16_t>(ErrorCode::kMismatch), "max_tokens_per_pass = 64, ours is 32"});
  add("Leave", Leave{"n1", "drained"});
  add("ViewPublished", ViewPublished{View{4}, {member(0), member(1)}});
  add("EpochPublished",
      EpochPublished{Epoch{301}, View{4}, {{{0, 1}, {NodeId{0}, 1}, 2, 1.0}, {{60, 255}, {NodeId{1}, 0}, 0, 0.25}}});
  add("NodeReady", NodeReady{"n1", View{4}, Epoch{301}});
  add("ServingStarted", ServingStarted{View{4}, Epoch{301}});
  add("PassOpened", PassOpened{View{4}, PassNumber{1'000'000}, Rank{3}, Epoch{301}, 128});
  add("HeatReport", HeatReport{NodeId{1}, Incarnation{8}, 12, 256, {{{0, 1}, 200}, {{0, 5}, 312}}});
  add("Heartbeat", Heartbeat{"n1", Incarnation{8}, 99});
  add("Shutdown", Shutdown{"done"});
  add("Ping", Ping{kMax64});
  add("Pong", Pong{128});
  add("Submit", Submit{request,
                       5,
                       10,
                       2,
                       bytes_of<float>({0.5F, -1.0F, 2.0F, std::numeric_limits<float>::infinity()}),
                       {0, -1, 7, std::numeric_limits<std::int32_t>::min()},
                       {0.75F, 0.0F, 0.25F, -0.0F}});
  add("Answer", Answer{request,
                       5,
                       10,
                       2,
                       0,
                       "",
                       bytes_of<float>({1.0F, 2.0F, 3.0F, 4.0F}),
                       {kTokenExact, kTokenDropped | kTokenRerouted},
                       41,
                       42});
  add("DoorStatusAsked", DoorStatusAsked{17});
  DoorStatus status;
  status.cookie = 17;
  status.node = "n1";
  status.view = View{4};
  status.epoch = Epoch{301};
  status.passes = 1'000;
  status.refused_frames = 2;
  status.all_to_all_bytes = 1'048'576;
  status.all_to_all_ns = 5'000'000;
  status.step_ns = 9'000'000;
  status.step_time_ns = {100, 65'536};
  status.tokens_per_gpu = {12, 13};
  status.tokens_per_expert = {0, 1, 2, 3};
  status.arena_bytes = {1ULL << 37, 0};
  status.arena_used_bytes = {1ULL << 36, 0};
  status.tokens_per_gpu_layer = {6, 6, 7, 6};
  add("DoorStatus", std::move(status));
  // The empty form of whatever holds a list or text.
  add("Join/empty", Join{});
  add("ViewPublished/empty", ViewPublished{});
  add("EpochPublished/empty", EpochPublished{});
  add("HeatReport/empty", HeatReport{});
  add("Submit/empty", Submit{});
  add("Answer/empty", Answer{});
  add("DoorStatus/empty", DoorStatus{});
  all.emplace_back("Ping/no envelope", Frame{Envelope{}, Ping{}});
  return all;
}

/// Lets a failing check print what it got.
inline std::string hex(const std::vector<std::byte>& bytes) {
  std::string text;
  for (const auto byte : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    text.push_back(kDigits[std::to_integer<unsigned>(byte) >> 4]);
    text.push_back(kDigits[std::to_integer<unsigned>(byte) & 15U]);
  }
  return text;
}

inline std::vector<std::byte> unhex(std::string_view text) {
  std::vector<std::byte> bytes;
  unsigned value = 0;
  unsigned digits = 0;
  for (const char c : text) {
    if (c == ' ') continue;
    value = value * 16 + static_cast<unsigned>(c <= '9' ? c - '0' : c - 'a' + 10);
    if (++digits % 2 == 0) {
      bytes.push_back(static_cast<std::byte>(value));
      value = 0;
    }
  }
  return bytes;
}

}  // namespace troupe::messages::samples
