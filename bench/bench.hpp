#pragma once

#include <string>
#include <vector>

#include "messages/error.hpp"

/// Speed, as ratios to limits and peers that are measured in the same run. `troupe bench` prints these.
namespace troupe::bench {

/// One line of a result. ratio = value / limit where more is better.
struct Row {
  std::string name;          ///< "mixtral 16 rows"
  double value = 0;
  std::string unit;          ///< "GFLOP/s", "GB/s", "us"
  double limit = 0;          ///< the machine's limit, in the same unit
  std::string limit_name;    ///< "FMA peak", "memory read", "memcpy"
  double peer = 0;           ///< a known library at the same task; 0: none
  std::string peer_name;     ///< "OpenBLAS sgemm"
  double ratio = 0;
};

struct Options {
  double seconds_per_case = 0.5;
  std::vector<std::string> only;  ///< case names that contain one of these; empty: all
};

Result<std::vector<Row>> bench_expert(const Options& options);      // bench/expert.cpp
Result<std::vector<Row>> bench_all_to_all(const Options& options);  // bench/all_to_all.cpp
Result<std::vector<Row>> bench_control(const Options& options);     // bench/control.cpp
Result<std::vector<Row>> bench_step(const Options& options);        // bench/step.cpp

}  // namespace troupe::bench
