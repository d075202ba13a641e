#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpu/cpu/all_to_all_meeting.hpp"
#include "gpu/cpu/ucx_channel.hpp"

namespace troupe::gpu::cpu {

/// Both ends of a pair send Hello(agreement, nonce, proof). Who has both nonces knows the pair's session numbers, which
/// only the secret gives; Ready carries one, and so proves to the other side that this is no replay.
class UcxMeeting final : public Meeting, private UcxHelloReceiver {
 public:
  struct Plan {
    Rank self;
    Agreement agreement;
    std::vector<std::pair<Rank, std::string>> peers;  ///< ranks that UCX reaches, and their addresses
    std::size_t window_bytes = 0;
  };
  UcxMeeting(std::shared_ptr<UcxWorker> worker, Plan plan);
  ~UcxMeeting() override;

  Result<void> step() override;
  bool watch(std::vector<pollfd>& fds) override;
  void say_ready() override;
  void missing(bool ready, std::vector<std::uint32_t>& ranks) const override;
  void hand_over(std::vector<std::unique_ptr<Channel>>& channels) override;

 private:
  struct Peer {
    Rank rank;
    std::string address;
    std::unique_ptr<UcxChannel> channel;
    Nonce nonce{};
    std::optional<Nonce> their_nonce;
    int attempts = 0;
    bool ready_is_due = false;  ///< we said ready in a session that the peer has given up
  };

  void on_hello(const UcxHello& hello) override;
  Result<void> connect(Peer& peer);
  UcxChannel::Session session_with(const Peer& peer) const;

  const std::shared_ptr<UcxWorker> worker_;
  const Plan plan_;
  std::vector<Peer> peers_;
  bool said_ready_ = false;
  std::optional<Error> failure_;
};

}  // namespace troupe::gpu::cpu
