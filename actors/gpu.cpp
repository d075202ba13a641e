#include "actors/gpu.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <caf/event_based_actor.hpp>
#include <caf/exit_reason.hpp>
#include <caf/send.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_response_promise.hpp>

#include "actors/device_thread.hpp"
#include "actors/expert.hpp"
#include "actors/local_messages.hpp"
#include "actors/sample.hpp"
#include "actors/unexpected.hpp"
#include "scheduling/pass_machine.hpp"
#include "scheduling/placement.hpp"

namespace troupe::actors {
namespace {

using scheduling::LayerSites;

/// A request on its way through one or more passes.
struct Pending {
  std::uint64_t key = 0;
  caf::actor door;
  std::shared_ptr<const messages::Submit> submit;
  std::shared_ptr<messages::Answer> answer;
  std::uint32_t taken = 0;  ///< tokens that a pass has taken
  std::uint32_t done = 0;   ///< tokens computed
};

/// Tokens of one request within the running pass.
struct Segment {
  std::uint64_t key = 0;
  std::uint32_t first = 0;  ///< in the request
  std::uint32_t count = 0;
};

struct GpuState {
  static constexpr const char* name = "troupe.gpu";

  // --- who and where
  // -----------------------------------------------------------------------------------------------------
  caf::event_based_actor* self;
  caf::actor node;
  GpuOptions options;

  // --- the device
  // ---------------------------------------------------------------------------------------------------------- Members
  // below are used by jobs of `thread`; they are declared before it, so that it is joined before they go.
  std::unique_ptr<gpu::Device> device;
  std::unique_ptr<gpu::PassRunner> runner;
  std::shared_ptr<gpu::AllToAll> exchange;
  std::unique_ptr<DeviceThread> thread;

  // --- view and placement
  // --------------------------------------------------------------------------------------------------
  messages::ViewPublished view;
  Rank rank;
  std::vector<caf::actor> peers;  ///< gpu actors of all ranks; null at our own rank
  std::map<Epoch, std::shared_ptr<const std::vector<LayerSites>>> placements;
  std::map<std::uint32_t, caf::actor> experts;  ///< by device slot
  std::set<std::uint32_t> loading;
  bool connected = false;
  bool ready_said = false;
  bool serving = false;
  bool failed = false;

  // --- passes
  // ----------------------------------------------------------------------------------------------------------------
  std::unique_ptr<scheduling::PassMachine> machine;
  std::deque<Pending> queue;
  std::vector<Segment> running;
  bool pass_running = false;
  /// Who asked for figures while a pass ran: answered after it, so that the figures hold every pass whose answers are
  /// out.
  std::vector<caf::typed_response_promise<GpuStatus>> status_waiting;
  std::uint64_t queued_tokens = 0;  ///< not yet taken by a pass
  /// Running number over all tokens that this rank has routed. Each rank counts from a place of its own, so that not
  /// all ranks favour the same replica of an expert.
  std::uint64_t token_number = 0;

  // --- figures
  // ---------------------------------------------------------------------------------------------------------------
  GpuStatus figures;
  TimeSample step_times;
  std::vector<std::uint64_t> worked;  ///< [device slots] visits not yet told to the expert actors
  std::uint32_t passes_untold = 0;

  explicit GpuState(caf::event_based_actor* s) : self(s) {}
  ~GpuState() {
    // Whatever the device thread waits for is woken first; only then can it be joined.
    if (options.endpoint) options.endpoint->shut();
    if (exchange) exchange->abort("node " + options.node + ", GPU " + std::to_string(options.gpu) + ": stopped");
    thread.reset();
  }
  GpuState(const GpuState&) = delete;
  GpuState& operator=(const GpuState&) = delete;

  std::string label() const { return "GPU " + options.node + "/" + std::to_string(options.gpu); }

