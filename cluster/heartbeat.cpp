#include <condition_variable>
#include <mutex>
#include <thread>

#include "cluster/wire.hpp"
#include "cluster/zmq_sockets.hpp"

namespace troupe::cluster {
namespace {

/// Beats wait in no queue: one that cannot be sent now is worth nothing later.
constexpr int kHighWaterMark = 4;
constexpr std::size_t kMaxFrameBytes = 4096;

class HeartbeatThread final : public HeartbeatSender {
 public:
  explicit HeartbeatThread(Options options) : options_(std::move(options)), socket_(context_, zmq::socket_type::dealer) {}
  ~HeartbeatThread() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  Result<void> begin() {
    try {
      zmq_sockets::set_limits(socket_, kMaxFrameBytes, kHighWaterMark);
      zmq_sockets::set_client_keys(socket_, options_.keys, options_.server_key);
      socket_.connect(options_.endpoint);
    } catch (const zmq::error_t& e) {
      return fail(ErrorCode::kIo, "heartbeats: cannot connect to " + options_.endpoint + ": " + e.what());
    }
    thread_ = std::thread([this] { run(); });
    return {};
  }

 private:
  void run() {
    messages::Frame frame;
    frame.envelope.from = options_.node;
    frame.envelope.to = "membership";
    frame.envelope.incarnation = options_.incarnation;
    std::unique_lock lock(mutex_);
    for (std::uint64_t beat = 1; !stop_; ++beat) {
      frame.payload = messages::Heartbeat{options_.node, options_.incarnation, beat};
      const auto bytes = messages::encode_frame(frame);
      try {
        (void)socket_.send(zmq::const_buffer(bytes.data(), bytes.size()), zmq::send_flags::dontwait);
        // Answers (a Reject of a coordinator that does not know us) are not for this thread; they must not pile up.
        zmq::message_t ignored;
        while (socket_.recv(ignored, zmq::recv_flags::dontwait)) {
        }
      } catch (const zmq::error_t&) {
        // The next beat tries again; that none arrives is what the coordinator notices.
      }
      wake_.wait_for(lock, options_.interval, [this] { return stop_; });
    }
  }

  Options options_;
  zmq::context_t context_{1};
  zmq::socket_t socket_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<HeartbeatSender>> HeartbeatSender::start(Options options) {
  auto sender = std::make_unique<HeartbeatThread>(std::move(options));
  if (auto done = sender->begin(); !done) return tl::unexpected(done.error());
  return sender;
}

}  // namespace troupe::cluster
