#include "cluster/answer_book.hpp"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <xxhash.h>

namespace troupe::cluster {
namespace {

constexpr std::size_t kMaxErrors = 5;

}  // namespace

void AnswerBook::remember_error(const std::string& text) {
  if (errors_.size() < kMaxErrors && std::find(errors_.begin(), errors_.end(), text) == errors_.end())
    errors_.push_back(text);
}

void AnswerBook::submitted(const messages::Submit& submit) {
  open_[submit.request] = Open{submit.stream, submit.first_sequence, submit.tokens};
  tokens_submitted_ += submit.tokens;
  Stream& stream = streams_[submit.stream];
  const std::size_t end = submit.first_sequence + submit.tokens;
  if (stream.have.size() < end) {
    stream.hidden.resize(end * d_model_);
    stream.have.resize(end, 0);
    stream.flags.resize(end, 0);
  }
}

Result<void> AnswerBook::answered(const messages::Answer& answer) {
  const auto found = open_.find(answer.request);
  if (found == open_.end()) {
    if (const auto before = done_.find(answer.request); before != done_.end()) {
      tokens_duplicated_ += before->second.tokens;
      remember_error("a request was answered twice");
      return {};
    }
    return fail(ErrorCode::kBadMessage, "an answer to a request that was never made");
  }
  const Open open = found->second;
  open_.erase(found);
  done_[answer.request] = open;
  if (answer.code != 0) {
    tokens_lost_ += open.tokens;
    remember_error(answer.message);
    return {};
  }
  const std::size_t bytes = std::size_t{open.tokens} * d_model_ * sizeof(float);
  if (answer.hidden.size() != bytes || (!answer.flags.empty() && answer.flags.size() != open.tokens)) {
    tokens_lost_ += open.tokens;
    return fail(ErrorCode::kBadMessage, fmt::format("an answer of {} bytes for {} tokens; {} were due",
                                                    answer.hidden.size(), open.tokens, bytes));
  }
  Stream& stream = streams_.at(open.stream);
  if (open.first_sequence != stream.next_answer) {
    ++order_violations_;
    remember_error(fmt::format("stream {}: the answer to token {} came when {} was due", open.stream,
                               open.first_sequence, stream.next_answer));
  }
  stream.next_answer = std::max<std::uint64_t>(stream.next_answer, open.first_sequence + open.tokens);
  std::memcpy(stream.hidden.data() + open.first_sequence * d_model_, answer.hidden.data(), bytes);
  for (std::uint32_t i = 0; i < open.tokens; ++i) {
    stream.have[open.first_sequence + i] = 1;
    if (!answer.flags.empty()) stream.flags[open.first_sequence + i] = answer.flags[i];
  }
  tokens_completed_ += open.tokens;
  return {};
}

void AnswerBook::close(const std::string& why) {
  if (open_.empty()) return;
  for (const auto& [request, open] : open_) tokens_lost_ += open.tokens;
  remember_error(fmt::format("{} requests were never answered: {}", open_.size(), why));
  open_.clear();
}

std::uint64_t AnswerBook::flagged(messages::TokenFlag flag) const {
  std::uint64_t count = 0;
  for (const auto& [number, stream] : streams_) {
    count += static_cast<std::uint64_t>(
        std::count_if(stream.flags.begin(), stream.flags.end(), [&](std::uint8_t f) { return (f & flag) != 0; }));
  }
  return count;
}

std::string digest_streams(const std::map<std::uint64_t, AnswerBook::Stream>& streams) {
  XXH3_state_t* state = XXH3_createState();
  XXH3_128bits_reset(state);
  for (const auto& [number, stream] : streams) {
    XXH3_128bits_update(state, &number, sizeof number);
    XXH3_128bits_update(state, stream.hidden.data(), stream.hidden.size() * sizeof(float));
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(state);
  XXH3_freeState(state);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string AnswerBook::digest() const {
  return digest_streams(streams_);
}

}  // namespace troupe::cluster
