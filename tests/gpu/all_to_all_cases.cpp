#include "tests/gpu/all_to_all_cases.hpp"

#include <cstddef>
#include <iostream>
#include <random>

#include <boost/test/unit_test.hpp>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace troupe::gpu::testing {
namespace {

constexpr const char* kSecret = "the cluster's secret";

void all_well(const std::vector<std::string>& verdicts) {
  for (std::size_t r = 0; r < verdicts.size(); ++r) BOOST_TEST(verdicts[r] == "", "rank " << r << ": " << verdicts[r]);
}

std::string text_of(const Error& error) {
  return std::string(to_string(error.code)) + ": " + error.message;
}

/// What most ranks start with.
struct End {
  std::unique_ptr<BulkEndpoint> endpoint;
  std::vector<messages::BulkAddress> addresses;
  std::unique_ptr<AllToAll> all;
  std::string wrong;
};

End open(Child& child, const OptionsOf& options, const std::string& secret = kSecret) {
  End end;
  auto endpoint = make_bulk_endpoint(options(child.rank), secret);
  if (!endpoint) {
    end.wrong = "endpoint: " + text_of(endpoint.error());
    child.meet({});
    return end;
  }
  end.endpoint = std::move(*endpoint);
  end.addresses = child.meet(end.endpoint->address());
  return end;
}

void connect(End& end, Child& child, View view, Clock::time_point deadline = soon_enough()) {
  if (!end.wrong.empty()) return;
  auto all = end.endpoint->connect(view, Rank(child.rank), end.addresses, deadline);
  if (all) {
    end.all = std::move(*all);
  } else {
    end.wrong = "connect: " + text_of(all.error());
  }
}

void run_connected(std::uint32_t ranks, const OptionsOf& options, const std::function<std::string(AllToAll&)>& body) {
  Processes processes(ranks, [&](Child& child) -> std::string {
    End end = open(child, options);
    connect(end, child, View(1));
    return end.all ? body(*end.all) : end.wrong;
  });
  processes.introduce();
  all_well(processes.verdicts());
}

std::string must_contain(const Error& error, std::initializer_list<const char*> parts) {
  for (const char* part : parts)
    if (error.message.find(part) == std::string::npos) return "no '" + std::string(part) + "' in: " + text_of(error);
  return {};
}

Result<std::span<const std::span<const std::byte>>> exchange_nothing(AllToAll& all, std::uint64_t round,
                                                                     Clock::time_point deadline = soon_enough()) {
  return all.exchange(tag(round), std::vector<SendBlock>(all.ranks()), std::vector<std::size_t>(all.ranks(), 0),
                      deadline);
}

}  // namespace

