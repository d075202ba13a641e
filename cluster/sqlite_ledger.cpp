#include "cluster/sqlite_ledger.hpp"

#include <mutex>
#include <string>

#include <SQLiteCpp/SQLiteCpp.h>
#include <nlohmann/json.hpp>

namespace troupe::cluster {
namespace {

using nlohmann::json;

class SqliteLedger final : public actors::Ledger {
 public:
  explicit SqliteLedger(const std::filesystem::path& file)
      : file_(file), db_(file.string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE, 1000) {
    // The exclusive lock is held for the life of the connection: one coordinator per ledger.
    db_.exec("PRAGMA locking_mode = EXCLUSIVE");
    db_.exec("PRAGMA journal_mode = WAL");
    db_.exec("PRAGMA synchronous = FULL");
    db_.exec("BEGIN EXCLUSIVE");
    db_.exec("CREATE TABLE IF NOT EXISTS incarnations (incarnation INTEGER PRIMARY KEY, node TEXT NOT NULL, at TEXT NOT NULL)");
    db_.exec("CREATE TABLE IF NOT EXISTS views (view INTEGER PRIMARY KEY, members TEXT NOT NULL, at TEXT NOT NULL)");
    db_.exec("CREATE TABLE IF NOT EXISTS epochs (epoch INTEGER PRIMARY KEY, view INTEGER NOT NULL, replicas TEXT NOT NULL, at TEXT NOT NULL)");
    db_.exec("COMMIT");
  }

  Result<Last> last() override {
    return guarded([&] {
      Last last;
      last.incarnation = Incarnation{highest("SELECT coalesce(max(incarnation), 0) FROM incarnations")};
      last.view = View{highest("SELECT coalesce(max(view), 0) FROM views")};
      last.epoch = Epoch{highest("SELECT coalesce(max(epoch), 0) FROM epochs")};
      return last;
    });
  }

  Result<void> write_incarnation(const std::string& node, Incarnation incarnation) override {
    return write("INSERT INTO incarnations VALUES (?, ?, datetime('now'))", [&](SQLite::Statement& s) {
      s.bind(1, static_cast<std::int64_t>(incarnation.value));
      s.bind(2, node);
    });
  }

  Result<void> write_view(const messages::ViewPublished& view) override {
    json members = json::array();
    for (const messages::Member& m : view.members) {
      members.push_back({{"node", m.node}, {"node_id", m.node_id.value}, {"incarnation", m.incarnation.value}, {"gpus", m.gpus.size()}});
    }
    return write("INSERT INTO views VALUES (?, ?, datetime('now'))", [&](SQLite::Statement& s) {
      s.bind(1, static_cast<std::int64_t>(view.view.value));
      s.bind(2, members.dump());
    });
  }

  Result<void> write_epoch(const messages::EpochPublished& epoch) override {
    json replicas = json::array();
    for (const messages::ReplicaEntry& r : epoch.replicas) {
      replicas.push_back({r.expert.layer, r.expert.expert, r.gpu.node.value, r.gpu.gpu, r.slot, r.share});
    }
    return write("INSERT INTO epochs VALUES (?, ?, ?, datetime('now'))", [&](SQLite::Statement& s) {
      s.bind(1, static_cast<std::int64_t>(epoch.epoch.value));
      s.bind(2, static_cast<std::int64_t>(epoch.view.value));
      s.bind(3, replicas.dump());
    });
  }

 private:
  template <class Body>
  auto guarded(Body body) -> Result<decltype(body())> {
    const std::lock_guard lock(mutex_);
    try {
      return body();
    } catch (const std::exception& e) {
      return fail(ErrorCode::kIo, "ledger " + file_.string() + ": " + e.what());
    }
  }

  template <class Bind>
  Result<void> write(const char* sql, Bind bind) {
    auto done = guarded([&] {
      SQLite::Statement statement(db_, sql);
      bind(statement);
      return statement.exec();
    });
    if (!done) return tl::unexpected(done.error());
    return {};
  }

  std::uint64_t highest(const char* sql) {
    SQLite::Statement statement(db_, sql);
    statement.executeStep();
    return static_cast<std::uint64_t>(statement.getColumn(0).getInt64());
  }

  std::mutex mutex_;
  std::filesystem::path file_;
  SQLite::Database db_;
};

}  // namespace

Result<std::unique_ptr<actors::Ledger>> open_ledger(const std::filesystem::path& file) {
  try {
    return std::make_unique<SqliteLedger>(file);
  } catch (const SQLite::Exception& e) {
    if (e.getErrorCode() == 5 || e.getErrorCode() == 6) {  // SQLITE_BUSY, SQLITE_LOCKED
      return fail(ErrorCode::kRefused, "ledger " + file.string() + ": another coordinator has it open");
    }
    return fail(ErrorCode::kIo, "ledger " + file.string() + ": " + e.what());
  } catch (const std::exception& e) {
    return fail(ErrorCode::kIo, "ledger " + file.string() + ": " + e.what());
  }
}

}  // namespace troupe::cluster
