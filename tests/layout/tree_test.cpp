// The rules of the source tree, checked on the tree itself: who includes whom, no paths of one machine, scripts that
// can be run.
#define BOOST_TEST_MODULE tree
#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

#include "tests/layout/include_rules.hpp"

namespace fs = std::filesystem;
using troupe::layout::check_machine_paths;
using troupe::layout::check_source;
using troupe::layout::Finding;

namespace {

const fs::path kRoot = TROUPE_SOURCE_DIR;

/// Folders of the project; what else lies about in a checkout (build trees, editors' files) is not looked at.
constexpr std::array kFolders = {"messages", "scheduling", "gpu",   "actors", "cluster", "bench", "tools",  "tests",
                                 "examples", "configs",    "cmake", "docs",   "scripts", ".ci",   "python", "web"};

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  BOOST_REQUIRE_MESSAGE(in.good(), "cannot read " << path);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Every file of the project, relative to its root, in order.
std::vector<fs::path> project_files() {
  std::vector<fs::path> files;
  for (const char* folder : kFolders) {
    if (!fs::exists(kRoot / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
      if (entry.is_regular_file()) files.push_back(fs::relative(entry.path(), kRoot));
    }
  }
  for (const auto& entry : fs::directory_iterator(kRoot)) {
    if (entry.is_regular_file()) files.push_back(entry.path().filename());
  }
  std::sort(files.begin(), files.end());
  return files;
}

bool is_source(const fs::path& path) {
  static const std::set<std::string> kExtensions = {".hpp", ".cpp", ".cu", ".cuh", ".h", ".cc"};
  return kExtensions.contains(path.extension().string());
}

void report(const std::vector<Finding>& findings) {
  for (const Finding& finding : findings) {
    BOOST_ERROR(finding.path << ":" << finding.line << ": " << finding.message);
  }
}

std::size_t findings_in(const char* path, const char* text) {
  return check_source(path, text).size();
}

}  // namespace

BOOST_AUTO_TEST_CASE(include_arrows_go_down_only) {
  std::size_t sources = 0;
  for (const fs::path& path : project_files()) {
    if (!is_source(path)) continue;
    ++sources;
    report(check_source(path.generic_string(), read(kRoot / path)));
  }
  BOOST_TEST(sources > 20U);  // else the walk looked in the wrong place
}

BOOST_AUTO_TEST_CASE(no_file_names_a_place_of_one_machine) {
  for (const fs::path& path : project_files()) {
    if (path.generic_string().starts_with("tests/layout/")) continue;  // names such places to look for them
    report(check_machine_paths(path.generic_string(), read(kRoot / path), kRoot.generic_string()));
  }
}

BOOST_AUTO_TEST_CASE(scripts_can_be_run) {
  constexpr fs::perms kRunnable = fs::perms::owner_exec | fs::perms::group_exec | fs::perms::others_exec;
  std::size_t scripts = 0;
  for (const fs::path& path : project_files()) {
    const std::string text = path.generic_string();
    if ((!text.starts_with("scripts/") && text != ".ci/run") || path.has_extension()) continue;
    ++scripts;
    BOOST_TEST(((fs::status(kRoot / path).permissions() & kRunnable) == kRunnable), text << " is not executable");
    BOOST_TEST(read(kRoot / path).starts_with("#!/usr/bin/env bash\n"),
               text << " does not begin with #!/usr/bin/env bash");
  }
  BOOST_TEST(scripts >= 5U);
}

BOOST_AUTO_TEST_CASE(headers_guard_themselves) {
  for (const fs::path& path : project_files()) {
    if (path.extension() != ".hpp") continue;
    // Code for several instruction sets is included once for each, and guards itself with Highway's toggle.
    const bool per_target = path.stem().string().ends_with("-inl");
    const char* guard = per_target ? "HWY_TARGET_TOGGLE" : "#pragma once\n";
    BOOST_TEST((read(kRoot / path).find(guard) != std::string::npos), path.generic_string() << " has no " << guard);
  }
}

BOOST_AUTO_TEST_CASE(every_folder_of_code_says_what_lives_in_it) {
  for (const char* folder : {"messages", "scheduling", "gpu", "actors", "cluster", "tests"}) {
    BOOST_TEST(fs::exists(kRoot / folder / "README.md"), folder << "/ has no README.md");
  }
}

// The rules themselves: each is shown to catch what it is for, and to let pass what is right.

BOOST_AUTO_TEST_CASE(an_arrow_that_goes_up_is_caught) {
  BOOST_TEST(findings_in("messages/ids.hpp", "#include \"scheduling/gate.hpp\"\n") == 1U);
  BOOST_TEST(findings_in("gpu/pass_runner.cpp", "#include \"cluster/config.hpp\"\n") == 1U);
  BOOST_TEST(findings_in("tests/gpu/arena_test.cpp", "#include \"actors/gpu_worker.hpp\"\n") == 1U);
  BOOST_TEST(findings_in("cluster/config.hpp", "#include \"tools/commands.hpp\"\n") == 1U);
  BOOST_TEST(findings_in("gpu/device.hpp", "#include \"tests/layout/include_rules.hpp\"\n") == 1U);

  BOOST_TEST(findings_in("scheduling/gate.hpp",
                         "#include \"scheduling/model_shape.hpp\"\n#include \"messages/ids.hpp\"\n") == 0U);
  BOOST_TEST(findings_in("tools/run.cpp", "#include \"cluster/config.hpp\"\n#include \"bench/bench.hpp\"\n") == 0U);
}

BOOST_AUTO_TEST_CASE(a_library_outside_its_folders_is_caught) {
  BOOST_TEST(findings_in("gpu/device.hpp", "#include <caf/actor.hpp>\n") == 1U);
  BOOST_TEST(findings_in("actors/link.cpp", "#include <zmq.hpp>\n") == 1U);
  BOOST_TEST(findings_in("bench/step.cpp", "#include <zmq.hpp>\n") == 1U);
  BOOST_TEST(findings_in("gpu/cpu/device.cpp", "#include <cuda_runtime.h>\n") == 1U);
  BOOST_TEST(findings_in("actors/expert.cpp", "#include \"gpu/cpu/kernels.hpp\"\n") == 1U);

  BOOST_TEST(findings_in("actors/link.cpp", "#include <caf/actor.hpp>\n") == 0U);
  BOOST_TEST(findings_in("bench/control_peers.cpp", "#include <zmq.hpp>\n") == 0U);
  BOOST_TEST(findings_in("gpu/cuda/device.cpp", "#include <cuda_runtime.h>\n#include <nccl.h>\n") == 0U);
}

BOOST_AUTO_TEST_CASE(impurity_in_scheduling_is_caught) {
  for (const char* header : {"thread", "mutex", "chrono", "fstream", "filesystem", "atomic", "sys/socket.h"}) {
    const std::string text = "#include <" + std::string(header) + ">\n";
    BOOST_TEST(check_source("scheduling/gate.cpp", text).size() == 1U, header);
    BOOST_TEST(check_source("gpu/device.cpp", text).empty(), header);
  }
  BOOST_TEST(findings_in("scheduling/gate.cpp", "auto now = std::chrono::steady_clock::now();\n") == 1U);
  BOOST_TEST(findings_in("scheduling/gate.cpp", "std::mt19937_64 random(std::random_device{}());\n") == 1U);
  BOOST_TEST(findings_in("scheduling/gate.cpp", "int x = std::rand();\n") == 1U);

  BOOST_TEST(findings_in("scheduling/gate.cpp",
                         "#include <random>\nstd::mt19937_64 random(seed);\nint operand(int);\n") == 0U);
}

BOOST_AUTO_TEST_CASE(comments_are_not_code) {
  BOOST_TEST(findings_in("scheduling/gate.cpp", "// #include <thread>\n/*\n#include <mutex>\n*/\n") == 0U);
  const std::vector<Finding> findings = check_source("scheduling/gate.cpp", "/* two\nlines */\n#include <thread>\n");
  BOOST_REQUIRE_EQUAL(findings.size(), 1U);
  BOOST_TEST(findings.front().line == 3U);
  BOOST_TEST(troupe::layout::without_comments("f(1'000, '\"', \"// kept\");  // gone\n") ==
             "f(1'000, '\"', \"// kept\");  \n");
}

BOOST_AUTO_TEST_CASE(an_include_that_depends_on_the_folder_it_stands_in_is_caught) {
  BOOST_TEST(findings_in("cluster/config.cpp", "#include \"config.hpp\"\n") == 1U);
  BOOST_TEST(findings_in("cluster/config.cpp", "#include <cluster/config.hpp>\n") == 1U);
}

BOOST_AUTO_TEST_CASE(a_path_of_one_machine_is_caught) {
  auto count = [](const char* text) { return check_machine_paths("a.md", text, "/opt/checkout/troupe").size(); };
  BOOST_TEST(count("cd /home/someone/troupe\n") == 1U);
  BOOST_TEST(count("[x](/root/notes.md)\n") == 1U);
  BOOST_TEST(count("prefix=/Users/someone/include\n") == 1U);
  BOOST_TEST(count("see /opt/checkout/troupe/README.md\n") == 1U);

  BOOST_TEST(count("see docs/home/x and https://example.org/home/x, ../work/x, /usr/bin/env\n") == 0U);
}