  void give_up(Error error) {
    if (failed) return;
    failed = true;
    error.message = label() + ": " + error.message;
    if (exchange) exchange->abort(error.message);
    while (!queue.empty()) {
      answer_error(queue.front(), error);
      queue.pop_front();
    }
    queued_tokens = 0;
    self->send(node, GpuFailed{options.gpu, std::move(error)});
  }

  void answer_error(const Pending& pending, const Error& error) {
    pending.answer->code = static_cast<std::uint16_t>(error.code);
    pending.answer->message = error.message;
    pending.answer->hidden.clear();
    pending.answer->flags.clear();
    self->send(pending.door, TokensDone{pending.key, pending.answer});
  }

  template <class Job>
  void post(Job job) {
    if (auto posted = thread->post(std::move(job)); !posted) give_up(posted.error());
  }

  // --- start: device, bulk channel, experts
  // ------------------------------------------------------------------------------------

  void make_device() {
    const caf::actor me = self;
    const gpu::DeviceOptions device_options{options.shape.layers * options.runner.slots_per_layer,
                                            options.runner.max_rows_per_round};
    post([this, me, device_options] {
      auto made = gpu::make_cpu_device(options.shape, device_options);
      if (!made) {
        caf::anon_send(me, DeviceMade{false, made.error()});
        return;
      }
      device = std::move(*made);
      for (std::uint32_t layer = 0; layer < options.shape.layers; ++layer) {
        if (auto loaded = device->load_gate(layer, *options.weights); !loaded) {
          caf::anon_send(me, DeviceMade{false, loaded.error()});
          return;
        }
      }
      runner = std::make_unique<gpu::PassRunner>(options.shape, options.runner, *device);
      caf::anon_send(me, DeviceMade{true, {}});
    });
  }

  void on_prepare(const PrepareGpu& m) {
    auto placement = scheduling::from_message(m.epoch);
    if (!placement) return give_up(placement.error());
    const std::vector<scheduling::RankPlace> ranks = scheduling::ranks_of(m.view);
    auto sites = scheduling::resolve(options.shape, *placement, ranks);
    if (!sites) return give_up(sites.error());
    view = m.view;
    rank = m.rank;
    constexpr unsigned kRankShift = 40;
    token_number = std::uint64_t{rank.value} << kRankShift;
    placements[m.epoch.epoch] = std::make_shared<const std::vector<LayerSites>>(std::move(*sites));
    machine = std::make_unique<scheduling::PassMachine>(view.view, rank, static_cast<std::uint32_t>(ranks.size()),
                                                        m.epoch.epoch);
    find_peers();
    connect_bulk();
    spawn_experts(*placements.at(m.epoch.epoch));
  }

  void find_peers() {
    peers.clear();
    for (const messages::Member& member : view.members) {
      for (std::uint32_t g = 0; g < member.gpus.size(); ++g) {
        const bool own = member.node == options.node && g == options.gpu;
        peers.push_back(own ? caf::actor{} : options.directory->find(member.node, gpu_name(g)));
      }
    }
  }

  void connect_bulk() {
    std::vector<messages::BulkAddress> addresses;
    for (const messages::Member& member : view.members)
      addresses.insert(addresses.end(), member.gpus.begin(), member.gpus.end());
    const caf::actor me = self;
    post([this, me, addresses = std::move(addresses), v = view.view, r = rank] {
      auto made = options.endpoint->connect(v, r, addresses, gpu::AllToAll::Clock::now() + options.connect_timeout);
      if (!made) {
        caf::anon_send(me, BulkConnected{v, nullptr, made.error()});
      } else {
        caf::anon_send(me, BulkConnected{v, std::shared_ptr<gpu::AllToAll>(std::move(*made)), {}});
      }
    });
  }

