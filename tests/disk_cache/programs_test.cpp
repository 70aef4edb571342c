// The disk cache and files of kernels, seen from a program: lazuli::DeviceMode, save_cache, load_cache.
#include <gmock/gmock.h>

#include "codegen/kernel_compiler.h"
#include "lazuli/lazuli.h"
#include "tests/support/cache_fixture.h"
#include "tests/support/error_of.h"

namespace lazuli::testing {
namespace {

using ::testing::HasSubstr;

class ProgramsOnDisk : public CacheFixture {
 protected:
  ~ProgramsOnDisk() override { NewProcess(); }

  // Programs, kernels and counters are gone, as they are in a new process.
  static void NewProcess() {
    lazuli::reset();
    codegen::ForgetIdleKernels();
  }

  Options On() const { return Options().disk_cache(true).cache_dir(folder_.string()).log_file((root_ / "log").string()); }
  Options Off() const { return Options().disk_cache(false).log_file((root_ / "log").string()); }

  // Several kernels, bit-equal to eager: sums are of small multiples of 1/4. `width` chooses them.
  static torch::Tensor Work(int64_t width) {
    const torch::NoGradGuard no_grad;
    const auto x = torch::arange(4 * width, torch::kFloat).remainder(7).view({4, width}) - 2;
    auto y = torch::relu(x * 3 - 5);
    y = torch::mm(y, x.t());
    y = torch::where(y > 2, y - 1, -y) * 0.5;
    return torch::mm(y, y).abs().add(1).reciprocal();
  }

  // In a process of its own, so to speak. What was counted.
  static Stats Run(const Options& options, int64_t width) {
    const torch::Tensor eager = Work(width);
    NewProcess();
    torch::Tensor lazy;
    {
      DeviceMode mode(options);
      lazy = Work(width);
      lazuli::sync();
    }
    EXPECT_TRUE(torch::equal(eager, lazy));
    return lazuli::stats();
  }

