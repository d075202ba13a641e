#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <toml++/toml.h>

#include "messages/error.hpp"

/// Reading TOML that nobody vouches for.
namespace troupe::cluster {

/// Errors: kBadConfig, "<name>:<line>: what is wrong" (bad syntax, text or nesting beyond all need). `name` is the file
/// as the user wrote it.
Result<toml::table> parse_toml(std::string_view text, const std::string& name);

/// The whole file. Errors: kBadConfig (not there, not readable, a folder, larger than most_bytes).
Result<std::string> read_text_file(const std::filesystem::path& file, std::size_t most_bytes);

}  // namespace troupe::cluster
