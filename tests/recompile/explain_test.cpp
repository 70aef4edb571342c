// lazuli::explain(), and what a process says at its end.

#include <gmock/gmock.h>

#include "tests/support/log_file.h"
#include "tests/support/same_as_eager.h"

namespace lazuli::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ExplainTest : public ::testing::Test {
 protected:
  void SetUp() override { lazuli::reset(); }
  // A program for each size.
  static Options options() { return Options().backend("aten").dynamic("0"); }

  // A trace of two ops whose only difference between calls is the size. Every call but the first starts at one site.
  static float Step(int64_t size) { return (torch::ones({size}) * 2).sum(0).item<float>(); }
};

TEST_F(ExplainTest, NothingHappened) { EXPECT_EQ(lazuli::explain(), "0 traces of 0 ops; 0 programs, 0 recompiles\n"); }

TEST_F(ExplainTest, SaysWhatWasCompiledWhereAndWhy) {
  const lazuli::DeviceMode mode(options());
  Step(1000);
  for (int i = 0; i < 3; ++i) Step(2);
  Step(3);
  const std::string text = lazuli::explain();
  EXPECT_THAT(text, HasSubstr("5 traces of "));
  EXPECT_THAT(text, HasSubstr("3 programs, 1 recompile; 40.0 % of traces found their program\n"));
  EXPECT_THAT(text, HasSubstr("compilation: "));
  EXPECT_THAT(text, HasSubstr("; p50 "));
  EXPECT_THAT(text, HasSubstr("site 1 (after aten::_local_scalar_dense; aten::"));
  EXPECT_THAT(text, HasSubstr("): 2 programs\n    trace #1 ("));
  EXPECT_THAT(text, HasSubstr(" ms): the first here\n    trace #2 ("));
  EXPECT_THAT(text, HasSubstr("value of 'size' mismatch at index 0. expected 2, actual 3\n"));
  EXPECT_THAT(text, HasSubstr("cuts: aten::_local_scalar_dense 5\n"));
  EXPECT_THAT(text, HasSubstr("cut and run eagerly: aten::_local_scalar_dense 5\n"));
  EXPECT_THAT(text, Not(HasSubstr("hint:")));
  lazuli::reset();
  EXPECT_EQ(lazuli::explain(), "0 traces of 0 ops; 0 programs, 0 recompiles\n");
}

TEST_F(ExplainTest, ASizeThatKeepsChangingIsAHint) {
  const LogFile log;
  const auto x = torch::ones({40});
  const lazuli::DeviceMode mode(options().recompile_limit(4).log_file(log.path()));
  const auto step = [&](int64_t size) { return (x.slice(0, 0, size) * 2).sum(0).item<float>(); };
  for (int64_t size = 2; size < 12; ++size) EXPECT_EQ(step(size), 2 * size);
  const std::string text = lazuli::explain();
  EXPECT_THAT(text, HasSubstr("4 programs; hit recompile_limit (4), 5 traces ran eagerly\n"));
  EXPECT_THAT(text, HasSubstr("hint: 4 compiles in 9 steps at site 1: size of input 0 of op 0 aten::mul.Tensor at index 0 took 9 values; "
                              "LAZULI_DYNAMIC=auto compiles one program for all of them\n"));
}

TEST_F(ExplainTest, AnOperatorThatKeepsCuttingShortTracesIsAHint) {
  const lazuli::DeviceMode mode(options());
  const auto x = torch::ones({4});
  for (int i = 0; i < 12; ++i) EXPECT_EQ((x * 2).nonzero().size(0), 4);
  EXPECT_THAT(lazuli::explain(), HasSubstr("hint: aten::nonzero cut 12 of 12 traces: it cannot be recorded\n"));
}

TEST_F(ExplainTest, ManySitesAndProgramsStayBounded) {
  const LogFile log;
  const auto x = torch::ones({400});
  const lazuli::DeviceMode mode(options().recompile_limit(1 << 20).accumulated_recompile_limit(1 << 20).log_file(log.path()));
  for (int64_t size = 2; size < 102; ++size) EXPECT_EQ((x.slice(0, 0, size) * 2).sum(0).item<float>(), 2 * size);
  const std::string text = lazuli::explain();
  EXPECT_THAT(text, HasSubstr("    and 67 more\n"));
  EXPECT_LT(text.size(), 8000U);
}

// In a process of its own.
class ExplainDeathTest : public ExplainTest {
 protected:
  static void Run(const std::string& logs, int sizes) {
    {
      const lazuli::DeviceMode mode(options().recompile_limit(2).logs(logs));
      for (int64_t size = 2; size < 2 + sizes; ++size) Step(size);
    }
    std::exit(0);
  }
  void SetUp() override {
    ExplainTest::SetUp();
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
};

TEST_F(ExplainDeathTest, SummaryAtExit) {
  EXPECT_EXIT(Run("summary", 2), ::testing::ExitedWithCode(0),
              ::testing::AllOf(HasSubstr("[lazuli] 2 traces of "), HasSubstr("[lazuli] site 1 (after aten::_local_scalar_dense; "),
                               Not(HasSubstr("a recompile limit was reached"))));
}

TEST_F(ExplainDeathTest, ALineAtExitWhereALimitWasReached) {
  EXPECT_EXIT(
      Run("", 6), ::testing::ExitedWithCode(0),
      ::testing::AllOf(HasSubstr("[lazuli] a recompile limit was reached: 3 traces ran eagerly for it; LAZULI_LOGS=\"summary\" says "
                                 "where and why\n"),
                       Not(HasSubstr("traces of "))));
}

TEST_F(ExplainDeathTest, SilentAtExitOtherwise) { EXPECT_EXIT(Run("", 2), ::testing::ExitedWithCode(0), ::testing::Eq("")); }

}  // namespace
}  // namespace lazuli::testing
