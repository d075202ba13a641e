#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "cluster/wire.hpp"
#include "cluster/wire_address.hpp"
#include "cluster/zmq_sockets.hpp"

namespace troupe::cluster {
namespace {

constexpr int kHighWaterMark = 4;
constexpr std::size_t kMaxFrameBytes = 4096;

/// Shares nothing with the wire, not even ZeroMQ's context: whatever keeps the rest of the process busy, the beats go
/// on.
class HeartbeatThread final : public HeartbeatSender {
 public:
  explicit HeartbeatThread(Options options)
      : options_(std::move(options)), socket_(context_, zmq::socket_type::dealer) {}
  ~HeartbeatThread() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  HeartbeatThread(const HeartbeatThread&) = delete;
  HeartbeatThread& operator=(const HeartbeatThread&) = delete;

  /// Throws zmq::error_t, std::system_error.
  void begin() {
    zmq_sockets::set_limits(socket_, kMaxFrameBytes, kHighWaterMark);
    zmq_sockets::set_client_keys(socket_, options_.keys, options_.server_key);
    // Only a live connection takes beats: one that waited in a queue would tell of a time long past.
    socket_.set(zmq::sockopt::immediate, true);
    socket_.connect(options_.endpoint);
    thread_ = std::thread([this] { run(); });
  }

 private:
  void run() {
    auto next = std::chrono::steady_clock::now();
    std::unique_lock lock(mutex_);
    for (std::uint64_t beat = 1; !stop_; ++beat) {
      lock.unlock();
      send(beat);
      lock.lock();
      // On the beat of the clock rather than an interval after the last send. Beats missed by a machine that slept are
      // not made up for.
      next = std::max(next + options_.interval, std::chrono::steady_clock::now());
      wake_.wait_until(lock, next, [this] { return stop_; });
    }
  }

  void send(std::uint64_t beat) {
    messages::Frame frame;
    frame.envelope.from = options_.node;
    frame.envelope.to = "membership";
    frame.envelope.incarnation = options_.incarnation;
    frame.payload = messages::Heartbeat{options_.node, options_.incarnation, beat};
    const auto bytes = messages::encode_frame(frame);
    try {
      (void)socket_.send(zmq::const_buffer(bytes.data(), bytes.size()), zmq::send_flags::dontwait);
      // Answers (a Reject of a coordinator that does not know us) are not for this thread; they must not pile up.
      zmq::message_t ignored;
      for (int i = 0; i < kHighWaterMark && socket_.recv(ignored, zmq::recv_flags::dontwait); ++i) continue;
    } catch (const zmq::error_t&) {
      // The next beat tries again; that none arrives is what the coordinator notices.
    }
  }

  const Options options_;
  zmq::context_t context_{1};
  zmq::socket_t socket_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

Result<void> check(const HeartbeatSender::Options& options) {
  const auto host = endpoint_host(options.endpoint);
  if (!host) return tl::unexpected<Error>(host.error());
  if (options.interval < std::chrono::milliseconds{1}) {
    return fail(ErrorCode::kBadInput, "interval = " + std::to_string(options.interval.count()) + " ms, use at least 1");
  }
  if (options.keys.public_key.empty()) {
    if (options.server_key.empty() && is_loopback(*host)) return {};
    return fail(ErrorCode::kBadInput, "without CURVE keys they go to loopback only, not to " + options.endpoint);
  }
  if (!zmq_sockets::is_pair(options.keys)) return fail(ErrorCode::kBadInput, "the CURVE keys are no pair");
  if (!zmq_sockets::is_key(options.server_key))
    return fail(ErrorCode::kBadInput, "the coordinator's CURVE key is none");
  return {};
}

}  // namespace

Result<std::unique_ptr<HeartbeatSender>> HeartbeatSender::start(Options options) {
  const std::string where = "heartbeats of " + options.node;
  if (auto good = check(options); !good) return fail_in(where, good.error());
  try {
    auto sender = std::make_unique<HeartbeatThread>(std::move(options));
    sender->begin();
    return sender;
  } catch (const zmq::error_t& error) {
    return fail(ErrorCode::kIo, where + ": " + error.what());
  } catch (const std::system_error& error) {
    return fail(ErrorCode::kIo, where + ": no thread: " + error.what());
  }
}

}  // namespace troupe::cluster
