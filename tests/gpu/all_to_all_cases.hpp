#pragma once

#include "gpu/all_to_all.hpp"
#include "tests/gpu/all_to_all_processes.hpp"

/// The behaviour that every backend between processes must show. Each case forks its ranks and checks their verdicts
/// with Boost.Test.
namespace troupe::gpu::testing {

/// The options of a rank: equal for all, or a mixture of transports.
using OptionsOf = std::function<BulkOptions(std::uint32_t rank)>;

void blocks_of_many_sizes_arrive(const OptionsOf& options);
void rows_are_gathered(const OptionsOf& options);
void zeros_arrive(const OptionsOf& options);                 // C19
void a_mismatch_names_both_sizes(const OptionsOf& options);  // C19
void an_abort_reaches_all(const OptionsOf& options);
void a_killed_rank_is_survived(const OptionsOf& options);
void a_frozen_rank_is_named(const OptionsOf& options);
void another_secret_is_refused(const OptionsOf& options);
void unequal_inbox_sizes_are_refused(const OptionsOf& options);
void a_missing_rank_is_named(const OptionsOf& options);
void an_older_view_is_refused(const OptionsOf& options);
void noise_changes_nothing(const OptionsOf& options);
void many_views_leave_nothing_behind(const OptionsOf& options, std::uint64_t views);

}  // namespace troupe::gpu::testing
