#include "actors/door.hpp"

#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include <caf/event_based_actor.hpp>
#include <caf/response_promise.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_response_promise.hpp>

#include "actors/local_messages.hpp"
#include "actors/unexpected.hpp"

namespace troupe::actors {
namespace {

using messages::Answer;
using messages::DoorStatus;
using messages::Submit;

struct DoorState {
  static constexpr const char* name = "troupe.door";
  static constexpr std::chrono::seconds kStatusTimeout{10};

  struct Waiting {
    messages::RequestId request;
    std::uint32_t tokens = 0;
    /// More than one where a client sent the same request again: computed once, answered to all.
    std::vector<caf::typed_response_promise<Answer>> promises;
  };
  /// A status answer that is being put together from the GPUs' figures.
  struct Gathering {
    DoorStatus status;
    std::size_t missing = 0;
    caf::typed_response_promise<DoorStatus> promise;
  };

  caf::event_based_actor* self;
  DoorOptions options;
  std::vector<caf::actor> gpus;
  bool open = false;
  Error closed{ErrorCode::kUnavailable, "the cluster does not serve yet; try again when all nodes have joined"};
  View view;
  Epoch epoch;
  std::uint64_t next_key = 1;
  std::uint64_t queued_tokens = 0;
  std::map<std::uint64_t, Waiting> waiting;  ///< by key
  std::map<messages::RequestId, std::uint64_t> by_request;

  explicit DoorState(caf::event_based_actor* s) : self(s) {}

  Error refuse(ErrorCode code, const std::string& what) const {
    return Error{code, "door of node " + options.node + ": " + what};
  }

  /// Nothing of a Submit is trusted: every size is checked against the model before a GPU hears of it.
  Result<void> check(const Submit& m) const {
    const scheduling::ModelShape& shape = options.shape;
    if (!open) return tl::unexpected(refuse(closed.code, closed.message));
    if (m.tokens == 0) return tl::unexpected(refuse(ErrorCode::kBadInput, "a request of 0 tokens"));
    if (m.tokens > options.max_request_tokens) {
      return tl::unexpected(refuse(ErrorCode::kLimit, "a request of " + std::to_string(m.tokens) +
                                                          " tokens; limits.max_request_tokens is " +
                                                          std::to_string(options.max_request_tokens)));
    }
    const std::size_t bytes = std::size_t{m.tokens} * shape.d_model * sizeof(float);
    if (m.hidden.size() != bytes) {
      return tl::unexpected(refuse(ErrorCode::kBadInput, std::to_string(m.tokens) + " tokens of d_model " +
                                                             std::to_string(shape.d_model) + " are " +
                                                             std::to_string(bytes) + " bytes of hidden states; " +
                                                             std::to_string(m.hidden.size()) + " came"));
    }
    const std::size_t slots = std::size_t{shape.layers} * m.tokens * shape.top_k;
    if ((!m.route_ids.empty() && m.route_ids.size() != slots) || m.route_weights.size() != m.route_ids.size()) {
      return tl::unexpected(
          refuse(ErrorCode::kBadInput, "routes must be absent or layers x tokens x top_k = " + std::to_string(slots) +
                                           " ids and weights; " + std::to_string(m.route_ids.size()) + " and " +
                                           std::to_string(m.route_weights.size()) + " came"));
    }
    for (std::size_t i = 0; i < bytes; i += sizeof(float)) {
      float value = 0;
      std::memcpy(&value, m.hidden.data() + i, sizeof value);
      if (!std::isfinite(value)) {
        return tl::unexpected(refuse(
            ErrorCode::kBadInput, "hidden state " + std::to_string(i / sizeof(float) % shape.d_model) + " of token " +
                                      std::to_string(i / sizeof(float) / shape.d_model) + " is not finite"));
      }
    }
    if (queued_tokens + m.tokens > options.max_queued_tokens) {
      return tl::unexpected(
          refuse(ErrorCode::kLimit, std::to_string(queued_tokens) + " tokens are queued; limits.max_queued_tokens is " +
                                        std::to_string(options.max_queued_tokens) + ", send again later"));
    }
    return {};
  }

  caf::typed_response_promise<Answer> on_submit(Submit& m) {
    auto promise = self->make_response_promise<Answer>();
    // The same request again, while it is under way: not computed twice.
    if (const auto known = by_request.find(m.request); known != by_request.end()) {
      waiting.at(known->second).promises.push_back(promise);
      return promise;
    }
    if (auto checked = check(m); !checked) {
      Answer answer;
      answer.request = m.request;
      answer.stream = m.stream;
      answer.first_sequence = m.first_sequence;
      answer.tokens = m.tokens;
      answer.code = static_cast<std::uint16_t>(checked.error().code);
      answer.message = checked.error().message;
      promise.deliver(std::move(answer));
      return promise;
    }
    const std::uint64_t key = next_key++;
    queued_tokens += m.tokens;
    by_request[m.request] = key;
    waiting[key] = Waiting{m.request, m.tokens, {promise}};
    const caf::actor& gpu = gpus[m.stream % gpus.size()];
    self->send(gpu, TokensArrived{key, std::make_shared<const Submit>(std::move(m))});
    return promise;
  }

