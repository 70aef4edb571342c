#include "guards/guard.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include "guards/program_cache.h"
#include "runtime/kernel_settings.h"
#include "tests/support/log_builder.h"

namespace lazuli::guards {
namespace {

using codegen::TraceLog;
using codegen::Word;
using testing::LogBuilder;

// relu(a @ b + 2).sum(dim), and a gelu with a string argument.
TraceLog Example(int64_t rows = 64, int64_t dim = 0, double factor = 2, c10::ScalarType dtype = c10::kFloat, bool visible = true) {
  LogBuilder b;
  const int32_t x = b.Input();
  const int32_t w = b.Input();
  b.Begin("aten::mm").Tensor(x, {rows, 8}, dtype).Tensor(w, {8, 3}, dtype);
  const int32_t product = b.End({rows, 3}, dtype);
  b.Begin("aten::add.Scalar").Tensor(product, {rows, 3}, dtype).Slot(factor).Slot(1);
  const int32_t sum = b.End({rows, 3}, dtype);
  b.Begin("aten::sum.dim_IntList").Tensor(sum, {rows, 3}, dtype).Ints({dim}).Bool(false).None();
  const int32_t total = b.End({3}, dtype);
  b.Begin("aten::gelu").Tensor(total, {3}, dtype).String("tanh");
  const int32_t result = b.End({3}, dtype);
  return b.Finish(visible ? std::vector<int32_t>{sum, result} : std::vector<int32_t>{result});
}

// relu, and one of its rows.
TraceLog RowOf(int64_t row) {
  LogBuilder b;
  const int32_t x = b.Input();
  b.Begin("aten::relu").Tensor(x, {6, 4});
  const int32_t y = b.End({6, 4});
  b.Begin("aten::exp").Window(y, {4}, /*slot=*/0, 4 * row);
  return b.Finish({b.End({4})});
}

std::string Failure(const TraceLog& expected, const TraceLog& actual) {
  const auto guard = FirstFailure(expected, actual);
  return guard.has_value() ? guard->Describe(expected, actual) : "none";
}

void ExpectOneGuardForEachWord(const TraceLog& log) {
  const auto guards = BuildGuards(log);
  EXPECT_EQ(guards.size(), log.code.size() + log.shapes.size());
  std::vector<int> code(log.code.size());
  std::vector<int> shapes(log.shapes.size());
  for (const Guard& guard : guards) {
    EXPECT_TRUE(guard.Check(log)) << guard.Text(log);
    ++(guard.OnShapes() ? shapes : code).at(guard.position);
  }
  for (const int count : code) EXPECT_EQ(count, 1);
  for (const int count : shapes) EXPECT_EQ(count, 1);
}

TEST(GuardTest, EveryWordHasOneGuardThatHoldsForItsOwnLog) {
  ExpectOneGuardForEachWord(Example());
  ExpectOneGuardForEachWord(RowOf(2));
}

TEST(GuardTest, DescribesOffsets) {
  EXPECT_EQ(Failure(RowOf(2), RowOf(3)), "input 0 of op 1 aten::exp offset mismatch. expected 8, actual 12");
  EXPECT_EQ(Failure(RowOf(2), RowOf(2)), "none");
  EXPECT_EQ(OperandsOf(RowOf(2)).size(), 2u);
}

TEST(GuardTest, GuardsAndMemoryComparisonAgreeOnEveryWord) {
  // A word may come to name the operator after its own, which has to be one.
  for (const char* name : {"aten::tanh", "aten::neg"}) ASSERT_NE(codegen::FindOpInfo(name), nullptr);
  const TraceLog log = Example();
  EXPECT_TRUE(Matches(log, Example()));
  EXPECT_FALSE(FirstFailure(log, Example()).has_value());
  for (const bool shapes : {false, true}) {
    const size_t size = shapes ? log.shapes.size() : log.code.size();
    for (size_t i = 0; i < size; ++i) {
      TraceLog other = log;
      (shapes ? other.shapes : other.code)[i] ^= Word{1} << 4;
      EXPECT_FALSE(Matches(log, other));
      EXPECT_NE(Fingerprint(log), Fingerprint(other));
      const auto guard = FirstFailure(log, other);
      ASSERT_TRUE(guard.has_value());
      EXPECT_EQ(guard->position, i);
      EXPECT_FALSE(guard->Check(other));
      EXPECT_NE(guard->Describe(log, other), "");
    }
  }
}

TEST(GuardTest, RunTimeValuesAreNotCompared) {
  TraceLog other = Example(64, 0, /*factor=*/-17);
  other.offsets.push_back(3);
  EXPECT_TRUE(Matches(Example(), other));
  EXPECT_EQ(Fingerprint(Example()), Fingerprint(other));
}

TEST(GuardTest, DescribesSizes) {
  EXPECT_EQ(Failure(Example(64), Example(48)), "input 0 of op 0 aten::mm size mismatch at index 0. expected 64, actual 48");
}

TEST(GuardTest, DescribesStrides) {
  TraceLog other = Example();
  other.shapes[2] = 1;
  EXPECT_EQ(Failure(Example(), other), "input 0 of op 0 aten::mm stride mismatch at index 0. expected 8, actual 1");
}

TEST(GuardTest, DescribesDtypes) {
  EXPECT_EQ(Failure(Example(), Example(64, 0, 2, c10::kDouble)), "input 0 of op 0 aten::mm dtype mismatch. expected Float, actual Double");
}

TEST(GuardTest, DescribesArguments) {
  EXPECT_EQ(Failure(Example(64, 0), Example(64, 1)),
            "input 1 of op 2 aten::sum.dim_IntList value of 'dim' mismatch at index 0. expected 0, actual 1");
  EXPECT_EQ(Failure(Example(64, -1), Example(64, 1)),
            "input 1 of op 2 aten::sum.dim_IntList value of 'dim' mismatch at index 0. expected -1, actual 1");
}

// One var.correction with these arguments.
TraceLog Variance(std::vector<int64_t> dims, bool has_dims, double correction, bool keepdim) {
  LogBuilder b;
  const int32_t x = b.Input();
  b.Begin("aten::var.correction").Tensor(x, {4, 3});
  has_dims ? b.Ints(dims) : b.None();
  b.Double(correction).Bool(keepdim);
  return b.Finish({b.End({4})});
}

TEST(GuardTest, DescribesListsFlagsAndNumbers) {
  const std::string op = "op 0 aten::var.correction value of ";
  EXPECT_EQ(Failure(Variance({1}, true, 1, false), Variance({0, 1}, true, 1, false)),
            "input 1 of " + op + "'dim' mismatch. expected a list of length 1, actual a list of length 2");
  EXPECT_EQ(Failure(Variance({1}, true, 1, false), Variance({}, false, 1, false)),
            "input 1 of " + op + "'dim' mismatch. expected a list of length 1, actual none");
  EXPECT_EQ(Failure(Variance({1}, true, 1, false), Variance({1}, true, 0.5, false)),
            "input 2 of " + op + "'correction' mismatch. expected 1, actual 0.5");
  EXPECT_EQ(Failure(Variance({1}, true, 1, false), Variance({1}, true, 1, true)),
            "input 3 of " + op + "'keepdim' mismatch. expected false, actual true");
}

TEST(GuardTest, DescribesOperators) {
  TraceLog other = Example();
  other.code[0] = codegen::OpWord(codegen::FindOpInfo("aten::bmm")->id, runtime::kCpuCode, c10::kFloat);
  EXPECT_EQ(Failure(Example(), other), "op 0 mismatch. expected aten::mm, actual aten::bmm");
  other.code[0] = codegen::OpWord(codegen::FindOpInfo("aten::mm")->id, runtime::kCpuCode, c10::kDouble);
  EXPECT_EQ(Failure(Example(), other), "op 0 mismatch. expected aten::mm, actual aten::mm, default dtype Double");
  at::Context& context = at::globalContext();
  ASSERT_EQ(runtime::KernelSettings::Current().number(), 0);
  context.setBenchmarkCuDNN(true);
  const uint16_t number = runtime::KernelSettings::Current().number();
  context.setBenchmarkCuDNN(false);
  other.code[0] = codegen::OpWord(codegen::FindOpInfo("aten::mm")->id, runtime::kCpuCode, c10::kFloat, number);
  EXPECT_EQ(Failure(Example(), other), "op 0 mismatch. expected aten::mm, actual aten::mm, under benchmark_cudnn 1");
}

TEST(GuardTest, DeadStoragesMatchVisibleOnes) {
  const TraceLog visible = Example(), dead = Example(64, 0, 2, c10::kFloat, /*visible=*/false);
  EXPECT_TRUE(MatchesButForDead(visible, dead));
  EXPECT_TRUE(MatchesButForDead(visible, visible));
  EXPECT_FALSE(MatchesButForDead(dead, visible));
  EXPECT_FALSE(MatchesButForDead(visible, Example(32, 0, 2, c10::kFloat, /*visible=*/false)));
  EXPECT_FALSE(MatchesButForDead(visible, Example(64, 1, 2, c10::kFloat, /*visible=*/false)));
  EXPECT_FALSE(MatchesButForDead(visible, TraceLog()));
}

TEST(GuardTest, DescribesVisibility) {
  EXPECT_EQ(Failure(Example(), Example(64, 0, 2, c10::kFloat, /*visible=*/false)),
            "storage 3 visibility after the trace mismatch. expected visible, actual dead");
}

TEST(GuardTest, DescribesTheEndOfATrace) {
  LogBuilder shorter;
  const int32_t x = shorter.Input();
  const int32_t w = shorter.Input();
  shorter.Begin("aten::mm").Tensor(x, {64, 8}).Tensor(w, {8, 3});
  const TraceLog one_op = shorter.Finish({shorter.End({64, 3})});
  EXPECT_EQ(Failure(Example(), one_op), "op 1 mismatch. expected aten::add.Scalar, actual end of trace");
  EXPECT_EQ(Failure(one_op, Example()), "op 1 mismatch. expected end of trace, actual aten::add.Scalar");
}

TEST(GuardTest, TextStatesTheCondition) {
  const TraceLog log = Example();
  const auto guards = BuildGuards(log);
  EXPECT_EQ(guards[0].Text(log), "op 0 == aten::mm");
  EXPECT_EQ(guards[2].Text(log), "size of input 0 of op 0 aten::mm at index 0 == 64");
}

}  // namespace
}  // namespace lazuli::guards
