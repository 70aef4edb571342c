// lazuli-trace: running, narrowing down, minimising, emitting.

#include "tools/trace_lab.h"

#include <gmock/gmock.h>

#include <fstream>

#include "absl/strings/str_replace.h"
#include "codegen/ir/trace_text.h"
#include "tests/support/log_file.h"
#include "tests/tools/run_tool.h"

namespace lazuli::tools {
namespace {

using lazuli::testing::LogFile;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// One elementary function among IEEE operations: compiled, only that one may differ from ATen's in its last bit.
constexpr char kOneFunction[] =
    "// SCALARS: 0.5 3\n"
    "trace scalars=2 offsets=0\n"
    "storage %0: input cpu\n"
    "storage %1: fresh 16000 bytes cpu\n"
    "storage %2: fresh 16000 bytes cpu\n"
    "storage %3: fresh 16000 bytes cpu\n"
    "storage %4: fresh 16000 bytes cpu live\n"
    "storage %5: input cpu mutated\n"
    "%1 f32[4000] = aten::mul.Tensor(%0 f32[4000], other=#0:f64)\n"
    "%2 f32[4000] = aten::tanh(%1 f32[4000])\n"
    "%3 f32[4000] = aten::relu(%2 f32[4000])\n"
    "%4 f32[4000] = aten::add.Tensor(%3 f32[4000], %0 f32[4000], alpha=1)\n"
    "aten::add_.Tensor(%5 f32[4000], %0 f32[4000], alpha=#1:f64)\n";

TraceCase Case(const std::string& text) {
  auto test = ReadTraceCase(text);
  EXPECT_TRUE(test.ok()) << test.status();
  return *std::move(test);
}

LabOptions Exactly() {
  LabOptions options = DefaultLabOptions();
  options.tolerance = {};
  return options;
}

bool DiffersExactly(const TraceCase& test, const std::vector<bool>& compiled) {
  return !CompareWithReplay(test, Exactly(), compiled).difference.empty();
}

TEST(TraceCaseTest, PrintsWhatItReads) {
  const std::string text = std::string("// SCALARS: 0.5 inf\n// OFFSETS: 7\n") +
                           "trace scalars=2 offsets=1\n"
                           "storage %0: input cpu\n"
                           "storage %1: fresh 8 bytes cpu live\n"
                           "%1 f32[2] = aten::mul.Tensor(%0 f32[2]+o0, other=#1:f64)\n";
  const TraceCase test = Case(text);
  EXPECT_EQ(test.offsets[0], 7);
  EXPECT_EQ(PrintTraceCase(test), text);
  EXPECT_EQ(test.trace.ops[0].index, 0);
}

TEST(TraceCaseTest, NumbersThatTheFileLacksAreMadeUp) {
  const TraceCase test = Case("trace scalars=3 offsets=2\n// SCALARS: 9\n");
  EXPECT_THAT(test.scalars, ElementsAre(9, 1.75, 2.75));
  EXPECT_THAT(test.offsets, ElementsAre(1, 2));
}

TEST(TraceLabTest, ComparesBothBackends) {
  const TraceCase test = Case(kOneFunction);
  LabOptions options = Exactly();
  options.backend = "aten";
  const Comparison aten = CompareWithReplay(test, options);
  EXPECT_EQ(aten.difference, "");
  EXPECT_THAT(aten.largest, ElementsAre("%0: largest difference 0", "%4: largest difference 0", "%5: largest difference 0"));
  const Comparison exact = CompareWithReplay(test, Exactly());
  EXPECT_THAT(exact.difference, HasSubstr("storage %4, element "));
  options = DefaultLabOptions();
  options.tolerance = {8, 0};
  EXPECT_EQ(CompareWithReplay(test, options).difference, "");
}

TEST(TraceLabTest, OtherSeedsAreOtherInputs) {
  const TraceCase test = Case(kOneFunction);
  const TraceMemory one(test, 1), again(test, 1), two(test, 2);
  EXPECT_TRUE(one.input(0).equal(again.input(0)));
  EXPECT_FALSE(one.input(0).equal(two.input(0)));
}

TEST(TraceLabTest, OnlyTheOpsAskedForAreCompiled) {
  const TraceCase test = Case(kOneFunction);
  const auto compile = [&](std::vector<bool> compiled) {
    codegen::PipelineOptions options;
    options.target = DefaultLabOptions().target;
    options.compiled_ops = std::move(compiled);
    auto program = codegen::Compile(test.trace, options, nullptr);
    EXPECT_TRUE(program.ok()) << program.status();
    return std::make_pair((*program)->num_kernels(), (*program)->num_aten_calls());
  };
  EXPECT_EQ(compile({false, false, false, false, false}), std::make_pair(0, 5));
  EXPECT_EQ(compile({false, true, false, false, false}), std::make_pair(1, 4));
  EXPECT_EQ(compile({}).second, 0);
}

TEST(TraceLabTest, BisectFindsTheFunction) { EXPECT_THAT(Bisect(Case(kOneFunction), DiffersExactly), ElementsAre(1)); }

TEST(TraceLabTest, BisectFindsOpsThatOnlyFailTogether) {
  const auto both = [](const TraceCase&, const std::vector<bool>& compiled) { return compiled[0] && compiled[4]; };
  EXPECT_THAT(Bisect(Case(kOneFunction), both), ElementsAre(0, 4));
  const auto each = [](const TraceCase&, const std::vector<bool>& compiled) {
    return std::count(compiled.begin(), compiled.end(), true) >= 4;
  };
  EXPECT_EQ(Bisect(Case(kOneFunction), each).size(), 4U);
}

TEST(TraceLabTest, BisectWithoutADifference) {
  EXPECT_THAT(Bisect(Case(kOneFunction), [](const TraceCase&, const std::vector<bool>&) { return false; }), IsEmpty());
}

TEST(TraceLabTest, MinimiseLeavesTheFunction) {
  const TraceCase small = Minimise(Case(kOneFunction), DiffersExactly);
  EXPECT_EQ(codegen::PrintTrace(small.trace),
            "trace scalars=2 offsets=0\n"
            "storage %0: input cpu\n"
            "storage %1: fresh 16000 bytes cpu live\n"
            "%1 f32[4000] = aten::tanh(%0 f32[4000])\n");
  EXPECT_TRUE(DiffersExactly(small, {}));
}

TEST(TraceLabTest, WithoutAnOpItsResultIsAnInputAndItsOperandsStayVisible) {
  const auto smaller = WithoutOp(Case(kOneFunction), 2);
  ASSERT_TRUE(smaller.has_value());
  EXPECT_EQ(codegen::PrintTrace(smaller->trace),
            "trace scalars=2 offsets=0\n"
            "storage %0: input cpu\n"
            "storage %1: fresh 16000 bytes cpu\n"
            "storage %2: fresh 16000 bytes cpu live\n"
            "storage %3: input cpu\n"
            "storage %4: fresh 16000 bytes cpu live\n"
            "storage %5: input cpu mutated\n"
            "%1 f32[4000] = aten::mul.Tensor(%0 f32[4000], other=#0:f64)\n"
            "%2 f32[4000] = aten::tanh(%1 f32[4000])\n"
            "%4 f32[4000] = aten::add.Tensor(%3 f32[4000], %0 f32[4000], alpha=1)\n"
            "aten::add_.Tensor(%5 f32[4000], %0 f32[4000], alpha=#1:f64)\n");
  const TraceCase single =
      Case("trace scalars=0 offsets=0\nstorage %0: input cpu\nstorage %1: fresh 8 bytes cpu live\n%1 f32[2] = aten::exp(%0 f32[2])\n");
  EXPECT_FALSE(WithoutOp(single, 0).has_value());
}

TEST(TraceLabTest, EmitsAProgram) {
  const std::string source = EmitProgram(Case(kOneFunction), DefaultLabOptions());
  EXPECT_THAT(source, HasSubstr("inline torch::Tensor FuzzInput("));  // Nothing of the source tree is needed.
  EXPECT_THAT(source, ::testing::Not(HasSubstr("#include \"t")));
  EXPECT_THAT(source, HasSubstr("  torch::Tensor s0 = FuzzInput({4000}, torch::kFloat, 3 + round);\n"));
  EXPECT_THAT(
      source,
      HasSubstr("  const auto r0 = FuzzCall(\"aten::mul.Tensor\", {FuzzWindow(s0, torch::kFloat, {4000}, {1}, 0), FuzzNumber(0.5)});\n"
                "  torch::Tensor s1 = r0[0];\n"));
  EXPECT_THAT(source, HasSubstr("  return {s4, s5};\n}\n\nint main() { return CompareWithEager(Program, \"llvm\"); }\n"));
}

// The command, on a file with `text`.
std::string RunTrace(const std::string& arguments, const std::string& text, int* status) {
  const LogFile file;
  std::ofstream(file.path()) << text;
  const size_t at = arguments.find("FILE");
  return testing::RunTool("lazuli-trace", arguments.substr(0, at) + file.path() + arguments.substr(at + 4), status);
}

TEST(TraceCommandTest, FindsTheFunctionFromTheCommandLine) {
  int status = -1;
  const std::string bisected = RunTrace("bisect FILE --tolerance=0", kOneFunction, &status);
  EXPECT_EQ(status, 1);
  EXPECT_THAT(bisected, HasSubstr("  op 1 aten::tanh(%1 f32[4000])\nstorage %4, element "));
}

TEST(TraceCommandTest, RunsWithinTheTolerance) {
  int status = -1;
  const std::string output = RunTrace("run FILE", kOneFunction, &status);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(output, ::testing::AllOf(HasSubstr("aten: as op by op\n"), HasSubstr("llvm: as op by op\n")));
}

TEST(TraceCommandTest, PrintsTheGraphAfterAPass) {
  int status = -1;
  EXPECT_THAT(RunTrace("print FILE --stop-after=fuse", kOneFunction, &status), HasSubstr("\ngroup ["));
  EXPECT_EQ(status, 0);
  EXPECT_THAT(RunTrace("print FILE --stop-after=nothing", kOneFunction, &status),
              HasSubstr("passes: graph, fold, dce, cse, windows, conv_layout, attention, remat, fuse"));
  EXPECT_EQ(status, 2);
}

TEST(TraceCommandTest, PrintsKernels) {
  int status = -1;
  EXPECT_THAT(RunTrace("print FILE --stop-after=kernel", kOneFunction, &status),
              ::testing::AllOf(HasSubstr("tanh.Float"), HasSubstr("\ndefine ")));
  EXPECT_EQ(status, 0);
  EXPECT_THAT(
      RunTrace("print FILE --stop-after=kernel --cuda-arch=sm_90", absl::StrReplaceAll(kOneFunction, {{" cpu", " cuda:0"}}), &status),
      HasSubstr("\nextern \"C\" __global__ "));
  EXPECT_EQ(status, 0);
}

TEST(TraceCommandTest, SaysWhatIsWrong) {
  int status = -1;
  EXPECT_THAT(RunTrace("frobnicate FILE", kOneFunction, &status), HasSubstr("no such command: frobnicate"));
  EXPECT_EQ(status, 2);
  const char* const refused = R"(
trace scalars=0 offsets=0
storage %0: input cpu
storage %1: input cpu
storage %2: fresh 4 bytes cpu live
%2 f32[] = aten::binary_cross_entropy(%0 f32[100], %1 f32[100], weight=none, reduction=1)
)";
  for (const char* command : {"run FILE", "bisect FILE", "minimise FILE"}) {
    EXPECT_THAT(RunTrace(command, refused, &status), HasSubstr("nothing was compared"));
    EXPECT_EQ(status, 2);
  }
  EXPECT_THAT(RunTrace("run FILE --tolerance=x", kOneFunction, &status), HasSubstr("--tolerance: expected a number"));
  EXPECT_THAT(RunTrace("run FILE", "trace scalars=0 offsets=0\nnonsense\n", &status), HasSubstr("line 2"));
  EXPECT_EQ(status, 2);
}

}  // namespace
}  // namespace lazuli::tools