  void spawn_experts(const std::vector<LayerSites>& sites) {
    for (std::uint32_t layer = 0; layer < sites.size(); ++layer) {
      for (const std::uint32_t s : sites[layer].on_rank[rank.value]) {
        const scheduling::Site& site = sites[layer].sites[s];
        const std::uint32_t slot = layer * options.runner.slots_per_layer + site.slot;
        loading.insert(slot);
        experts[slot] = spawn_expert(self->home_system(), self, ExpertId{layer, site.expert}, slot);
      }
    }
    worked.assign(std::size_t{options.shape.layers} * options.runner.slots_per_layer, 0);
    say_ready();
  }

  void on_load_slot(const LoadSlot& m) {
    const caf::actor me = self;
    post([this, me, m] {
      if (device == nullptr) {
        caf::anon_send(
            me, SlotJobDone{m.device_slot, false, Error{ErrorCode::kUnavailable, "the device could not be made"}});
        return;
      }
      auto loaded = device->load_expert(m.device_slot, m.expert, *options.weights);
      caf::anon_send(me, SlotJobDone{m.device_slot, loaded.has_value(), loaded ? Error{} : loaded.error()});
    });
  }

  void say_ready() {
    if (ready_said || failed || !connected || !loading.empty()) return;
    ready_said = true;
    self->send(node, GpuReady{options.gpu, view.view, machine->newest_epoch()});
  }

  // --- passes
  // ----------------------------------------------------------------------------------------------------------------

  std::uint32_t waiting() const {
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(queued_tokens, options.max_tokens_per_pass));
  }

  void on_tokens(TokensArrived& m, const caf::actor& door) {
    Pending pending{m.key, door, std::move(m.submit), std::make_shared<messages::Answer>(), 0, 0};
    messages::Answer& answer = *pending.answer;
    const messages::Submit& submit = *pending.submit;
    answer.request = submit.request;
    answer.stream = submit.stream;
    answer.first_sequence = submit.first_sequence;
    answer.tokens = submit.tokens;
    if (!machine || failed) return answer_error(pending, Error{ErrorCode::kUnavailable, label() + ": not serving"});
    answer.hidden.resize(submit.hidden.size());
    queued_tokens += submit.tokens;
    queue.push_back(std::move(pending));
    if (serving) carry_out(machine->on_work(waiting()));
  }

  void on_serving() {
    serving = true;
    if (machine && queued_tokens > 0) carry_out(machine->on_work(waiting()));
  }

  void on_pass_opened(const messages::PassOpened& m) {
    if (!machine || failed) return;
    auto decisions = machine->on_opened(m);
    if (decisions) return carry_out(*decisions);
    if (options.log) options.log(LogLevel::kWarn, label() + ": " + decisions.error().message);
  }

  void carry_out(const std::vector<scheduling::PassDecision>& decisions) {
    for (const scheduling::PassDecision& decision : decisions) {
      if (const auto* announce = std::get_if<scheduling::AnnouncePass>(&decision)) {
        for (const caf::actor& peer : peers) {
          if (peer) self->send(peer, announce->message);
        }
      } else if (const auto* run = std::get_if<scheduling::RunPass>(&decision)) {
        run_pass(*run);
      }
    }
  }

  void run_pass(const scheduling::RunPass& run) {
    const auto placement = placements.find(run.epoch);
    if (placement == placements.end()) {
      return give_up({ErrorCode::kInternal, "pass " + std::to_string(run.pass.value) + " wants epoch " +
                                                std::to_string(run.epoch.value) + ", which is not held"});
    }
    auto tokens = std::make_shared<gpu::PassTokens>(take_tokens(run.own_tokens));
    if (failed) return;
    pass_running = true;
    const caf::actor me = self;
    post([this, me, pass = run.pass, sites = placement->second, tokens] {
      auto outcome = std::make_shared<Result<gpu::PassOutcome>>(runner->run(pass, *sites, *exchange, *tokens));
      caf::anon_send(me, PassRan{pass, tokens, outcome});
    });
  }

