#include "actors/local_cluster.hpp"

#include <future>
#include <optional>
#include <utility>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/send.hpp>

#include "actors/asker.hpp"
#include "actors/directory.hpp"
#include "actors/local_messages.hpp"
#include "actors/membership.hpp"
#include "actors/memory_ledger.hpp"
#include "actors/node.hpp"
#include "actors/system.hpp"
#include "gpu/all_to_all.hpp"

namespace troupe::actors {
namespace {

constexpr std::chrono::milliseconds kStopTimeout{10000};

class LocalClusterImpl final : public LocalCluster {
 public:
  explicit LocalClusterImpl(const LocalClusterOptions& options)
      : options_(options), system_(std::make_unique<System>()) {}
  ~LocalClusterImpl() override;
  LocalClusterImpl(const LocalClusterImpl&) = delete;
  LocalClusterImpl& operator=(const LocalClusterImpl&) = delete;

  Result<void> begin();

  void submit(std::uint32_t node, messages::Submit submit, std::chrono::milliseconds timeout,
              OnAnswer on_answer) override {
    if (node >= nodes_.size()) {
      messages::Answer answer;
      answer.request = submit.request;
      answer.code = static_cast<std::uint16_t>(ErrorCode::kBadInput);
      answer.message = no_such_node(node);
      return on_answer(std::move(answer));
    }
    askers_[node]->ask(std::move(submit), timeout, std::move(on_answer));
  }

  Result<messages::Answer> ask(std::uint32_t node, messages::Submit request,
                               std::chrono::milliseconds timeout) override {
    auto promise = std::make_shared<std::promise<messages::Answer>>();
    auto future = promise->get_future();
    submit(node, std::move(request), timeout,
           [promise](messages::Answer answer) { promise->set_value(std::move(answer)); });
    messages::Answer answer = future.get();  // called back by `timeout` at the latest
    if (answer.code != 0) return fail(static_cast<ErrorCode>(answer.code), answer.message);
    return answer;
  }

  Result<messages::DoorStatus> status(std::uint32_t node, std::chrono::milliseconds timeout) override {
    if (node >= nodes_.size()) return fail(ErrorCode::kBadInput, no_such_node(node));
    auto promise = std::make_shared<std::promise<Result<messages::DoorStatus>>>();
    auto future = promise->get_future();
    askers_[node]->ask_status(
        0, timeout, [promise](Result<messages::DoorStatus> status) { promise->set_value(std::move(status)); });
    return future.get();
  }

 private:
  std::string no_such_node(std::uint32_t node) const {
    return "node " + std::to_string(node) + ": the cluster has " + std::to_string(nodes_.size());
  }
  NodeOptions node_options(std::uint32_t index, std::vector<std::shared_ptr<gpu::BulkEndpoint>> endpoints) const;

