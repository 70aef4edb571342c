#include "runtime/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "runtime/cpu_features.h"
#include "runtime/log.h"

namespace lazuli::runtime {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Sets a variable for one test.
class ScopedEnv {
 public:
  ScopedEnv(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~ScopedEnv() { unsetenv(name_); }

 private:
  const char* name_;
};

std::string EnvError() { return std::string(OptionsFromEnv().status().message()); }

TEST(OptionsTest, DefaultsAreTheDocumentedOnes) {
  const Options options;
  EXPECT_EQ(options.mode(), "default");
  EXPECT_EQ(options.backend(), "llvm");
  EXPECT_EQ(options.precision(), "eager");
  EXPECT_EQ(options.isa(), "auto");
  EXPECT_EQ(options.dynamic(), "auto");
  EXPECT_EQ(options.recompile_limit(), 8);
  EXPECT_EQ(options.accumulated_recompile_limit(), 256);
  EXPECT_EQ(options.stance(), "default");
  EXPECT_FALSE(options.error_on_recompile());
  EXPECT_FALSE(options.fail_on_recompile_limit_hit());
  EXPECT_FALSE(options.fullgraph());
  EXPECT_EQ(options.autotune_ms(), 200);
  EXPECT_EQ(options.cache_size(), 1024);
  EXPECT_TRUE(options.disk_cache());
  EXPECT_EQ(options.cache_dir(), "");
  EXPECT_EQ(options.cache_mb(), 1024);
  EXPECT_EQ(options.trace_limit(), 4096);
  EXPECT_EQ(options.trace_bytes(), 0);
  EXPECT_FALSE(options.stacks());
  EXPECT_EQ(options.logs(), "");
  EXPECT_EQ(options.dump_dir(), "lazuli_dump");
}

TEST(OptionsTest, SettersChain) {
  const Options options = Options().mode("max-autotune").recompile_limit(16).stacks(true);
  EXPECT_EQ(options.mode(), "max-autotune");
  EXPECT_EQ(options.recompile_limit(), 16);
  EXPECT_TRUE(options.stacks());
  EXPECT_NE(options, Options());
  EXPECT_EQ(options, Options().stacks(true).recompile_limit(16).mode("max-autotune"));
}

TEST(OptionsTest, EnvironmentOverridesDefaults) {
  ScopedEnv backend("LAZULI_BACKEND", "aten");
  ScopedEnv limit("LAZULI_RECOMPILE_LIMIT", "3");
  ScopedEnv stacks("LAZULI_STACKS", "1");
  const absl::StatusOr<Options> options = OptionsFromEnv();
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->backend(), "aten");
  EXPECT_EQ(options->recompile_limit(), 3);
  EXPECT_TRUE(options->stacks());
  EXPECT_EQ(options->cache_size(), 1024);
}

TEST(OptionsTest, CodeOverridesEnvironmentEvenWithTheDefault) {
  ScopedEnv limit("LAZULI_RECOMPILE_LIMIT", "3");
  EXPECT_EQ(ResolveOptions(Options())->recompile_limit(), 3);
  EXPECT_EQ(ResolveOptions(Options().recompile_limit(8))->recompile_limit(), 8);
}

TEST(OptionsTest, UnknownVariableNamesTheNearest) {
  ScopedEnv env("LAZULI_BACKND", "aten");
  EXPECT_EQ(OptionsFromEnv().status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(EnvError(), "LAZULI_BACKND: no such option; did you mean 'LAZULI_BACKEND'?");
}

TEST(OptionsTest, UnknownVariableFarFromAllListsThem) {
  ScopedEnv env("LAZULI_QQQQQQQQQQQQQQQQQQQQ", "1");
  EXPECT_THAT(EnvError(), HasSubstr("no such option; valid: LAZULI, LAZULI_MODE"));
}

TEST(OptionsTest, BadChoiceNamesTheNearest) {
  ScopedEnv env("LAZULI_MODE", "max-autotun");
  EXPECT_EQ(EnvError(),
            "LAZULI_MODE: invalid value 'max-autotun': expected default, reduce-overhead, max-autotune, max-autotune-no-cudagraphs; did "
            "you mean 'max-autotune'?");
}

TEST(OptionsTest, StancesByName) {
  EXPECT_EQ(*ParseStance("default"), Stance::kDefault);
  EXPECT_EQ(*ParseStance("force_eager"), Stance::kForceEager);
  EXPECT_EQ(*ParseStance("eager_on_recompile"), Stance::kEagerOnRecompile);
  EXPECT_EQ(*ParseStance("fail_on_recompile"), Stance::kFailOnRecompile);
  EXPECT_EQ(*ParseStance("eager_then_compile"), Stance::kEagerThenCompile);
  EXPECT_THAT(std::string(ParseStance("force-eager").status().message()), HasSubstr("did you mean 'force_eager'?"));
}

TEST(OptionsTest, BadListElementIsNamed) {
  ScopedEnv env("LAZULI_LOGS", "guards,recompile");
  EXPECT_THAT(EnvError(), HasSubstr("LAZULI_LOGS: invalid value 'recompile': expected a comma-separated list of recompiles"));
  EXPECT_THAT(EnvError(), HasSubstr("did you mean 'recompiles'?"));
}

TEST(OptionsTest, BadNumbers) {
  for (const char* value : {"", "0", "-1", "8x", "1e3", "99999999999999999999"}) {
    ScopedEnv env("LAZULI_RECOMPILE_LIMIT", value);
    EXPECT_EQ(EnvError(), std::string("LAZULI_RECOMPILE_LIMIT: invalid value '") + value + "': expected a whole number of at least 1");
  }
}

TEST(OptionsTest, BadBool) {
  ScopedEnv env("LAZULI_STACKS", "true");
  EXPECT_EQ(EnvError(), "LAZULI_STACKS: invalid value 'true': expected 0 or 1");
}

TEST(OptionsTest, EveryProblemIsReportedAtOnce) {
  ScopedEnv a("LAZULI_BACKND", "aten");
  ScopedEnv b("LAZULI_ISA", "avx1024");
  EXPECT_THAT(EnvError(), HasSubstr("LAZULI_BACKND: no such option"));
  EXPECT_THAT(EnvError(), HasSubstr("\nLAZULI_ISA: invalid value 'avx1024'"));
}

TEST(OptionsTest, ValuesSetInCodeAreChecked) {
  const absl::Status status = ResolveOptions(Options().backend("lvm").recompile_limit(0)).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("LAZULI_BACKEND: invalid value 'lvm': expected llvm or aten; did you mean 'llvm'?"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("LAZULI_RECOMPILE_LIMIT: invalid value '0'"));
}

TEST(OptionsTest, VariablesOfOtherProgramsAreIgnored) {
  ScopedEnv torch("LAZULI_TORCH", "/anywhere");
  ScopedEnv test("LAZULI_TEST_SEED", "7");
  ScopedEnv other("LAZULIX", "1");
  EXPECT_TRUE(OptionsFromEnv().ok());
}

TEST(OptionsTest, EnabledFromEnv) {
  EXPECT_FALSE(*EnabledFromEnv());
  ScopedEnv unknown("LAZULI_NONSENSE_OPTION", "1");
  EXPECT_FALSE(*EnabledFromEnv());  // Off: what else is set does not matter.
  {
    ScopedEnv off("LAZULI", "0");
    EXPECT_FALSE(*EnabledFromEnv());
  }
  ScopedEnv on("LAZULI", "1");
  EXPECT_FALSE(EnabledFromEnv().ok());
}

TEST(OptionsTest, EnabledFromEnvRejectsOtherWords) {
  ScopedEnv on("LAZULI", "yes");
  EXPECT_EQ(EnabledFromEnv().status().message(), "LAZULI: invalid value 'yes': expected 0 or 1");
}

TEST(OptionsDeathTest, ExitForBadOptionsPrefixesEveryLine) {
  EXPECT_EXIT(ExitForBadOptions(absl::InvalidArgumentError("a: bad\nb: worse")), ::testing::ExitedWithCode(2),
              "\\[lazuli\\] a: bad\n\\[lazuli\\] b: worse");
}

TEST(OptionsTest, ActivateParsesForWarmPaths) {
  ASSERT_TRUE(ActivateOptions(Options().backend("aten").precision("strict").isa("sse4").trace_limit(17).logs("guards")).ok());
  const ActiveOptions& first = Active();
  EXPECT_EQ(first.backend, Backend::kAten);
  EXPECT_EQ(first.precision, Precision::kStrict);
  EXPECT_EQ(first.isa, Isa::kSse4);
  EXPECT_EQ(first.trace_limit, 17);
  EXPECT_TRUE(LogEnabled(LogCategory::kGuards));
  EXPECT_FALSE(LogEnabled(LogCategory::kFusion));
  ASSERT_TRUE(ActivateOptions(Options()).ok());
  EXPECT_EQ(Active().backend, Backend::kLlvm);
  EXPECT_EQ(Active().isa, WidestIsa());
  EXPECT_FALSE(LogEnabled(LogCategory::kGuards));
  EXPECT_EQ(first.trace_limit, 17);  // References to earlier options stay valid.
}

TEST(OptionsTest, ActivateKeepsTheOldOptionsOnError) {
  ASSERT_TRUE(ActivateOptions(Options().trace_limit(21)).ok());
  EXPECT_FALSE(ActivateOptions(Options().isa("mmx")).ok());
  EXPECT_EQ(Active().trace_limit, 21);
  ASSERT_TRUE(ActivateOptions(Options()).ok());
}

TEST(OptionsTest, EqualOptionsAreKeptOnce) {
  ASSERT_TRUE(ActivateOptions(Options().trace_limit(33)).ok());
  const ActiveOptions* first = &Active();
  ASSERT_TRUE(ActivateOptions(Options()).ok());
  ASSERT_TRUE(ActivateOptions(Options().trace_limit(33)).ok());
  EXPECT_EQ(&Active(), first);
  ASSERT_TRUE(ActivateOptions(Options()).ok());
}

TEST(OptionsTest, IsaIsCappedByTheCpu) {
  ASSERT_TRUE(ActivateOptions(Options().isa("avx512")).ok());
  EXPECT_LE(Active().isa, WidestIsa());
  ASSERT_TRUE(ActivateOptions(Options()).ok());
}

TEST(OptionsTest, HelpNamesEveryVariable) {
  const std::string help = OptionsHelp();
  for (const char* env : {"LAZULI (", "LAZULI_MODE", "LAZULI_DYNAMIC", "LAZULI_DUMP_DIR"}) EXPECT_THAT(help, HasSubstr(env));
}

TEST(OptionsTest, DocumentationIsCurrent) {
  std::ifstream file(LAZULI_SOURCE_DIR "/docs/OPTIONS.md");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), OptionsMarkdown()) << "run: lazuli-options --markdown > docs/OPTIONS.md";
}

TEST(NearestNameTest, PicksTheSmallestEditDistance) {
  const std::vector<std::string> names = {"recompiles", "recompiles_verbose", "guards"};
  EXPECT_EQ(NearestName("recompile", names), "recompiles");
  EXPECT_EQ(NearestName("RECOMPILES", names), "recompiles");
  EXPECT_EQ(NearestName("gaurds", names), "guards");
  EXPECT_EQ(NearestName("something_else_entirely", names), "");
}

}  // namespace
}  // namespace lazuli::runtime
