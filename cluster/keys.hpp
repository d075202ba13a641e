#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "cluster/wire.hpp"
#include "messages/error.hpp"

namespace troupe::cluster {

/// CURVE keys of a cluster's parties: "coordinator", "client" and each node by name. Kept in FOLDER/keys.json, readable
/// by its owner only; made at the first launch, extended when a config names new nodes.
struct ClusterKeys {
  std::map<std::string, CurveKeys> parties;
  std::vector<std::pair<std::string, std::string>> allow_list() const;  ///< (name, public key)
};

/// Where keys of a cluster are kept when the config does not say: $XDG_STATE_HOME/troupe/NAME, else
/// ~/.local/state/troupe/NAME.
std::filesystem::path default_key_folder(const std::string& cluster);

/// Errors: kIo, kBadInput (the file does not parse: names it and says to delete it), kRefused (others can read it).
Result<ClusterKeys> load_or_make_keys(const std::filesystem::path& folder, const std::vector<std::string>& names);

/// A random secret in hex for the bulk channels, new for each launch.
std::string make_secret();

}  // namespace troupe::cluster
