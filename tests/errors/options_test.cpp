// Wrong and extreme options, as a program meets them.

#include <gmock/gmock.h>

#include <fstream>

#include "tests/support/error_of.h"
#include "tests/support/log_file.h"
#include "tests/support/same_as_eager.h"

namespace lazuli::testing {
namespace {

using ::testing::HasSubstr;

class OptionErrorsTest : public ::testing::Test {
 protected:
  void SetUp() override { lazuli::reset(); }

  static std::string ErrorOf(const Options& options) {
    try {
      const lazuli::DeviceMode mode(options);
    } catch (const c10::ValueError& error) {
      EXPECT_FALSE(lazuli::is_enabled());
      return error.what_without_backtrace();
    }
    return "";
  }

  // A small program with a fused kernel in it.
  static float Run() { return ((torch::arange(100, torch::kFloat) * 2 + 1).sqrt().sum(0)).item<float>(); }
};

TEST_F(OptionErrorsTest, WrongValuesNameTheNearest) {
  EXPECT_THAT(ErrorOf(Options().backend("llvn")), HasSubstr("did you mean 'llvm'?"));
  EXPECT_THAT(ErrorOf(Options().mode("max-autotun")), HasSubstr("did you mean 'max-autotune'?"));
  EXPECT_THAT(ErrorOf(Options().precision("stric")), HasSubstr("did you mean 'strict'?"));
  EXPECT_THAT(ErrorOf(Options().isa("avx-512")), HasSubstr("did you mean 'avx512'?"));
  EXPECT_THAT(ErrorOf(Options().logs("recompile")), HasSubstr("did you mean 'recompiles'?"));
  EXPECT_THAT(ErrorOf(Options().dump("fus")), HasSubstr("did you mean 'fuse'?"));
  EXPECT_THAT(ErrorOf(Options().recompile_limit(0)), HasSubstr("LAZULI_RECOMPILE_LIMIT"));
  EXPECT_THAT(ErrorOf(Options().stance("fail_on_recompil")), HasSubstr("did you mean 'fail_on_recompile'?"));
  EXPECT_THAT(ErrorOf(Options().stance("eager")), HasSubstr("expected default, force_eager, eager_on_recompile"));
  EXPECT_THAT(ErrorOf(Options().trace_limit(-5)), HasSubstr("a whole number of at least 1"));
}

TEST_F(OptionErrorsTest, AllWrongValuesAtOnce) {
  const std::string error = ErrorOf(Options().backend("llvn").isa("avx-512"));
  EXPECT_THAT(error, HasSubstr("'llvm'"));
  EXPECT_THAT(error, HasSubstr("'avx512'"));
}

TEST_F(OptionErrorsTest, WrongEnvironmentIsAnErrorOfTheMode) {
  setenv("LAZULI_BACKND", "aten", 1);
  const std::string name = ErrorOf(Options());
  unsetenv("LAZULI_BACKND");
  setenv("LAZULI_RECOMPILE_LIMIT", "many", 1);
  const std::string value = ErrorOf(Options());
  unsetenv("LAZULI_RECOMPILE_LIMIT");
  EXPECT_THAT(name, HasSubstr("LAZULI_BACKND: no such option; did you mean 'LAZULI_BACKEND'?"));
  EXPECT_THAT(value, HasSubstr("LAZULI_RECOMPILE_LIMIT: invalid value 'many'"));
}

TEST_F(OptionErrorsTest, AWrongStanceChangesNothing) {
  const lazuli::DeviceMode mode(Options().backend("aten"));
  const lazuli::StanceGuard guard("force_eager");
  for (const auto set : {+[] { lazuli::StanceGuard("eager_on_recompil"); }, +[] { lazuli::set_stance("eager_on_recompil"); }}) {
    EXPECT_THAT(testing::ErrorOf(set), HasSubstr("LAZULI_STANCE: invalid value 'eager_on_recompil': expected default, force_eager, "));
    EXPECT_THAT(testing::ErrorOf(set), HasSubstr("did you mean 'eager_on_recompile'?"));
    EXPECT_FALSE(lazuli::is_enabled());
  }
  EXPECT_THAT(testing::ErrorOf([] { lazuli::StanceGuard(""); }), HasSubstr("invalid value ''"));
}

TEST_F(OptionErrorsTest, TheOldOptionsStayInForce) {
  {
    const lazuli::DeviceMode mode(Options().recompile_limit(3).dynamic("0"));
    EXPECT_THROW(lazuli::DeviceMode(Options().backend("no")), c10::ValueError);
    EXPECT_TRUE(lazuli::is_enabled());
    for (int64_t size = 1; size < 8; ++size) EXPECT_EQ((torch::ones({size}) * 2).sum(0).item<float>(), 2 * size);
  }
  EXPECT_GT(lazuli::stats().recompile_limit_hits, 0);
}

TEST_F(OptionErrorsTest, NarrowerVectorInstructionsGiveTheSameNumbers) {
  const float eager = Run();
  for (const char* isa : {"auto", "sse4", "avx2", "avx512"}) {
    SCOPED_TRACE(isa);
    lazuli::reset();
    const lazuli::DeviceMode mode(Options().isa(isa));
    EXPECT_FLOAT_EQ(Run(), eager);
    EXPECT_GT(lazuli::stats().programs_compiled, 0);
    EXPECT_GT(lazuli::stats().kernel_launches, 0);
    EXPECT_EQ(lazuli::stats().compile_failures, 0);
  }
}

TEST_F(OptionErrorsTest, UnwritableDumpFolderIsReportedAndHarmless) {
  const LogFile log;
  const LogFile file;
  std::ofstream(file.path()) << "not a folder";
  const float eager = Run();
  const lazuli::DeviceMode mode(Options().dump("all").dump_dir(file.path() + "/dump").log_file(log.path()));
  EXPECT_FLOAT_EQ(Run(), eager);
  EXPECT_FLOAT_EQ(Run(), eager);
  EXPECT_GT(lazuli::stats().programs_compiled, 0);
  EXPECT_EQ(CountOf(log.text(), "cannot write into LAZULI_DUMP_DIR '" + file.path() + "/dump'"), 1) << log.text();
}

TEST_F(OptionErrorsTest, UnwritableLogFileFallsBackToStderr) {
  const LogFile file;
  std::ofstream(file.path()) << "not a folder";
  ::testing::internal::CaptureStderr();
  {
    const lazuli::DeviceMode mode(Options().log_file(file.path() + "/log").recompile_limit(1).dynamic("0"));
    for (int64_t size = 2; size < 6; ++size) EXPECT_EQ((torch::ones({size}) * 2).sum(0).item<float>(), 2 * size);
  }
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, HasSubstr("[lazuli] cannot write LAZULI_LOG_FILE '" + file.path() + "/log'"));
  EXPECT_THAT(text, HasSubstr("logging to stderr"));
  EXPECT_THAT(text, HasSubstr("[lazuli] hit recompile_limit (1)"));
}

}  // namespace
}  // namespace lazuli::testing
