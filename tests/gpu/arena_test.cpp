#define BOOST_TEST_MODULE arena
#include "gpu/cpu/arena.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gpu/cpu/device.hpp"
#include "gpu/cpu/memory_available.hpp"
#include "gpu/device.hpp"
#include "tests/gpu/device_cases.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::gpu::test;

namespace {

std::size_t open_files() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    static_cast<void>(entry);
    ++count;
  }
  return count;
}

std::size_t mappings() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("troupe-arena") != std::string::npos ? 1U : 0U;
  return count;
}

/// A folder that plays the root of a file system.
class FakeRoot {
 public:
  FakeRoot() {
    std::string pattern = (std::filesystem::temp_directory_path() / "troupe-root-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~FakeRoot() { std::filesystem::remove_all(path_); }
  FakeRoot(const FakeRoot&) = delete;
  FakeRoot& operator=(const FakeRoot&) = delete;
  void write(const std::string& file, const std::string& text) const {
    const std::filesystem::path path = path_ + file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

BOOST_AUTO_TEST_CASE(the_plan_is_what_the_device_then_takes) {
  for (const auto& shape : {shape_of(64, 96, bf16, bf16), shape_of(37, 53, f32, f32), shape_of(1, 1, bf16, f32)}) {
    for (const DeviceOptions options : {DeviceOptions{1, 1}, DeviceOptions{5, 300}}) {
      const ArenaUse plan = plan_cpu_arena(shape, options);
      const auto device = device_of(shape, options.slots, options.max_rows);
      const ArenaUse use = device->arena_use();
      BOOST_TEST(plan.bytes == use.bytes);
      BOOST_TEST(plan.slot_bytes == use.slot_bytes);
      BOOST_TEST(plan.slots == use.slots);
      BOOST_TEST(plan.slots_used == 0U);
      BOOST_TEST(plan.gate_bytes == use.gate_bytes);
      BOOST_TEST(plan.scratch_bytes == use.scratch_bytes);
      BOOST_TEST(plan.used_bytes == use.used_bytes);
      BOOST_TEST(use.bytes == use.slots * use.slot_bytes + use.gate_bytes + use.scratch_bytes);
      BOOST_TEST(use.slot_bytes >= shape.expert_bytes());
      struct stat file {};
      BOOST_REQUIRE(::fstat(device->arena_fd(), &file) == 0);
      BOOST_TEST(static_cast<std::size_t>(file.st_size) == use.bytes);
    }
  }
}

BOOST_AUTO_TEST_CASE(use_follows_loading_and_releasing) {
  const auto shape = shape_of(32, 32, bf16, bf16);
  const auto source = make_synthetic_weights(shape);
  const auto device = device_of(shape, 3, 4);
  const std::size_t empty = device->arena_use().used_bytes;
  BOOST_REQUIRE(device->load_expert(2, {0, 1}, *source));
  BOOST_REQUIRE(device->load_expert(0, {0, 2}, *source));
  BOOST_TEST(device->arena_use().slots_used == 2U);
  BOOST_TEST(device->arena_use().used_bytes == empty + 2 * device->slot_bytes());
  device->release_slot(2);
  BOOST_TEST(device->arena_use().slots_used == 1U);
  device->release_slot(0);
  BOOST_TEST(device->arena_use().used_bytes == empty);
}

BOOST_AUTO_TEST_CASE(what_does_not_fit_the_memory_is_refused_before_it_is_touched) {
  auto shape = shape_of(4096, 14336, bf16, bf16);
  shape.layers = 32;
  const auto there = cpu::available_memory_bytes();
  const auto slots = static_cast<std::uint32_t>(there / shape.expert_bytes() + 2);
  const std::size_t before = mappings();
  const auto device = make_cpu_device(shape, {slots, 256});
  BOOST_REQUIRE(!device);
  BOOST_TEST((device.error().code == ErrorCode::kIo));
  const std::string asked = std::to_string(plan_cpu_arena(shape, {slots, 256}).bytes);
  BOOST_TEST(device.error().message.find("needs " + asked + " bytes") != std::string::npos, device.error().message);
  BOOST_TEST(device.error().message.find("are available") != std::string::npos, device.error().message);
  BOOST_TEST(mappings() == before);
}

BOOST_AUTO_TEST_CASE(counts_of_zero_and_sizes_beyond_64_bits_are_refused) {
  const auto refused = [](const scheduling::ModelShape& shape, const DeviceOptions& options, const std::string& words) {
    const auto device = make_cpu_device(shape, options);
    BOOST_REQUIRE(!device);
    BOOST_TEST((device.error().code == ErrorCode::kBadInput));
    BOOST_TEST(device.error().message.find(words) != std::string::npos, device.error().message);
    BOOST_TEST(plan_cpu_arena(shape, options).bytes == std::numeric_limits<std::size_t>::max());
  };
  refused(shape_of(0, 8, bf16, bf16), {1, 1}, "d_model = 0");
  refused(shape_of(8, 0, bf16, bf16), {1, 1}, "d_ff = 0");
  refused(shape_of(8, 8, bf16, bf16), {0, 1}, "slots = 0");
  refused(shape_of(8, 8, bf16, bf16), {1, 0}, "max_rows = 0");
  refused(shape_of(0xFFFFFFFFU, 0xFFFFFFFFU, f32, f32), {0xFFFFFFFFU, 0xFFFFFFFFU}, "64-bit");
}

BOOST_AUTO_TEST_CASE(the_arena_cannot_be_resized_and_is_not_inherited) {
  const auto device = device_of(shape_of(16, 16, bf16, bf16), 1, 1);
  const int fd = device->arena_fd();
  const auto size = static_cast<off_t>(device->arena_use().bytes);
  BOOST_TEST(::ftruncate(fd, size - 4096) == -1);
  BOOST_TEST(errno == EPERM);
  BOOST_TEST(::ftruncate(fd, size + 4096) == -1);
  BOOST_TEST((::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
}

BOOST_AUTO_TEST_CASE(a_slot_copied_by_its_bytes_computes_the_same) {
  const auto shape = shape_of(72, 56, bf16, bf16);
  const auto source = make_synthetic_weights(shape);
  const auto from = device_of(shape, 3, 8, cpu::instruction_sets().front());
  const auto to = device_of(shape, 2, 64, cpu::instruction_sets().back());
  BOOST_TEST(from->layout_tag() == to->layout_tag());
  BOOST_TEST(from->slot_bytes() == to->slot_bytes());
  BOOST_REQUIRE(from->load_expert(2, {0, 5}, *source));
  BOOST_REQUIRE(to->load_expert(1, {0, 6}, *source));
  std::vector<std::byte> slot(from->slot_bytes());
  const auto bytes = static_cast<ssize_t>(slot.size());
  BOOST_REQUIRE(::pread(from->arena_fd(), slot.data(), slot.size(), static_cast<off_t>(from->slot_offset(2))) == bytes);
  BOOST_REQUIRE(::pwrite(to->arena_fd(), slot.data(), slot.size(), static_cast<off_t>(to->slot_offset(1))) == bytes);
  const auto in = random_rows(shape, 5, 3);
  BOOST_TEST((run_one(*from, shape, 2, in) == run_one(*to, shape, 1, in)));
}

BOOST_AUTO_TEST_CASE(layout_tags_tell_what_cannot_be_exchanged) {
  const auto tag = [](const scheduling::ModelShape& shape) { return device_of(shape, 1, 1)->layout_tag(); };
  BOOST_TEST(tag(shape_of(8, 16, bf16, bf16)) != tag(shape_of(8, 16, f32, bf16)));
  BOOST_TEST(tag(shape_of(8, 16, bf16, bf16)) != tag(shape_of(16, 8, bf16, bf16)));
  BOOST_TEST(tag(shape_of(8, 16, bf16, bf16)) == tag(shape_of(8, 16, bf16, f32)));
}

BOOST_AUTO_TEST_CASE(C23_devices_come_and_go_without_a_trace) {
  const auto shape = shape_of(64, 64, bf16, bf16);
  const auto source = make_synthetic_weights(shape);
  const std::size_t files = open_files();
  const std::size_t maps = mappings();
  for (int i = 0; i < 200; ++i) {
    const auto device = device_of(shape, 2, 8);
    BOOST_REQUIRE(device->load_expert(0, {0, 0}, *source));
    device->release_slot(0);
    BOOST_REQUIRE(device->load_expert(0, {0, 1}, *source));
  }
  BOOST_TEST(open_files() == files);
  BOOST_TEST(mappings() == maps);
}

BOOST_AUTO_TEST_CASE(available_memory_is_the_least_of_machine_and_groups) {
  const FakeRoot root;
  BOOST_TEST(cpu::available_memory_bytes(root.path()) == std::numeric_limits<std::uint64_t>::max());
  root.write("/proc/meminfo", "MemTotal:       100 kB\nMemAvailable:   9000 kB\n");
  BOOST_TEST(cpu::available_memory_bytes(root.path()) == 9000U * 1024U);

  // v2: the limit of an outer group holds too, and "max" is none.
  root.write("/proc/self/cgroup", "0::/outer/inner\n");
  root.write("/sys/fs/cgroup/outer/inner/memory.max", "max\n");
  root.write("/sys/fs/cgroup/outer/inner/memory.current", "5\n");
  root.write("/sys/fs/cgroup/outer/memory.max", "5000000\n");
  root.write("/sys/fs/cgroup/outer/memory.current", "3000000\n");
  BOOST_TEST(cpu::available_memory_bytes(root.path()) == 2000000U);
  // Cached files count as free.
  root.write("/sys/fs/cgroup/outer/memory.stat", "anon 7\ninactive_file 1000000\n");
  BOOST_TEST(cpu::available_memory_bytes(root.path()) == 3000000U);
  // A group beyond its limit leaves nothing.
  root.write("/sys/fs/cgroup/outer/memory.current", "9000000\n");
  BOOST_TEST(cpu::available_memory_bytes(root.path()) == 0U);

  // v1
  root.write("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/jobs/a\n");
  root.write("/sys/fs/cgroup/memory/jobs/a/memory.limit_in_bytes", "4000000\n");
  root.write("/sys/fs/cgroup/memory/jobs/a/memory.usage_in_bytes", "1500000\n");
  root.write("/sys/fs/cgroup/memory/jobs/a/memory.stat", "cache 900000\ntotal_inactive_file 500000\n");
  BOOST_TEST(cpu::available_memory_bytes(root.path()) == 3000000U);
  root.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  root.write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "100\n");
  BOOST_TEST(cpu::available_memory_bytes(root.path()) == 3000000U);
  root.write("/proc/self/cgroup", "nonsense\n::\n");
  BOOST_TEST(cpu::available_memory_bytes(root.path()) == 9000U * 1024U);
}

BOOST_AUTO_TEST_CASE(this_machine_says_how_much_memory_there_is) {
  const std::uint64_t there = cpu::available_memory_bytes();
  BOOST_TEST(there > 0U);
  BOOST_TEST(there < std::numeric_limits<std::uint64_t>::max());
}
