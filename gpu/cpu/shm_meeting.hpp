#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpu/cpu/all_to_all_meeting.hpp"
#include "gpu/cpu/shm_socket.hpp"

namespace troupe::gpu::cpu {

/// A caller that has proved that it belongs to the cluster, for a view that is still to come here.
struct EarlyCaller {
  ShmSocket socket;
  Received introduction;
  Nonce theirs;
  Nonce ours;
};

/// The lasting part of a worker's shared memory transport: the socket that peers call. It is answered while a connect
/// is under way; meanwhile callers wait in its queue.
class ShmDoor {
 public:
  static Result<std::unique_ptr<ShmDoor>> open(const std::string& secret);
  const std::string& name() const { return name_; }

 private:
  friend class ShmMeeting;
  ShmDoor(ShmSocket listener, std::string name, const std::string& secret)
      : listener_(std::move(listener)), name_(std::move(name)), secret_(secret) {}

  ShmSocket listener_;
  std::string name_;
  Secret secret_;
  std::deque<EarlyCaller> early_;
};

/// Of each pair the higher rank calls the lower one:
///   caller: Hello(nonce)                        answerer: Challenge(nonce, proof)
///   caller: Introduce(agreement, proof) + inbox answerer: Welcome(agreement, proof) + inbox, or Refuse(why)
///   both:   Ready
/// The connection then stays open: its end tells of a peer's death. The lower rank calls the higher one too, and says
/// nothing: that tells it when nobody is there to call back.
class ShmMeeting final : public Meeting {
 public:
  struct Plan {
    Rank self;
    Agreement agreement;
    std::vector<std::pair<Rank, std::string>> peers;  ///< ranks that share memory with this one, and their sockets
    std::shared_ptr<Inbox> inbox;                     ///< made by make_shared
    std::shared_ptr<const Doorbell> bell;
  };
  ShmMeeting(ShmDoor& door, Plan plan);

  Result<void> step() override;
  bool watch(std::vector<pollfd>& fds) override;
  bool impatient() const override;
  void say_ready() override;
  void missing(bool ready, std::vector<std::uint32_t>& ranks) const override;
  void hand_over(std::vector<std::unique_ptr<Channel>>& channels) override;

 private:
  struct Peer {
    Rank rank;
    std::string name;
    bool known = false;
    bool ready = false;
    bool challenged = false;         ///< as a caller: the challenge was answered, a welcome is due
    std::optional<ShmSocket> link;   ///< the connection of the pair
    std::optional<ShmSocket> probe;  ///< our silent call to a higher rank
    Nonce nonce{};                   ///< of our call
    Nonce their_nonce{};
    std::shared_ptr<Inbox> inbox;
    std::shared_ptr<const Doorbell> bell;
  };
  struct Caller {
    ShmSocket socket;
    bool greeted = false;
    Nonce theirs{};
    Nonce ours{};
  };

  Result<void> answer_callers();
  Result<bool> answer(Caller& caller);  ///< false: done with it, or it is of no use
  Result<void> introduced(ShmSocket socket, Received introduction, const Nonce& theirs, const Nonce& ours);
  void refuse(const ShmSocket& socket, ErrorCode code, const std::string& why) const;
  Result<void> step_peer(Peer& peer);
  Result<void> call(Peer& peer);
  Result<void> hear(Peer& peer, Received received);
  Result<void> adopt(Peer& peer, Received& received) const;
  Proof prove(const char* role, Packet packet, const Nonce& caller, const Nonce& answerer) const;
  Packet introduction(PacketKind kind, const Peer& peer, const Nonce& caller, const Nonce& answerer) const;

  ShmDoor& door_;
  const Plan plan_;
  std::vector<Peer> peers_;
  std::deque<Caller> callers_;
};

}  // namespace troupe::gpu::cpu
