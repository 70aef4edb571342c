// What the disk cache remembers of a program's traces: a size that changed in an earlier process, and programs that need no compiler.
#include <gmock/gmock.h>

#include "codegen/kernel_compiler.h"
#include "lazuli/lazuli.h"
#include "tests/support/cache_fixture.h"

namespace lazuli::testing {
namespace {

class ProfilesOnDisk : public CacheFixture {
 protected:
  ~ProfilesOnDisk() override { NewProcess(); }

  static void NewProcess() {
    lazuli::wait_for_compiles();
    lazuli::reset();
    codegen::ForgetIdleKernels();
  }

  Options On() const { return Options().disk_cache(true).cache_dir(folder_.string()).log_file((root_ / "log").string()); }

  static torch::Tensor Work(int64_t rows) {
    const torch::NoGradGuard no_grad;
    const auto x = torch::full({rows, 24}, 0.25);
    return torch::mm(torch::relu(x * 3 - 0.5), torch::full({24, 8}, 0.5)).abs().add(1).sum(1);
  }

  // A process of its own, so to speak, that works on these numbers of rows one after another.
  static Stats Run(const Options& options, const std::vector<int64_t>& rows) {
    NewProcess();
    DeviceMode mode(options);
    for (const int64_t count : rows) {
      const torch::Tensor result = Work(count);
      lazuli::sync();
      const EagerScope eager;
      EXPECT_TRUE(torch::equal(result, Work(count))) << count;
    }
    lazuli::wait_for_compiles();
    return lazuli::stats();
  }
};

TEST_F(ProfilesOnDisk, ASizeThatChangedStartsAsASymbol) {
  const Stats first = Run(On(), {16, 20, 24});
  EXPECT_EQ(first.programs_compiled, 2);
  EXPECT_EQ(first.dynamic_programs, 1);
  const Stats second = Run(On(), {28, 16, 32});
  EXPECT_EQ(second.programs_compiled, 1);
  EXPECT_EQ(second.dynamic_programs, 1);
  EXPECT_EQ(second.recompiles, 0);
  EXPECT_EQ(second.kernels_compiled, 0);
  EXPECT_EQ(second.disk_cache_misses, 0);
}

TEST_F(ProfilesOnDisk, StaticShapesStayStatic) {
  Run(On(), {16, 20});
  const Stats second = Run(On().dynamic("0"), {16, 20});
  EXPECT_EQ(second.dynamic_programs, 0);
  EXPECT_EQ(second.programs_compiled, 2);
}

TEST_F(ProfilesOnDisk, AnotherConstantIsAnotherProgram) {
  Run(On(), {16, 16});
  const Stats second = Run(On(), {20});
  EXPECT_EQ(second.dynamic_programs, 0);
  EXPECT_EQ(second.programs_compiled, 1);
}

TEST_F(ProfilesOnDisk, InTheBackgroundASecondProcessIsCompiledFromTheSecondStepOn) {
  const Stats first = Run(On().async(true).compile_wait_ms(0), {16, 16, 16});
  EXPECT_GE(first.background_replays, 2);
  EXPECT_EQ(first.programs_compiled, 1);
  const Stats second = Run(On().async(true).compile_wait_ms(0), {16, 16, 16});
  EXPECT_LE(second.eager_replays, 1);
  EXPECT_EQ(second.kernels_compiled, 0);
  EXPECT_EQ(second.programs_compiled, 1);
  EXPECT_GE(second.kernel_launches, 2);
}

TEST_F(ProfilesOnDisk, ASecondProcessThatMayWaitIsCompiledFromItsFirstStepOn) {
  const Options waiting = On().async(true).compile_wait_ms(60000);
  const Stats first = Run(waiting, {16, 16, 16});
  EXPECT_EQ(first.background_replays, 1);
  EXPECT_EQ(first.programs_compiled, 1);
  const Stats second = Run(waiting, {16, 16, 16});
  EXPECT_EQ(second.eager_replays, 0);
  EXPECT_EQ(second.kernels_compiled, 0);
  EXPECT_EQ(second.programs_compiled, 1);
}

TEST_F(ProfilesOnDisk, WithoutItsKernelsAKnownProgramIsCompiledInTheBackground) {
  const Stats first = Run(On().async(true).compile_wait_ms(0), {16, 16});
  for (const std::string& name : Entries()) {
    const auto entry = runtime::DecodeEntry(ReadBytes(folder_ / name));
    ASSERT_TRUE(entry.ok());
    if (entry->kind == "kernel") std::filesystem::remove(folder_ / name);
  }
  const Stats second = Run(On().async(true).compile_wait_ms(0), {16});
  EXPECT_EQ(second.eager_replays, 1);
  EXPECT_EQ(second.programs_compiled, 1);
  EXPECT_EQ(second.compile_failures, 0);
  EXPECT_EQ(second.kernels_compiled, first.kernels_compiled);
}

TEST_F(ProfilesOnDisk, TheLogSaysWhereSymbolsComeFrom) {
  Run(On(), {16, 20});
  Run(On().logs("dynamic"), {24});
  EXPECT_THAT(Log(), ::testing::HasSubstr("index 0, as in an earlier process"));
}

}  // namespace
}  // namespace lazuli::testing