  /// The first `count` queued tokens, in order: requests of a stream stay in theirs.
  gpu::PassTokens take_tokens(std::uint32_t count) {
    const scheduling::ModelShape& shape = options.shape;
    gpu::PassTokens out;
    out.tokens = count;
    out.first_token_number = token_number;
    token_number += count;
    out.hidden.resize(std::size_t{count} * shape.d_model);
    out.client_routed.assign(count, 0);
    out.route_ids.assign(std::size_t{shape.layers} * count * shape.top_k, -1);
    out.route_weights.assign(out.route_ids.size(), 0.0F);
    running.clear();
    std::uint32_t at = 0;
    for (Pending& pending : queue) {
      if (at == count) break;
      const messages::Submit& submit = *pending.submit;
      const std::uint32_t n = std::min(count - at, submit.tokens - pending.taken);
      if (n == 0) continue;
      running.push_back({pending.key, pending.taken, n});
      const std::size_t row = shape.d_model * sizeof(float);
      std::memcpy(out.hidden.data() + std::size_t{at} * shape.d_model, submit.hidden.data() + pending.taken * row,
                  n * row);
      if (!submit.route_ids.empty()) {
        std::fill_n(out.client_routed.begin() + at, n, std::uint8_t{1});
        for (std::size_t layer = 0; layer < shape.layers; ++layer) {
          const std::size_t from = (layer * submit.tokens + pending.taken) * shape.top_k;
          const std::size_t to = (layer * count + at) * shape.top_k;
          std::copy_n(submit.route_ids.begin() + static_cast<std::ptrdiff_t>(from), n * shape.top_k,
                      out.route_ids.begin() + static_cast<std::ptrdiff_t>(to));
          std::copy_n(submit.route_weights.begin() + static_cast<std::ptrdiff_t>(from), n * shape.top_k,
                      out.route_weights.begin() + static_cast<std::ptrdiff_t>(to));
        }
      }
      pending.taken += n;
      at += n;
    }
    queued_tokens -= at;
    if (at != count) {
      give_up({ErrorCode::kInternal,
               "a pass named " + std::to_string(count) + " tokens, the queue held " + std::to_string(at)});
    }
    return out;
  }

  void on_pass_ran(const PassRan& m) {
    pass_running = false;
    finish_pass(m);
    for (auto& promise : std::exchange(status_waiting, {})) promise.deliver(status());
  }

  void finish_pass(const PassRan& m) {
    if (failed) return;
    if (!m.outcome->has_value()) return give_up(m.outcome->error());
    const gpu::PassOutcome& outcome = **m.outcome;
    count(m, outcome);
    deliver(m, outcome);
    auto decisions = machine->on_finished(m.pass, waiting());
    if (!decisions) return give_up(decisions.error());
    carry_out(*decisions);
  }

  void deliver(const PassRan& m, const gpu::PassOutcome& outcome) {
    const std::size_t row = options.shape.d_model * sizeof(float);
    std::size_t at = 0;
    for (const Segment& segment : running) {
      // Segments are in queue order and their requests stay queued until done, so the first match is near the front.
      const auto found =
          std::find_if(queue.begin(), queue.end(), [&](const Pending& p) { return p.key == segment.key; });
      messages::Answer& answer = *found->answer;
      std::memcpy(answer.hidden.data() + segment.first * row, m.tokens->hidden.data() + at * options.shape.d_model,
                  segment.count * row);
      for (std::uint32_t i = 0; i < segment.count; ++i) {
        const std::uint8_t flags = outcome.flags[at + i];
        if (flags == 0) continue;
        if (answer.flags.empty()) answer.flags.assign(answer.tokens, messages::kTokenExact);
        answer.flags[segment.first + i] = flags;
      }
      if (answer.first_pass == 0) answer.first_pass = m.pass.value;
      answer.last_pass = m.pass.value;
      found->done += segment.count;
      at += segment.count;
    }
    running.clear();
    while (!queue.empty() && queue.front().done == queue.front().submit->tokens) {
      self->send(queue.front().door, TokensDone{queue.front().key, queue.front().answer});
      queue.pop_front();
    }
  }

