#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "bench/bench.hpp"
#include "bench/control_peers.hpp"
#include "cluster/wire.hpp"

namespace troupe::bench {
namespace {

using cluster::CurveKeys;
using cluster::Wire;

/// One-way messages of which the receiver answers the last. At most two windows are under way: fewer than the
/// high-water mark.
constexpr int kWindow = 1'000;
constexpr std::chrono::seconds kDeadline{10};
/// Each rate is the best of so many slices, taken in turn with its limits: other programs slow down a slice, never
/// speed it up.
constexpr int kSlices = 3;

/// Counts what comes back, and lets a sender wait for it.
class Counter {
 public:
  void add() {
    const std::lock_guard lock(mutex_);
    ++count_;
    come_.notify_one();
  }
  bool wait_for(std::uint64_t count) {
    std::unique_lock lock(mutex_);
    return come_.wait_for(lock, kDeadline, [&] { return count_ >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable come_;
  std::uint64_t count_ = 0;
};

messages::Frame frame_of(messages::Payload payload) {
  messages::Frame frame;
  frame.envelope.from = "n1";
  frame.envelope.to = "membership";
  frame.envelope.incarnation = Incarnation{1};
  frame.envelope.view = View{1};
  frame.envelope.epoch = Epoch{1};
  frame.payload = std::move(payload);
  return frame;
}

/// A frame of kMessageBytes: `about` tells a question (answered) from a one-way message.
messages::Frame message(const std::string& about) {
  auto frame = frame_of(messages::Reject{about, 0, std::string(kMessageBytes / 2, 'x')});
  auto& text = std::get<messages::Reject>(frame.payload).message;
  frame.envelope.sequence = 1'000'000;  // of usual length; the wire fills in its own
  text.resize(text.size() + kMessageBytes - messages::encode_frame(frame).size());
  return frame;
}

/// The process at the other end: answers questions with a message of the same size, and each window's last one-way
/// message.
void serve(const CurveKeys& keys, const std::string& client_key, const Tell& tell) {
  cluster::WireOptions options;
  options.self = "server";
  options.keys = keys;
  if (!client_key.empty()) options.allowed_keys = {{"n1", client_key}};
  std::atomic<Wire*> wire{nullptr};
  auto answer = message("answer");
  answer.envelope.from = "server";
  std::uint64_t one_way = 0;
  auto started = Wire::start(options, [&](const messages::Frame& frame, const cluster::PeerHandle& from) {
    const bool question = std::get<messages::Reject>(frame.payload).about == "question";
    if (!question && ++one_way % kWindow != 0) return;
    wire.wait(nullptr);
    (void)wire.load()->reply(from, answer);
  });
  if (!started) return tell("");
  wire = started->get();
  wire.notify_all();
  tell((*started)->endpoint());
  wait_to_be_killed();
}

Result<double> wire_round_trips(Wire& wire, Counter& counter, std::uint64_t& answers, double seconds) {
  const auto question = message("question");
  return rate_over(seconds, 1, [&]() -> Result<void> {
    if (auto sent = wire.send("server", question); !sent) return sent;
    if (counter.wait_for(++answers)) return {};
    return fail(ErrorCode::kDeadline, "bench control: the peer process gave no answer in 10 s");
  });
}

Result<double> wire_one_way(Wire& wire, Counter& counter, std::uint64_t& answers, double seconds) {
  const auto telling = message("telling");
  const auto before = answers;
  auto rate = rate_over(seconds, kWindow, [&]() -> Result<void> {
    for (int i = 0; i < kWindow; ++i) {
      if (auto sent = wire.send("server", telling); !sent) return sent;
    }
    // One window may still be under way.
    if (++answers == before + 1 || counter.wait_for(answers - 1)) return {};
    return fail(ErrorCode::kDeadline, "bench control: the peer process stopped reading");
  });
  if (!counter.wait_for(answers)) return fail(ErrorCode::kDeadline, "bench control: the peer process stopped reading");
  return rate;
}

/// Troupe's wire between two processes.
Result<Rates> wire_rates(bool curve, double seconds) {
  const CurveKeys server = curve ? cluster::make_curve_keys() : CurveKeys{};
  const CurveKeys client = curve ? cluster::make_curve_keys() : CurveKeys{};
  auto child = Child::start([&](const Tell& tell) { serve(server, client.public_key, tell); });
  if (!child) return tl::unexpected<Error>(child.error());
  Counter counter;
  cluster::WireOptions options;
  options.self = "n1";
  options.listen = false;
  options.keys = client;
  auto wire = Wire::start(options, [&](const messages::Frame&, const cluster::PeerHandle&) { counter.add(); });
  if (!wire) return tl::unexpected<Error>(wire.error());
  if (auto done = (*wire)->connect("server", (*child)->told(), server.public_key); !done) {
    return tl::unexpected<Error>(done.error());
  }
  std::uint64_t answers = 0;
  // The first one waits for the handshake.
  if (auto first = wire_round_trips(**wire, counter, answers, 0); !first) return tl::unexpected<Error>(first.error());
  auto trips = wire_round_trips(**wire, counter, answers, seconds);
  if (!trips) return tl::unexpected<Error>(trips.error());
  auto one_way = wire_one_way(**wire, counter, answers, seconds);
  if (!one_way) return tl::unexpected<Error>(one_way.error());
  return Rates{*trips, *one_way};
}

bool wanted(const Options& options, const std::string& name) {
  return options.only.empty() || std::any_of(options.only.begin(), options.only.end(), [&](const std::string& part) {
           return name.find(part) != std::string::npos;
         });
}

}  // namespace

Result<std::vector<Row>> bench_control(const Options& options) {
  const double seconds = options.seconds_per_case / kSlices;
  Rates tcp;
  Rates zmq_curve;
  Rates zmq_plain;
  Rates curve;
  Rates plain;
  for (int slice = 0; slice < kSlices; ++slice) {
    const auto best = [](Rates& so_far, const Result<Rates>& now) -> Result<void> {
      if (!now) return tl::unexpected<Error>(now.error());
      so_far.round_trips = std::max(so_far.round_trips, now->round_trips);
      so_far.one_way = std::max(so_far.one_way, now->one_way);
      return {};
    };
    if (auto done = best(tcp, tcp_rates(seconds)); !done) return tl::unexpected<Error>(done.error());
    if (auto done = best(curve, wire_rates(true, seconds)); !done) return tl::unexpected<Error>(done.error());
    if (auto done = best(zmq_curve, zmq_rates(true, seconds)); !done) return tl::unexpected<Error>(done.error());
    if (auto done = best(plain, wire_rates(false, seconds)); !done) return tl::unexpected<Error>(done.error());
    if (auto done = best(zmq_plain, zmq_rates(false, seconds)); !done) return tl::unexpected<Error>(done.error());
  }
  std::vector<Row> rows;
  const auto add = [&](const std::string& name, double value, double limit, const char* limit_name, double peer,
                       const char* peer_name) {
    if (wanted(options, name)) rows.push_back({name, value, "1/s", limit, limit_name, peer, peer_name, value / limit});
  };
  constexpr const char* kPingPong = "TCP ping-pong";
  constexpr const char* kWrites = "TCP, a write each";
  constexpr const char* kCurvePeer = "bare ZeroMQ, CURVE";
  constexpr const char* kPlainPeer = "bare ZeroMQ, plain";
  add("round trips, CURVE", curve.round_trips, tcp.round_trips, kPingPong, zmq_curve.round_trips, kCurvePeer);
  add("round trips, plain", plain.round_trips, tcp.round_trips, kPingPong, zmq_plain.round_trips, kPlainPeer);
  add("one-way, CURVE", curve.one_way, tcp.one_way, kWrites, zmq_curve.one_way, kCurvePeer);
  add("one-way, plain", plain.one_way, tcp.one_way, kWrites, zmq_plain.one_way, kPlainPeer);
  return rows;
}

}  // namespace troupe::bench
