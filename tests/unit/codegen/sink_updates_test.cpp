// Which steps of a program for a GPU move behind others.
#include "codegen/passes/sink_updates.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace lazuli::codegen {
namespace {

using runtime::KernelLaunch;
using runtime::kMostSavedBytes;
using runtime::MemorySpec;
using runtime::ProgramSpec;
using runtime::StepSpec;

constexpr int32_t kInputs = 4;  // Memories 0 to 3 are inputs, 4 to 7 are small, 8 is large.

ProgramSpec MakeSpec(c10::DeviceType device) {
  ProgramSpec spec;
  for (int32_t m = 0; m < 9; ++m) {
    MemorySpec memory;
    memory.device = c10::Device(device, device == c10::kCPU ? -1 : 0);
    memory.kind = m < kInputs ? MemorySpec::Kind::kInput : MemorySpec::Kind::kArena;
    memory.nbytes = m == 8 ? kMostSavedBytes + 1 : 256;
    spec.memories.push_back(memory);
  }
  return spec;
}

void Add(ProgramSpec* spec, const std::string& name, std::vector<int32_t> reads, std::vector<int32_t> writes, int64_t overwrites = 0) {
  StepSpec step;
  KernelLaunch launch;
  launch.name = name;
  step.work = std::move(launch);
  step.reads = std::move(reads);
  step.writes = std::move(writes);
  step.overwrites = overwrites;
  spec->steps.push_back(std::move(step));
}

// The steps' names, one letter each, after the pass.
std::string Sunk(ProgramSpec spec) {
  SinkUpdates(&spec);
  std::string order;
  for (const StepSpec& step : spec.steps) order += std::get<KernelLaunch>(step.work).name;
  return order;
}

TEST(SinkUpdates, SmallUpdatesComeLast) {
  ProgramSpec spec = MakeSpec(c10::kCUDA);
  Add(&spec, "a", {4}, {5});
  Add(&spec, "u", {4, 0}, {0}, 256);
  Add(&spec, "b", {5}, {6});
  Add(&spec, "v", {5, 1}, {1}, 256);
  Add(&spec, "c", {6}, {7});
  EXPECT_EQ(Sunk(spec), "abcuv");
}

TEST(SinkUpdates, OrBehindTheFirstLargeOne) {
  ProgramSpec spec = MakeSpec(c10::kCUDA);
  Add(&spec, "u", {4, 0}, {0}, 256);
  Add(&spec, "a", {4}, {5});
  Add(&spec, "L", {5, 2}, {2}, kMostSavedBytes + 1);
  Add(&spec, "M", {5, 3}, {3}, kMostSavedBytes + 1);
  spec.steps[2].batch = 2;
  Add(&spec, "c", {6}, {7});
  EXPECT_EQ(Sunk(spec), "aLMuc");
}

TEST(SinkUpdates, NotPastWhoReadsWhatTheyWriteOrWritesWhatTheyRead) {
  ProgramSpec spec = MakeSpec(c10::kCUDA);
  Add(&spec, "u", {4, 0}, {0}, 256);
  Add(&spec, "r", {0}, {5});
  EXPECT_EQ(Sunk(spec), "ur");
  ProgramSpec other = MakeSpec(c10::kCUDA);
  Add(&other, "u", {4, 0}, {0}, 256);
  Add(&other, "w", {5}, {4});
  EXPECT_EQ(Sunk(other), "uw");
}

TEST(SinkUpdates, NotWhatMakesMoreOrKeepsMuchAlive) {
  ProgramSpec spec = MakeSpec(c10::kCUDA);
  Add(&spec, "m", {4, 0}, {0, 5}, 256);
  Add(&spec, "k", {8, 1}, {1}, 256);
  Add(&spec, "a", {6}, {7});
  EXPECT_EQ(Sunk(spec), "mka");
}

TEST(SinkUpdates, NotOnTheCpu) {
  ProgramSpec spec = MakeSpec(c10::kCPU);
  Add(&spec, "u", {4, 0}, {0}, 256);
  Add(&spec, "a", {4}, {5});
  EXPECT_EQ(Sunk(spec), "ua");
}

}  // namespace
}  // namespace lazuli::codegen
