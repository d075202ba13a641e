#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "messages/error.hpp"
#include "messages/fields.hpp"

namespace troupe::messages {

struct CodecLimits {
  std::size_t max_bytes = std::size_t{64} << 20;
};

}  // namespace troupe::messages