void blocks_of_many_sizes_arrive(const OptionsOf& options) {
  run_connected(3, options, [](AllToAll& all) {
    std::mt19937_64 dice(7);
    std::string wrong;
    for (std::uint64_t round = 1; round <= 40 && wrong.empty(); ++round) {
      std::size_t bytes[3][3];
      for (auto& row : bytes)
        for (auto& cell : row) {
          const std::uint64_t draw = dice();
          // Nothing, a few bytes, some rows; now and then beyond the inbox.
          cell = draw % 5 == 0    ? 0
                 : draw % 13 == 0 ? (draw >> 8) % 9'000'000
                                  : (draw >> 8) % (draw % 3 == 0 ? 64 : 70'000);
        }
      wrong = exchange_and_check(all, round, [&](std::uint32_t from, std::uint32_t to) { return bytes[from][to]; });
    }
    return wrong;
  });
}

void rows_are_gathered(const OptionsOf& options) {
  run_connected(2, options, [](AllToAll& all) -> std::string {
    constexpr std::size_t kRowBytes = 8192;
    constexpr std::uint32_t kBaseRows = 300;
    const std::uint32_t self = all.rank().value;
    const auto base = make_block(self, 9, 1, kRowBytes * kBaseRows);
    for (const std::uint32_t count : {0U, 1U, 7U, 250U, 1024U}) {
      std::mt19937 dice(count);
      std::vector<std::uint32_t> rows(count);
      for (auto& row : rows) row = static_cast<std::uint32_t>(dice() % kBaseRows);
      const std::vector<SendBlock> sends(2, SendBlock{base, kRowBytes, rows});
      const std::vector<std::size_t> recv(2, rows.size() * kRowBytes);
      auto got = all.exchange(tag(1, count), sends, recv, soon_enough());
      if (!got) return text_of(got.error());
      for (std::uint32_t from = 0; from < 2; ++from)
        for (std::size_t i = 0; i < recv[from]; ++i)
          if ((*got)[from][i] != expected_byte(from, 9, 1, rows[i / kRowBytes] * kRowBytes + i % kRowBytes))
            return std::to_string(count) + " rows: byte " + std::to_string(i) + " from rank " + std::to_string(from);
    }
    return {};
  });
}

void zeros_arrive(const OptionsOf& options) {
  run_connected(3, options, [](AllToAll& all) {
    const std::function<std::size_t(std::uint32_t, std::uint32_t)> shapes[] = {
        [](std::uint32_t from, std::uint32_t) { return std::size_t{from == 1 ? 0U : 36'864U}; },
        [](std::uint32_t, std::uint32_t to) { return std::size_t{to == 2 ? 0U : 36'864U}; },
        [](std::uint32_t from, std::uint32_t to) { return std::size_t{from == to ? 0U : 36'864U}; },
        [](std::uint32_t, std::uint32_t) { return std::size_t{0}; },
        [](std::uint32_t from, std::uint32_t to) { return std::size_t{from == 0 && to == 1 ? 1U : 0U}; },
    };
    std::string wrong;
    std::uint64_t round = 0;
    for (int repeat = 0; repeat < 10; ++repeat)
      for (const auto& shape : shapes)
        if (wrong.empty()) wrong = exchange_and_check(all, ++round, shape);
    return wrong;
  });
}

void a_mismatch_names_both_sizes(const OptionsOf& options) {
  run_connected(2, options, [](AllToAll& all) -> std::string {
    // Rank 0 sends 36,864 bytes that rank 1 does not expect; the other way nothing goes.
    const auto block = make_block(0, 1, 1, 36'864);
    std::vector<SendBlock> sends(2);
    if (all.rank() == Rank(0)) sends[1].base = block;
    auto got = all.exchange(tag(7, 3, 2), sends, std::vector<std::size_t>(2, 0), soon_enough());
    if (all.rank() == Rank(0)) return {};  // may be done before rank 1 looks
    if (got) return "no error";
    if (got.error().code != ErrorCode::kMismatch) return "wrong code: " + text_of(got.error());
    return must_contain(got.error(), {"0 bytes", "36864 bytes", "rank 0", "rank 1", "step (7, 3) phase 2"});
  });
  run_connected(2, options, [](AllToAll& all) -> std::string {
    // The other way about, and beyond the inbox: rank 1 expects 36,864 bytes, then 20 MB, and gets nothing.
    for (const std::size_t expected : {std::size_t{36'864}, std::size_t{20'000'000}}) {
      std::vector<std::size_t> recv(2, 0);
      if (all.rank() == Rank(1)) recv[0] = expected;
      auto got = all.exchange(tag(1), std::vector<SendBlock>(2), recv, soon_enough());
      if (all.rank() == Rank(0)) return {};
      if (got) return "no error";
      if (got.error().code != ErrorCode::kMismatch) return "wrong code: " + text_of(got.error());
      const std::string both = std::to_string(expected) + " bytes";
      return must_contain(got.error(), {both.c_str(), " 0 bytes", "rank 0", "rank 1"});
    }
    return {};
  });
  run_connected(2, options, [](AllToAll& all) -> std::string {
    // Same size, other step.
    const auto block = make_block(0, 1, 1, 64);
    const std::vector<SendBlock> sends(2, SendBlock{block, 0, {}});
    auto got = all.exchange(tag(1, all.rank().value), sends, std::vector<std::size_t>(2, 64), soon_enough());
    if (got) return "no error";
    if (got.error().code != ErrorCode::kMismatch && got.error().code != ErrorCode::kUnavailable)
      return "wrong code: " + text_of(got.error());
    return got.error().code == ErrorCode::kMismatch ? must_contain(got.error(), {"step (1, 0)", "step (1, 1)"}) : "";
  });
}

void an_abort_reaches_all(const OptionsOf& options) {
  Processes processes(3, [&](Child& child) -> std::string {
    End end = open(child, options);
    connect(end, child, View(1));
    if (!end.all) return end.wrong;
    if (child.rank == 2) {
      // Takes no part. Aborted from here, without an exchange under way.
      child.hear();
      end.all->abort("node n3 drains\nnow");
      child.hear();
      return {};
    }
    // Rank 1 is aborted from a thread of its own as well, at about the same time.
    std::thread aborter;
    if (child.rank == 1)
      aborter = std::thread([&] {
        child.hear();
        end.all->abort("the view is over");
      });
    child.tell("waiting");
    auto got = exchange_nothing(*end.all, 1);
    if (aborter.joinable()) aborter.join();
    if (got) return "no error";
    if (got.error().code != ErrorCode::kAborted) return "wrong code: " + text_of(got.error());
    if (got.error().message.find("node n3 drains") == std::string::npos &&
        got.error().message.find("the view is over") == std::string::npos)
      return "no reason: " + text_of(got.error());
    auto again = exchange_nothing(*end.all, 2);
    return again || again.error().code != ErrorCode::kAborted ? "used again after an abort" : "";
  });
  processes.introduce();
  BOOST_TEST(processes.hear(0) == "waiting");
  BOOST_TEST(processes.hear(1) == "waiting");
  processes.tell(2, "abort");
  processes.tell(1, "abort");
  BOOST_TEST(processes.verdict(0) == "");
  BOOST_TEST(processes.verdict(1) == "");
  processes.tell(2, "end");
  BOOST_TEST(processes.verdict(2) == "");
}

void a_killed_rank_is_survived(const OptionsOf& options) {
  const auto segments = shared_segments();
  Processes processes(3, [&](Child& child) -> std::string {
    End end = open(child, options);
    if (!end.wrong.empty()) return end.wrong;
    // UCX keeps its connections to peers that stay, one each way.
    const std::size_t kept = options(child.rank).transport == BulkTransport::kShm ? 0 : 2;
    const std::size_t fds = count_fds() + kept;
    connect(end, child, View(1));
    if (!end.all) return end.wrong;
    // Blocks that take a while, so that the death falls into an exchange.
    std::string wrong;
    for (std::uint64_t round = 1; wrong.empty(); ++round) {
      wrong = exchange_and_check(*end.all, round, [](std::uint32_t, std::uint32_t) { return std::size_t{3} << 20; });
      if (round == 3) child.tell("busy");
    }
    const bool known =
        wrong.rfind("unavailable", 0) == 0 || wrong.rfind("aborted", 0) == 0 || wrong.rfind("deadline", 0) == 0;
    if (!known) return wrong;
    if (wrong.rfind("unavailable", 0) == 0 && wrong.find("rank 2") == std::string::npos &&
        wrong.find("closed") == std::string::npos)
      return "rank 2 is not named: " + wrong;
    end.all->abort("rank 2 died");
    child.tell("survived");
    child.hear();
    // The survivors' view. The old end goes while the new one is built.
    End next;
    next.addresses = {end.addresses[0], end.addresses[1]};
    next.endpoint = std::move(end.endpoint);
    std::unique_ptr<AllToAll> old = std::move(end.all);
    connect(next, child, View(2));
    if (!next.all) return "rebuild: " + next.wrong;
    old.reset();
    for (std::uint64_t round = 1; round <= 5; ++round) {
      wrong = exchange_and_check(*next.all, round, [](std::uint32_t, std::uint32_t) { return std::size_t{100'000}; });
      if (!wrong.empty()) return "after the rebuild: " + wrong;
    }
    // Both are through before either counts: a peer's end may still be closing.
    child.tell("through");
    child.hear();
    next.all.reset();
    return count_fds() <= fds ? "" : std::to_string(fds) + " descriptors became " + std::to_string(count_fds());
  });
  processes.introduce();
  for (std::uint32_t r = 0; r < 3; ++r) BOOST_TEST(processes.hear(r) == "busy");
  processes.signal(2, SIGKILL);
  for (const char* stage : {"survived", "through"}) {
    for (std::uint32_t r = 0; r < 2; ++r) {
      const std::string said = processes.hear(r);
      BOOST_TEST(said == stage, "rank " << r << ": " << said);
    }
    for (std::uint32_t r = 0; r < 2; ++r) processes.tell(r, "on");
  }
  BOOST_TEST(processes.verdict(0) == "");
  BOOST_TEST(processes.verdict(1) == "");
  BOOST_TEST(processes.verdict(2).find("killed by signal 9") != std::string::npos);
  BOOST_TEST(shared_segments() == segments, boost::test_tools::per_element());
}

void a_frozen_rank_is_named(const OptionsOf& options) {
  Processes processes(3, [&](Child& child) -> std::string {
    End end = open(child, options);
    connect(end, child, View(1));
    if (!end.all) return end.wrong;
    child.tell("connected");
    child.hear();
    auto got = exchange_nothing(*end.all, 1, Clock::now() + 300ms);
    if (got) return "no error";
    if (got.error().code != ErrorCode::kDeadline) return "wrong code: " + text_of(got.error());
    child.tell("late");
    child.hear();
    return must_contain(got.error(), {"rank 2 has not sent", "step (1, 0)", "view 1"});
  });
  processes.introduce();
  for (std::uint32_t r = 0; r < 3; ++r) BOOST_TEST(processes.hear(r) == "connected");
  processes.signal(2, SIGSTOP);
  for (std::uint32_t r = 0; r < 2; ++r) processes.tell(r, "go");
  for (std::uint32_t r = 0; r < 2; ++r) {
    const std::string said = processes.hear(r);
    BOOST_TEST(said == "late", "rank " << r << ": " << said);
  }
  for (std::uint32_t r = 0; r < 2; ++r) processes.tell(r, "end");
  BOOST_TEST(processes.verdict(0) == "");
  BOOST_TEST(processes.verdict(1) == "");
}

void another_secret_is_refused(const OptionsOf& options) {
  for (std::uint32_t stranger = 0; stranger < 2; ++stranger) {
    Processes processes(2, [&](Child& child) -> std::string {
      End end = open(child, options, child.rank == stranger ? "another secret" : kSecret);
      connect(end, child, View(1), Clock::now() + 500ms);
      if (end.all) return "connected with another secret";
      return end.wrong.find("refused") != std::string::npos || end.wrong.find("deadline") != std::string::npos ||
                     end.wrong.find("unavailable") != std::string::npos
                 ? ""
                 : end.wrong;
    });
    processes.introduce();
    all_well(processes.verdicts());
  }
}

void unequal_inbox_sizes_are_refused(const OptionsOf& options) {
  Processes processes(2, [&](Child& child) -> std::string {
    End end = open(child, [&](std::uint32_t rank) {
      BulkOptions own = options(rank);
      own.inbox_bytes = std::size_t{1} << (20 + rank);
      return own;
    });
    connect(end, child, View(1));
    if (end.all) return "connected";
    child.tell("refused");
    child.hear();
    return end.wrong.find("mismatch") != std::string::npos && end.wrong.find("inbox_bytes") != std::string::npos &&
                   end.wrong.find("1048576") != std::string::npos && end.wrong.find("2097152") != std::string::npos
               ? ""
               : end.wrong;
  });
  processes.introduce();
  for (std::uint32_t r = 0; r < 2; ++r) BOOST_TEST(processes.hear(r) == "refused");
  for (std::uint32_t r = 0; r < 2; ++r) processes.tell(r, "end");
  all_well(processes.verdicts());
}

void a_missing_rank_is_named(const OptionsOf& options) {
  for (const bool dead : {false, true}) {
    Processes processes(3, [&](Child& child) -> std::string {
      End end = open(child, options);
      child.tell("open");
      child.hear();
      if (child.rank == 1) return "";
      connect(end, child, View(1), Clock::now() + 500ms);
      if (end.all) return "connected without rank 1";
      return end.wrong.find("rank 1") != std::string::npos ? "" : end.wrong;
    });
    processes.introduce();
    for (std::uint32_t r = 0; r < 3; ++r) BOOST_TEST(processes.hear(r) == "open");
    if (dead) {
      processes.signal(1, SIGKILL);
      BOOST_TEST(processes.verdict(1) != "");
    }
    processes.tell(0, "go");
    processes.tell(2, "go");
    // A rank that learns it first may tell the other by going: that one names whom it lost.
    const std::string verdicts[] = {processes.verdict(0), processes.verdict(2)};
    for (const auto& verdict : verdicts)
      BOOST_TEST((verdict == "" || verdict.find("unavailable") != std::string::npos), verdict);
    BOOST_TEST((verdicts[0] == "" || verdicts[1] == ""));
    if (!dead) processes.tell(1, "go");
  }
}

void an_older_view_is_refused(const OptionsOf& options) {
  // In both directions of the call: who is behind learns it, and gets into the newer view with the peer that waits
  // there.
  for (std::uint32_t behind = 0; behind < 2; ++behind) {
    Processes processes(2, [&](Child& child) -> std::string {
      End end = open(child, options);
      if (child.rank == behind) {
        child.hear();
        connect(end, child, View(4));
        if (end.all) return "connected for an older view";
        if (end.wrong.find("stale") == std::string::npos) return end.wrong;
        end.wrong.clear();
      }
      child.tell("next");
      connect(end, child, View(6));
      if (!end.all) return end.wrong;
      std::string wrong =
          exchange_and_check(*end.all, 1, [](std::uint32_t, std::uint32_t) { return std::size_t{100}; });
      if (!wrong.empty()) return wrong;
      auto older = end.endpoint->connect(View(6), Rank(child.rank), end.addresses, soon_enough());
      return older || older.error().code != ErrorCode::kStale ? "connected for one view twice" : "";
    });
    processes.introduce();
    BOOST_TEST(processes.hear(1 - behind) == "next");
    processes.tell(behind, "go");
    BOOST_TEST(processes.hear(behind) == "next");
    all_well(processes.verdicts());
  }
}

void many_views_leave_nothing_behind(const OptionsOf& options, std::uint64_t views) {
  const auto segments = shared_segments();
  Processes processes(2, [&](Child& child) -> std::string {
    End end = open(child, options);
    std::size_t fds = 0;
    std::size_t maps = 0;
    for (std::uint64_t view = 1; view <= views; ++view) {
      connect(end, child, View(view));
      if (!end.all) return "view " + std::to_string(view) + ": " + end.wrong;
      std::string wrong =
          exchange_and_check(*end.all, 1, [](std::uint32_t, std::uint32_t) { return std::size_t{1000}; });
      if (!wrong.empty()) return "view " + std::to_string(view) + ": " + wrong;
      end.all.reset();
      if (view == views / 4) fds = count_fds(), maps = count_maps();
    }
    // UCX closes a connection when the peer has answered: a few may be under way.
    if (count_fds() > fds + 8) return std::to_string(fds) + " descriptors became " + std::to_string(count_fds());
    if (count_maps() > maps + 8) return std::to_string(maps) + " mappings became " + std::to_string(count_maps());
    return {};
  });
  processes.introduce();
  all_well(processes.verdicts());
  BOOST_TEST(shared_segments() == segments, boost::test_tools::per_element());
}

namespace {

/// Strangers on a process's TCP ports: noise, half a message, silence, a quick goodbye.
void call_ports(pid_t pid, std::mt19937_64& dice, std::vector<int>& held) {
  for (const std::uint16_t port : listening_ports(pid)) {
    for (int i = 0; i < 20; ++i) {
      const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      sockaddr_in to{};
      to.sin_family = AF_INET;
      to.sin_port = htons(port);
      to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      if (::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0) {
        std::vector<std::byte> noise(i % 5 == 0 ? 0 : 1 + dice() % 1024);
        for (auto& byte : noise) byte = static_cast<std::byte>(dice());
        [[maybe_unused]] const auto sent = ::send(fd, noise.data(), noise.size(), MSG_NOSIGNAL);
      }
      if (i % 4 == 0) {
        held.push_back(fd);
      } else {
        ::close(fd);
      }
    }
  }
}

}  // namespace

void noise_changes_nothing(const OptionsOf& options) {
  constexpr std::uint64_t kSeed = 37;
  std::cout << "noise seed " << kSeed << "\n";
  Processes processes(2, [&](Child& child) -> std::string {
    End end = open(child, options);
    for (std::uint64_t view = 1; view <= 3; ++view) {
      child.hear();
      connect(end, child, View(view));
      if (!end.all) return "view " + std::to_string(view) + ": " + end.wrong;
      child.tell("connected");
      child.hear();
      std::string wrong =
          exchange_and_check(*end.all, 1, [](std::uint32_t, std::uint32_t) { return std::size_t{200'000}; });
      if (!wrong.empty()) return wrong;
    }
    return {};
  });
  const auto addresses = processes.introduce();
  std::mt19937_64 dice(kSeed);
  std::vector<int> held;
  const auto call_all = [&] {
    for (std::uint32_t r = 0; r < processes.size(); ++r) call_ports(processes.pid(r), dice, held);
    for (const auto& address : addresses) {
      if (address.shm_name.empty()) continue;
      for (int i = 0; i < 60; ++i) {
        const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        sockaddr_un to{};
        to.sun_family = AF_UNIX;
        address.shm_name.copy(to.sun_path + 1, sizeof to.sun_path - 1);
        const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + address.shm_name.size());
        BOOST_TEST(::connect(fd, reinterpret_cast<sockaddr*>(&to), bytes) == 0);
        std::vector<std::byte> noise(dice() % 3 == 0 ? 376 : dice() % 1024);
        for (auto& byte : noise) byte = static_cast<std::byte>(dice());
        if (i % 4 != 0) [[maybe_unused]]
          const auto sent = ::send(fd, noise.data(), noise.size(), MSG_NOSIGNAL);
        if (i % 2 == 0) {
          held.push_back(fd);  // connected, and silent from now on
        } else {
          ::close(fd);
        }
      }
    }
  };
  for (int view = 1; view <= 3; ++view) {
    call_all();
    processes.tell(0, "connect");
    call_all();
    processes.tell(1, "connect");
    for (std::uint32_t r = 0; r < 2; ++r) {
      const std::string said = processes.hear(r);
      BOOST_TEST(said == "connected", "rank " << r << ": " << said);
    }
    call_all();
    for (std::uint32_t r = 0; r < 2; ++r) processes.tell(r, "exchange");
  }
  all_well(processes.verdicts());
  for (const int fd : held) ::close(fd);
}

}  // namespace troupe::gpu::testing
