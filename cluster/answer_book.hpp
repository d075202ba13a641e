#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "messages/client.hpp"
#include "messages/error.hpp"

namespace troupe::cluster {

/// Keeps count of what was asked and answered: lost, twice, out of order, flags; and holds the outputs by stream and
/// sequence. Thread rule: one thread at a time.
class AnswerBook {
 public:
  explicit AnswerBook(std::size_t d_model) : d_model_(d_model) {}

  void submitted(const messages::Submit& submit);
  /// Errors: kBadMessage (an answer to no request, or of another size): counted by the caller as a fault of the
  /// cluster.
  Result<void> answered(const messages::Answer& answer);
  /// Requests that were never answered count as lost from now on; `why` is kept for the report.
  void close(const std::string& why);

  std::size_t open_requests() const { return open_.size(); }
  std::uint64_t tokens_submitted() const { return tokens_submitted_; }
  std::uint64_t tokens_completed() const { return tokens_completed_; }
  std::uint64_t tokens_lost() const { return tokens_lost_; }
  std::uint64_t tokens_duplicated() const { return tokens_duplicated_; }
  std::uint64_t order_violations() const { return order_violations_; }
  std::uint64_t flagged(messages::TokenFlag flag) const;
  const std::vector<std::string>& first_errors() const { return errors_; }

  /// One stream's tokens in order of sequence.
  struct Stream {
    std::vector<float> hidden;       ///< [tokens x d_model]
    std::vector<std::uint8_t> have;  ///< [tokens], 1: answered
    std::vector<std::uint8_t> flags;
    std::uint64_t next_answer = 0;  ///< sequence number that the next answer must begin with
  };
  const std::map<std::uint64_t, Stream>& streams() const { return streams_; }
  /// XXH3-128 of all outputs, by stream, then sequence, in hex.
  std::string digest() const;

 private:
  void remember_error(const std::string& text);
  struct Open {
    std::uint64_t stream = 0;
    std::uint64_t first_sequence = 0;
    std::uint32_t tokens = 0;
  };
  std::size_t d_model_;
  std::map<messages::RequestId, Open> open_;
  std::map<messages::RequestId, Open> done_;
  std::map<std::uint64_t, Stream> streams_;
  std::uint64_t tokens_submitted_ = 0;
  std::uint64_t tokens_completed_ = 0;
  std::uint64_t tokens_lost_ = 0;
  std::uint64_t tokens_duplicated_ = 0;
  std::uint64_t order_violations_ = 0;
  std::vector<std::string> errors_;
};

/// XXH3-128 over streams in the order of their numbers; used for outputs and reference alike.
std::string digest_streams(const std::map<std::uint64_t, AnswerBook::Stream>& streams);

}  // namespace troupe::cluster