  void on_done(const TokensDone& m) {
    const auto found = waiting.find(m.key);
    if (found == waiting.end()) return;
    Waiting& entry = found->second;
    for (std::size_t i = 0; i < entry.promises.size(); ++i) {
      if (i + 1 == entry.promises.size()) {
        entry.promises[i].deliver(std::move(*m.answer));
      } else {
        entry.promises[i].deliver(*m.answer);
      }
    }
    queued_tokens -= entry.tokens;
    by_request.erase(entry.request);
    waiting.erase(found);
  }

  caf::typed_response_promise<DoorStatus> on_status(const messages::DoorStatusAsked& m) {
    auto gathering = std::make_shared<Gathering>();
    gathering->promise = self->make_response_promise<DoorStatus>();
    gathering->missing = gpus.size();
    DoorStatus& status = gathering->status;
    status.cookie = m.cookie;
    status.node = options.node;
    status.view = view;
    status.epoch = epoch;
    status.refused_frames = options.refused_frames ? options.refused_frames() : 0;
    status.tokens_per_gpu.assign(gpus.size(), 0);
    status.tokens_per_gpu_layer.assign(gpus.size() * options.shape.layers, 0);
    status.arena_bytes.assign(gpus.size(), 0);
    status.arena_used_bytes.assign(gpus.size(), 0);
    status.tokens_per_expert.assign(std::size_t{options.shape.layers} * options.shape.experts, 0);
    for (const caf::actor& gpu : gpus) {
      self->request(gpu, kStatusTimeout, GpuStatusAsked{})
          .then([gathering](const GpuStatus& s) { add(*gathering, s); },
                [gathering](const caf::error&) { finish(*gathering); });
    }
    return gathering->promise;
  }

  static void add(Gathering& gathering, const GpuStatus& s) {
    DoorStatus& status = gathering.status;
    status.passes = std::max(status.passes, s.passes);
    status.all_to_all_bytes += s.all_to_all_bytes;
    status.all_to_all_ns += s.all_to_all_ns;
    status.step_ns += s.step_ns;
    status.step_time_ns.insert(status.step_time_ns.end(), s.step_time_ns.begin(), s.step_time_ns.end());
    for (std::size_t layer = 0; layer < s.computed.size(); ++layer) {
      status.tokens_per_gpu[s.gpu] += s.computed[layer];
      status.tokens_per_gpu_layer[s.gpu * s.computed.size() + layer] = s.computed[layer];
    }
    status.arena_bytes[s.gpu] = s.arena.bytes;
    status.arena_used_bytes[s.gpu] = s.arena.used_bytes;
    for (std::size_t i = 0; i < s.routed.size(); ++i) status.tokens_per_expert[i] += s.routed[i];
    finish(gathering);
  }

  static void finish(Gathering& gathering) {
    if (--gathering.missing == 0) gathering.promise.deliver(std::move(gathering.status));
  }

  void on_closed(const DoorClosed& m) {
    open = false;
    closed = m.error;
    for (auto& [key, entry] : waiting) {
      Answer answer;
      answer.request = entry.request;
      answer.tokens = entry.tokens;
      answer.code = static_cast<std::uint16_t>(closed.code);
      answer.message = refuse(closed.code, closed.message).message;
      for (auto& promise : entry.promises) promise.deliver(answer);
    }
    waiting.clear();
    by_request.clear();
    queued_tokens = 0;
  }

  caf::behavior make_behavior() {
    self->set_default_handler(count_unexpected);
    return {
        [this](Submit& m) -> caf::result<Answer> { return on_submit(m); },
        [this](const messages::DoorStatusAsked& m) -> caf::result<DoorStatus> { return on_status(m); },
        [this](const DoorOpened& m) {
          open = true;
          view = m.view;
          epoch = m.epoch;
        },
        [this](const DoorClosed& m) { on_closed(m); },
        [this](const TokensDone& m) { on_done(m); },
    };
  }
};

}  // namespace

caf::actor spawn_door(caf::actor_system& system, std::vector<caf::actor> gpus, DoorOptions options) {
  return system.spawn([gpus, options](caf::stateful_actor<DoorState>* self) {
    self->state.gpus = gpus;
    self->state.options = options;
    return self->state.make_behavior();
  });
}

}  // namespace troupe::actors
