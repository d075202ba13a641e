#include "actors/asker.hpp"

#include <string>
#include <utility>

#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/send.hpp>

#include "actors/node.hpp"
#include "actors/unexpected.hpp"

namespace troupe::actors {

/// The question, with an answer for the case that none comes. The destructor of the last holder answers what is left
/// open.
struct Question {
  std::shared_ptr<messages::Submit> submit;
  std::chrono::milliseconds timeout;
  std::function<void(messages::Answer)> on_answer;
  messages::Answer unanswered;

  Question() = default;
  Question(const Question&) = delete;
  Question& operator=(const Question&) = delete;
  ~Question() { answer(unanswered); }
  void answer(messages::Answer a) {
    if (auto call = std::exchange(on_answer, nullptr)) call(std::move(a));
  }
};
struct StatusQuestion {
  std::uint64_t cookie = 0;
  std::chrono::milliseconds timeout;
  std::function<void(Result<messages::DoorStatus>)> on_status;

  StatusQuestion() = default;
  StatusQuestion(const StatusQuestion&) = delete;
  StatusQuestion& operator=(const StatusQuestion&) = delete;
  ~StatusQuestion() { answer(fail(ErrorCode::kAborted, "the node is stopping")); }
  void answer(Result<messages::DoorStatus> status) {
    if (auto call = std::exchange(on_status, nullptr)) call(std::move(status));
  }
};
struct AskDoor {
  std::shared_ptr<Question> question;
};
struct AskStatus {
  std::shared_ptr<StatusQuestion> question;
};

}  // namespace troupe::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::AskDoor)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::AskStatus)

namespace troupe::actors {
namespace {

caf::behavior asker(caf::event_based_actor* self, const caf::actor& door) {
  self->set_default_handler(count_unexpected);
  return {
      [=](const AskDoor& m) {
        const std::shared_ptr<Question> q = m.question;
        self->request(door, q->timeout, std::move(*q->submit))
            .then([q](messages::Answer& answer) { q->answer(std::move(answer)); },
                  [q](const caf::error&) {
                    messages::Answer late = q->unanswered;
                    late.code = static_cast<std::uint16_t>(ErrorCode::kDeadline);
                    late.message =
                        "no answer within " + std::to_string(q->timeout.count()) + " ms, or the door has gone";
                    q->answer(std::move(late));
                  });
      },
      [=](const AskStatus& m) {
        const std::shared_ptr<StatusQuestion> q = m.question;
        self->request(door, q->timeout, messages::DoorStatusAsked{q->cookie})
            .then([q](messages::DoorStatus& status) { q->answer(std::move(status)); },
                  [q](const caf::error&) {
                    q->answer(fail(ErrorCode::kDeadline,
                                   "the door gave no status within " + std::to_string(q->timeout.count()) + " ms"));
                  });
      },
  };
}

}  // namespace

Asker::Asker(caf::actor_system& system, const caf::actor& door) : system_(system), actor_(system.spawn(asker, door)) {}

Asker::~Asker() {
  constexpr std::chrono::milliseconds kDeadline{2000};
  (void)stop_actors(system_, {std::exchange(actor_, nullptr)}, kDeadline);
}

void Asker::ask(messages::Submit submit, std::chrono::milliseconds timeout,
                std::function<void(messages::Answer)> on_answer) {
  messages::Answer unanswered;
  unanswered.request = submit.request;
  unanswered.stream = submit.stream;
  unanswered.first_sequence = submit.first_sequence;
  unanswered.tokens = submit.tokens;
  unanswered.code = static_cast<std::uint16_t>(ErrorCode::kAborted);
  unanswered.message = "the node is stopping";
  auto question = std::make_shared<Question>();
  question->submit = std::make_shared<messages::Submit>(std::move(submit));
  question->timeout = timeout;
  question->on_answer = std::move(on_answer);
  question->unanswered = std::move(unanswered);
  caf::anon_send(actor_, AskDoor{std::move(question)});
}

void Asker::ask_status(std::uint64_t cookie, std::chrono::milliseconds timeout,
                       std::function<void(Result<messages::DoorStatus>)> on_status) {
  auto question = std::make_shared<StatusQuestion>();
  question->cookie = cookie;
  question->timeout = timeout;
  question->on_status = std::move(on_status);
  caf::anon_send(actor_, AskStatus{std::move(question)});
}

}  // namespace troupe::actors
