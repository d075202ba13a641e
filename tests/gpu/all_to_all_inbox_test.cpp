#define BOOST_TEST_MODULE all_to_all_inbox
#include <cstdlib>
#include <iostream>
#include <random>

#include <boost/test/unit_test.hpp>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gpu/cpu/inbox_channel.hpp"
#include "tests/gpu/all_to_all_support.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::gpu::cpu;
using namespace troupe::gpu::testing;

namespace {

constexpr InboxShape kShape{2, 4096};

struct Pair {
  std::shared_ptr<Inbox> inboxes[2] = {*Inbox::make_plain(kShape), *Inbox::make_plain(kShape)};
  std::shared_ptr<const Doorbell> bells[2] = {std::make_shared<const Doorbell>(*Doorbell::make()),
                                              std::make_shared<const Doorbell>(*Doorbell::make())};
  InboxChannel channels[2] = {{Rank(0), Rank(1), inboxes[0], inboxes[1], bells[1], Fd()},
                              {Rank(1), Rank(0), inboxes[1], inboxes[0], bells[0], Fd()}};
};

Fd memfd(std::size_t bytes, int seals) {
  Fd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  BOOST_REQUIRE(::ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0);
  BOOST_REQUIRE(::fcntl(fd.get(), F_ADD_SEALS, seals) == 0);
  return fd;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_memfd_that_its_owner_could_cut_is_refused) {
  auto whole = Inbox::open(memfd(kShape.total_bytes(), F_SEAL_SHRINK | F_SEAL_GROW), kShape);
  BOOST_TEST(whole.has_value());
  for (const int seals : {0, F_SEAL_GROW, F_SEAL_SHRINK}) {
    auto open = Inbox::open(memfd(kShape.total_bytes(), seals), kShape);
    BOOST_REQUIRE(!open);
    BOOST_TEST((open.error().code == ErrorCode::kRefused));
  }
  auto small = Inbox::open(memfd(kShape.total_bytes() - 4096, F_SEAL_SHRINK | F_SEAL_GROW), kShape);
  BOOST_REQUIRE(!small);
  BOOST_TEST((small.error().code == ErrorCode::kRefused));
  auto file = Inbox::open(Fd(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC)), kShape);
  BOOST_REQUIRE(!file);
  BOOST_TEST((file.error().code == ErrorCode::kRefused));
}

BOOST_AUTO_TEST_CASE(an_inbox_of_ours_cannot_be_resized_by_a_peer) {
  auto inbox = Inbox::make_shared(kShape);
  BOOST_REQUIRE(inbox);
  BOOST_TEST(::ftruncate((*inbox)->fd(), 0) == -1);
  BOOST_TEST(::ftruncate((*inbox)->fd(), 1 << 30) == -1);
}

BOOST_AUTO_TEST_CASE(a_doorbell_that_is_no_eventfd_is_refused) {
  int ends[2] = {-1, -1};
  BOOST_REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const Fd reader(ends[0]);
  auto bell = Doorbell::adopt(Fd(ends[1]));
  BOOST_REQUIRE(!bell);
  BOOST_TEST((bell.error().code == ErrorCode::kRefused));
}

BOOST_AUTO_TEST_CASE(impossible_shapes_are_refused_with_the_range) {
  for (const InboxShape shape :
       {InboxShape{0, 4096}, InboxShape{kMaxRanks + 1, 4096}, InboxShape{2, 4095}, InboxShape{2, kMaxInboxBytes + 1}}) {
    auto inbox = Inbox::make_plain(shape);
    BOOST_REQUIRE(!inbox);
    BOOST_TEST((inbox.error().code == ErrorCode::kBadInput));
  }
}

// Whatever a peer writes into its lane: an error or the bytes that lie in the inbox, never a read outside of it (which
// the address sanitizer would see), and never a loop without end.
BOOST_AUTO_TEST_CASE(a_lane_full_of_noise_is_an_error_not_a_crash) {
  std::uint64_t seed = 19;
  if (const char* given = std::getenv("TROUPE_TEST_SEED")) seed = std::strtoull(given, nullptr, 10);
  std::cout << "seed " << seed << "; replay: TROUPE_TEST_SEED=" << seed
            << " gpu_all_to_all_inbox_test --run_test='a_lane_full*'\n";
  std::mt19937_64 dice(seed);
  std::size_t errors = 0;
  std::size_t delivered = 0;
  for (int run = 0; run < 4000; ++run) {
    Pair pair;
    InboxChannel& victim = pair.channels[0];
    Lane& lane = pair.inboxes[0]->lane(1);
    const std::size_t sizes[] = {0, 100, 4096, 5000, 100'000};
    const std::vector<std::byte> block(sizes[dice() % 5]);
    const std::size_t recv_bytes = sizes[dice() % 5];
    BOOST_REQUIRE(victim.begin({1, tag(1)}, SendBlock{block, 0, {}}, recv_bytes));
    bool failed = false;
    for (int i = 0; i < 40 && !failed; ++i) {
      const auto word = [&]() -> std::uint64_t {
        switch (dice() % 6) {
          case 0:
            return dice();
          case 1:
            return make_commit(1, dice() % 20);
          case 2:
            return make_commit(dice() % 3, dice() % 200);
          case 3:
            return recv_bytes;
          case 4:
            return 1;
          default:
            return std::uint64_t{0} - dice() % 3;
        }
      };
      ChunkHeader& header = lane.headers[1][dice() % kPieces];
      // Mostly what passes the checks, so that the noise gets behind them.
      header.total = dice() % 4 == 0 ? word() : recv_bytes;
      header.pass = dice() % 8 == 0 ? word() : 1;
      header.layer_phase = dice() % 8 == 0 ? word() : 0;
      header.commit = dice() % 2 == 0 ? make_commit(1, static_cast<std::uint64_t>(i)) : word();
      if (dice() % 4 == 0) lane.taken = word();
      if (dice() % 8 == 0) {
        lane.farewell = static_cast<std::uint32_t>(word());
        lane.reason_bytes = static_cast<std::uint32_t>(word());
        for (auto& part : lane.reason) part = dice();
        const PeerEnd end = victim.peer_end();
        BOOST_TEST(end.reason.size() <= kReasonBytes);
      }
      auto moved = victim.progress();
      if (!moved) {
        failed = true;
        BOOST_TEST((moved.error().code == ErrorCode::kMismatch));
        BOOST_TEST(moved.error().message.find("rank 1") != std::string::npos);
      }
    }
    if (failed) ++errors;
    if (victim.received()) {
      ++delivered;
      BOOST_TEST(victim.block().size() == recv_bytes);
      std::size_t sum = 0;
      for (const std::byte byte : victim.block()) sum += std::to_integer<std::size_t>(byte);
      BOOST_TEST(sum == 0U);  // nobody wrote a payload
    }
  }
  BOOST_TEST(errors > 100U);
  BOOST_TEST(delivered > 20U);
}

BOOST_AUTO_TEST_CASE(the_first_last_words_stand_and_are_cut_to_their_room) {
  Pair pair;
  pair.channels[1].leave(Farewell::kAborted, std::string(1000, 'x') + "\n");
  pair.channels[1].leave(Farewell::kClosed, "later");
  const PeerEnd end = pair.channels[0].peer_end();
  BOOST_TEST((end.how == Farewell::kAborted));
  BOOST_TEST(end.reason == std::string(kReasonBytes, 'x'));
  BOOST_TEST((pair.channels[1].peer_end().how == Farewell::kNone));
}