  LocalClusterOptions options_;
  std::unique_ptr<System> system_;
  std::shared_ptr<Directory> directory_ = std::make_shared<Directory>();
  std::shared_ptr<Identity> coordinator_identity_ = std::make_shared<Identity>();
  std::vector<scheduling::GpuSlots> slots_;
  std::vector<std::string> names_;
  std::vector<NodeActors> nodes_;
  std::vector<std::unique_ptr<Asker>> askers_;  ///< one per node
  caf::actor membership_;
  caf::actor placement_;
};

NodeOptions LocalClusterImpl::node_options(std::uint32_t index,
                                           std::vector<std::shared_ptr<gpu::BulkEndpoint>> endpoints) const {
  NodeOptions node;
  node.join.node = names_[index];
  node.join.start_nonce = index + 1;
  node.join.max_tokens_per_pass = options_.max_tokens_per_pass;
  for (const auto& endpoint : endpoints) node.join.gpus.push_back(endpoint->address());
  node.shape = options_.shape;
  node.runner.capacity = options_.capacity;
  node.runner.slots_per_layer = slots_.front().slots_per_layer;
  node.runner.max_rows_per_round = options_.max_rows_per_round;
  node.cluster_slots = slots_;
  node.max_queued_tokens = options_.max_queued_tokens;
  node.max_request_tokens = options_.max_request_tokens;
  node.heat_window_passes = options_.heat_window_passes;
  node.connect_timeout = options_.start_timeout;
  node.endpoints = std::move(endpoints);
  node.weights = gpu::make_synthetic_weights(options_.shape);
  node.directory = directory_;
  node.identity = std::make_shared<Identity>();
  node.log = options_.log;
  return node;
}

Result<void> LocalClusterImpl::begin() {
  const std::uint32_t gpus = options_.nodes * options_.gpus_per_node;
  if (gpus == 0) return fail(ErrorCode::kBadInput, "a cluster of 0 GPUs: nodes and gpus_per_node must be at least 1");
  const std::uint32_t slots =
      options_.slots_per_gpu != 0 ? options_.slots_per_gpu : (options_.shape.experts + gpus - 1) / gpus;
  for (std::uint32_t n = 0; n < options_.nodes; ++n) {
    names_.push_back("node" + std::to_string(n));
    for (std::uint32_t g = 0; g < options_.gpus_per_node; ++g) {
      slots_.push_back({GpuId{NodeId{static_cast<std::uint16_t>(n)}, static_cast<std::uint16_t>(g)}, slots});
    }
  }
  // Refused here, before any weight is made.
  if (auto plan = scheduling::plan_uniform(options_.shape, slots_, options_.order, Epoch{1}); !plan)
    return tl::unexpected(plan.error());

  auto serves = std::make_shared<std::promise<Result<void>>>();
  auto answered = std::make_shared<std::atomic<bool>>(false);
  auto future = serves->get_future();
  MembershipOptions membership;
  membership.nodes = names_;
  membership.max_tokens_per_pass = options_.max_tokens_per_pass;
  membership.heartbeat_limit = std::chrono::milliseconds{0};
  membership.join_timeout = options_.start_timeout;
  membership.ledger = std::make_shared<MemoryLedger>();
  membership.directory = directory_;
  membership.identity = coordinator_identity_;
  membership.log = options_.log;
  membership.on_event = [serves, answered](const ClusterEvent& event) {
    if (std::holds_alternative<NodeJoined>(event) || answered->exchange(true)) return;
    if (const auto* failed = std::get_if<ClusterFailed>(&event)) {
      serves->set_value(tl::unexpected(failed->error));
    } else {
      serves->set_value({});
    }
  };
  PlacementOptions placement;
  placement.shape = options_.shape;
  placement.slots = slots_;
  placement.order = options_.order;
  placement.ledger = membership.ledger;
  placement.directory = directory_;
  placement.identity = coordinator_identity_;
  placement.log = options_.log;
  placement_ = spawn_placement_manager(system_->caf(), placement);
  directory_->add(kCoordinator, kPlacement, placement_);
  membership_ = spawn_membership(system_->caf(), membership);
  directory_->add(kCoordinator, kMembership, membership_);

  auto endpoints = gpu::make_in_process_endpoints(gpus);
  for (std::uint32_t n = 0; n < options_.nodes; ++n) {
    std::vector<std::shared_ptr<gpu::BulkEndpoint>> mine;
    for (std::uint32_t g = 0; g < options_.gpus_per_node; ++g)
      mine.push_back(std::move(endpoints[n * options_.gpus_per_node + g]));
    nodes_.push_back(spawn_node(system_->caf(), node_options(n, std::move(mine))));
    askers_.push_back(std::make_unique<Asker>(system_->caf(), nodes_.back().door));
  }
  if (future.wait_for(options_.start_timeout + kStopTimeout) != std::future_status::ready) {
    return fail(ErrorCode::kDeadline,
                "the cluster did not serve within " + std::to_string(options_.start_timeout.count()) + " ms");
  }
  return future.get();
}

LocalClusterImpl::~LocalClusterImpl() {
  // Nodes first: their doors answer what is under way. The coordinator has nothing left to say then.
  for (std::uint32_t n = 0; n < nodes_.size(); ++n) {
    close_door(system_->caf(), nodes_[n].door, Error{ErrorCode::kAborted, "the cluster is stopping"});
    askers_[n].reset();
    (void)stop_node(system_->caf(), nodes_[n], *directory_, names_[n], kStopTimeout);
  }
  (void)stop_actors(system_->caf(), {std::exchange(membership_, nullptr), std::exchange(placement_, nullptr)},
                    kStopTimeout);
  directory_->clear();
}

}  // namespace

Result<std::unique_ptr<LocalCluster>> LocalCluster::start(const LocalClusterOptions& options) {
  auto cluster = std::make_unique<LocalClusterImpl>(options);
  if (auto done = cluster->begin(); !done) return tl::unexpected(done.error());
  return cluster;
}

}  // namespace troupe::actors