  void count(const PassRan& m, const gpu::PassOutcome& outcome) {
    ++figures.passes;
    figures.all_to_all_ns += outcome.all_to_all_ns;
    figures.all_to_all_bytes = exchange->stats().bytes_sent;
    for (const std::uint64_t ns : outcome.step_ns) {
      figures.step_ns += ns;
      step_times.add(ns);
    }
    for (std::size_t i = 0; i < outcome.routed.size(); ++i) figures.routed[i] += outcome.routed[i];
    for (std::size_t i = 0; i < outcome.computed.size(); ++i) {
      figures.computed[i / options.runner.slots_per_layer] += outcome.computed[i];
      worked[i] += outcome.computed[i];
    }
    if (const caf::actor heat = options.directory->find_local(options.node, kHeat)) {
      self->send(heat, PassHeat{options.gpu, m.pass, m.tokens->tokens,
                                std::make_shared<const std::vector<std::uint32_t>>(outcome.routed)});
    }
    // The expert actors hear of their work now and then: a message per expert and pass would cost more than it tells.
    constexpr std::uint32_t kTellEvery = 16;
    if (++passes_untold < kTellEvery) return;
    tell_experts(m.pass);
  }

  void tell_experts(PassNumber pass) {
    passes_untold = 0;
    for (auto& [slot, expert] : experts) {
      if (worked[slot] == 0) continue;
      self->send(expert, ExpertWorked{worked[slot], pass});
      worked[slot] = 0;
    }
  }

  GpuStatus status() {
    GpuStatus s = figures;
    s.gpu = options.gpu;
    s.step_time_ns = step_times.values();
    if (device) s.arena = device->arena_use();
    s.state = machine ? machine->describe() : "no view yet";
    return s;
  }

  caf::behavior make_behavior(const caf::actor& owner, GpuOptions opts) {
    node = owner;
    options = std::move(opts);
    figures.routed.assign(std::size_t{options.shape.layers} * options.shape.experts, 0);
    figures.computed.assign(options.shape.layers, 0);
    self->set_default_handler(count_unexpected);
    thread = std::make_unique<DeviceThread>();
    make_device();
    return {
        [this](const PrepareGpu& m) { on_prepare(m); },
        [this](const messages::ServingStarted&) { on_serving(); },
        [this](TokensArrived& m) { on_tokens(m, caf::actor_cast<caf::actor>(self->current_sender())); },
        [this](const messages::PassOpened& m) { on_pass_opened(m); },
        [this](const PassRan& m) { on_pass_ran(m); },
        [this](const DeviceMade& m) {
          if (!m.ok) give_up(m.error);
        },
        [this](const BulkConnected& m) {
          if (!m.exchange) return give_up(m.error);
          exchange = m.exchange;
          connected = true;
          say_ready();
        },
        [this](const LoadSlot& m) { on_load_slot(m); },
        [this](const SlotJobDone& m) {
          if (const auto found = experts.find(m.device_slot); found != experts.end())
            self->send(found->second, SlotLoaded{m.ok, m.error});
        },
        [this](const ExpertServing& m) {
          loading.erase(m.device_slot);
          say_ready();
        },
        [this](const ExpertFailed& m) { give_up(m.error); },
        [this](const GpuStatusAsked&) -> caf::result<GpuStatus> {
          if (!pass_running) return status();
          status_waiting.push_back(self->make_response_promise<GpuStatus>());
          return status_waiting.back();
        },
    };
  }
};

}  // namespace

caf::actor spawn_gpu(caf::actor_system& system, const caf::actor& node, GpuOptions options) {
  return system.spawn<caf::detached>([node, options = std::move(options)](caf::stateful_actor<GpuState>* self) {
    return self->state.make_behavior(node, options);
  });
}

}  // namespace troupe::actors