  static std::string ErrorOf(void (*call)(const std::string&), const std::string& path) {
    return testing::ErrorOf([&] { call(path); });
  }
};

TEST_F(ProgramsOnDisk, ASecondProcessCompilesNothing) {
  const Stats first = Run(On(), 100);
  EXPECT_GE(first.kernels_compiled, 2);
  EXPECT_EQ(first.disk_cache_writes, first.kernels_compiled);
  EXPECT_EQ(first.disk_cache_misses, first.kernels_compiled);
  const Stats second = Run(On(), 100);
  EXPECT_EQ(second.kernels_compiled, 0);
  EXPECT_EQ(second.disk_cache_hits, first.kernels_compiled);
  EXPECT_EQ(second.disk_cache_misses, 0);
  EXPECT_EQ(second.disk_cache_errors, 0);
  EXPECT_EQ(second.kernel_cache_hits, first.kernel_cache_hits);
  EXPECT_EQ(second.kernel_launches, first.kernel_launches);
  EXPECT_EQ(second.programs_compiled, first.programs_compiled);
}

// What was found the fastest is remembered: the next process times nothing, and compiles nothing.
TEST_F(ProgramsOnDisk, ASecondProcessTimesNothing) {
  const Options tuned = On().mode("max-autotune").autotune_ms(5000);
  const Stats first = Run(tuned, 300000);
  EXPECT_GE(first.kernels_tuned, 1);
  EXPECT_GT(first.schedules_timed, first.kernels_tuned);
  const Stats second = Run(tuned, 300000);
  EXPECT_EQ(second.kernels_tuned + second.schedules_timed, 0);
  EXPECT_EQ(second.kernels_compiled, 0);
  EXPECT_EQ(second.disk_cache_misses, 0);
  EXPECT_EQ(second.disk_cache_hits, first.kernels_compiled);
  EXPECT_EQ(second.disk_cache_errors, 0);
}

TEST_F(ProgramsOnDisk, OtherModesAndNoBudgetTimeNothing) {
  for (const Options& options : {On(), On().mode("reduce-overhead"), On().mode("max-autotune").autotune_ms(0)}) {
    const Stats counts = Run(options, 300001);
    EXPECT_EQ(counts.kernels_tuned + counts.schedules_timed, 0);
  }
}

TEST_F(ProgramsOnDisk, OffMeansNothingIsReadOrWritten) {
  Run(On(), 101);
  const size_t entries = Entries().size();
  EXPECT_GT(Run(Off(), 101).kernels_compiled, 0);
  const Stats off = Run(Off(), 102);
  EXPECT_GT(off.kernels_compiled, 0);
  EXPECT_EQ(off.disk_cache_hits + off.disk_cache_misses + off.disk_cache_writes + off.disk_cache_errors, 0);
  EXPECT_EQ(Entries().size(), entries);
}

TEST_F(ProgramsOnDisk, DamagedFilesChangeNoResult) {
  const int64_t kernels = Run(On(), 103).kernels_compiled;
  for (int round = 0; round < 20; ++round) {
    for (const std::string& name : Entries()) {
      std::string bytes = ReadBytes(folder_ / name);
      bytes[bytes.size() * round / 20] ^= 0x10;
      WriteBytes(folder_ / name, bytes);
    }
    const auto damaged = static_cast<int64_t>(Entries().size());
    const Stats counts = Run(On(), 103);
    EXPECT_EQ(counts.kernels_compiled, kernels);
    EXPECT_EQ(counts.disk_cache_errors, damaged);
  }
  EXPECT_EQ(Run(On(), 103).kernels_compiled, 0);
}

TEST_F(ProgramsOnDisk, AFileOfKernelsServesWithoutADiskCache) {
  const std::string path = (root_ / "kernels.lazuli").string();
  const int64_t compiled = Run(Off(), 104).kernels_compiled;
  lazuli::save_cache(path);
  const std::string bytes = ReadBytes(path);
  EXPECT_EQ(Run(Off(), 104).kernels_compiled, compiled);
  lazuli::load_cache(path);
  const Stats loaded = Run(Off(), 104);
  EXPECT_EQ(loaded.kernels_compiled, 0);
  EXPECT_EQ(loaded.disk_cache_hits, compiled);
  // What was loaded is saved again, byte for byte.
  lazuli::save_cache(path);
  EXPECT_EQ(ReadBytes(path), bytes);
}

TEST_F(ProgramsOnDisk, KernelsOfTheDiskCacheAreSavedToo) {
  const std::string path = (root_ / "kernels.lazuli").string();
  Run(On(), 105);
  EXPECT_EQ(Run(On(), 105).kernels_compiled, 0);
  lazuli::save_cache(path);
  std::filesystem::remove_all(folder_);
  lazuli::load_cache(path);
  EXPECT_EQ(Run(On(), 105).kernels_compiled, 0);
}

TEST_F(ProgramsOnDisk, ABadFileLoadsNothing) {
  const std::string path = (root_ / "kernels.lazuli").string();
  EXPECT_THAT(ErrorOf(&lazuli::load_cache, path),
              HasSubstr("lazuli: cannot load kernels from '" + path + "': it cannot be read: No such file"));
  EXPECT_THAT(ErrorOf(&lazuli::load_cache, root_.string()), HasSubstr("it is no regular file; check the path"));
  const int64_t compiled = Run(Off(), 106).kernels_compiled;
  lazuli::save_cache(path);
  const std::string bytes = ReadBytes(path);
  for (const std::string& bad : {std::string(), std::string("text"), bytes.substr(0, bytes.size() - 1), bytes + "x", bytes.substr(1),
                                 bytes.substr(0, bytes.size() / 2) + std::string(bytes.size() / 2, '\0')}) {
    WriteBytes(path, bad);
    EXPECT_THAT(ErrorOf(&lazuli::load_cache, path), HasSubstr("make the file anew with lazuli::save_cache"));
    EXPECT_EQ(Run(Off(), 106).kernels_compiled, compiled);
  }
}

TEST_F(ProgramsOnDisk, WhatCannotBeSavedSaysWhy) {
  EXPECT_THAT(ErrorOf(&lazuli::save_cache, (root_ / "none/kernels").string()), HasSubstr("lazuli: cannot save kernels to"));
  std::filesystem::create_directory(root_ / "folder");
  EXPECT_THAT(ErrorOf(&lazuli::save_cache, (root_ / "folder").string()), HasSubstr("check the folder and the space in it"));
}

TEST_F(ProgramsOnDisk, KernelsForAnotherMachineAreNamedAndLeftAlone) {
  const std::string path = (root_ / "kernels.lazuli").string();
  const int64_t compiled = Run(Off(), 107).kernels_compiled;
  lazuli::save_cache(path);
  auto entries = runtime::DecodeBundle(ReadBytes(path));
  ASSERT_TRUE(entries.ok());
  for (runtime::CacheEntry& entry : *entries) {
    const size_t isa = entry.key.find("\nisa ");
    entry.key.replace(isa, entry.key.find('\n', isa + 1) - isa, "\nisa another");
  }
  WriteBytes(path, runtime::EncodeBundle(*entries));
  lazuli::load_cache(path);
  EXPECT_THAT(Log(), HasSubstr("do not fit this process"));
  EXPECT_THAT(Log(), HasSubstr(" here, another there"));
  EXPECT_EQ(Run(Off(), 107).kernels_compiled, compiled);
}

}  // namespace
}  // namespace lazuli::testing
