// Kernels of a GPU do not wait for operators that are recorded much later than what others need of them.
#include "codegen/passes/recorded_apart.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/support/gpu_graph.h"

namespace lazuli::codegen {
namespace {

// A sum that the next operator needs, and that an input is updated by after `between` others.
std::string SumAndUpdate(int between) {
  std::string storages = "storage %0: input cuda:0\nstorage %1: fresh 131072 bytes cuda:0\nstorage %2: fresh 2097152 bytes cuda:0\n";
  std::string ops = "%1 f32[32768] = aten::sum.dim_IntList(%0 f32[16,32768], dim=[0], keepdim=false, dtype=none)\n";
  absl::StrAppend(&ops, "%2 f32[16,32768] = aten::mul.Tensor(%0 f32[16,32768], %1 f32[32768])\n");
  int last = 2;
  for (int i = 0; i < between; ++i, ++last) {
    absl::StrAppend(&storages, "storage %", last + 1, ": fresh 2097152 bytes cuda:0", i + 1 == between ? " live" : "", "\n");
    absl::StrAppend(&ops, "%", last + 1, " f32[16,32768] = aten::mul.Tensor(%", last, " f32[16,32768], %", last, " f32[16,32768])\n");
  }
  absl::StrAppend(&storages, "storage %", last + 1, ": input cuda:0 mutated\n");
  absl::StrAppend(&ops, "aten::add_.Tensor(%", last + 1, " f32[32768], %1 f32[32768], alpha=#0:f64)\n");
  return absl::StrCat("trace scalars=1 offsets=0\n", storages, ops);
}

// Whether the update is in one kernel with the sum. -1: an error.
int UpdatesWhereItSums(const std::string& text) {
  const auto graph = lazuli::testing::GpuGraph(text);
  if (!graph.ok()) return ADD_FAILURE() << graph.status(), -1;
  for (const Group& group : graph->groups) {
    bool sums = false, updates = false;
    for (const NodeId n : group.nodes) {
      const Node& node = graph->nodes[n];
      sums = sums || (node.op.info != nullptr && node.op.info->name == "aten::sum.dim_IntList");
      updates = updates || node.kind == Node::Kind::kUpdate;
    }
    if (sums) return updates ? 1 : 0;
  }
  return ADD_FAILURE() << "no sum", -1;
}

TEST(RecordedApart, AnUpdateSoonAfterIsPartOfTheKernel) { EXPECT_EQ(UpdatesWhereItSums(SumAndUpdate(8)), 1); }

TEST(RecordedApart, OneMuchLaterIsNot) { EXPECT_EQ(UpdatesWhereItSums(SumAndUpdate(kMostOpsApart + 8)), 0); }

TEST(RecordedApart, OnTheCpuItIs) {
  EXPECT_EQ(UpdatesWhereItSums(absl::StrReplaceAll(SumAndUpdate(kMostOpsApart + 8), {{"cuda:0", "cpu"}})), 1);
}

// The sums of a large product's columns, which an input is updated by after `between` operators.
std::string SumOfProduct(int between, const std::string& product) {
  std::string storages =
      "storage %0: input cuda:0\nstorage %1: fresh 4194304 bytes cuda:0\nstorage %2: fresh 4096 bytes cuda:0\nstorage %3: input cuda:0 "
      "mutated\nstorage %4: input cuda:0\n";
  std::string ops = absl::StrCat("%1 f32[1024,1024] = ", product, "\n%2 f32[1024] = aten::sum.dim_IntList(%1 f32[1024,1024], dim=[0], ",
                                 "keepdim=false, dtype=none)\n");
  int last = 4;
  for (int i = 0; i < between; ++i, ++last) {
    absl::StrAppend(&storages, "storage %", last + 1, ": fresh 4096 bytes cuda:0", i + 1 == between ? " live" : "", "\n");
    absl::StrAppend(&ops, "%", last + 1, " f32[1024] = aten::mul.Tensor(%", last, " f32[1024], %", last, " f32[1024])\n");
  }
  return absl::StrCat("trace scalars=1 offsets=0\n", storages, ops, "aten::add_.Tensor(%3 f32[1024], %2 f32[1024], alpha=#0:f64)\n");
}

TEST(RecordedApart, ASumDoesNotKeepALargeOperandAliveForAnUpdate) {
  const std::string product = "aten::mm(%0 f32[1024,1024], %0 f32[1024,1024])";
  EXPECT_EQ(UpdatesWhereItSums(SumOfProduct(8, product)), 1);
  EXPECT_EQ(UpdatesWhereItSums(SumOfProduct(kMostOpsApart + 8, product)), 0);
}

TEST(RecordedApart, NorOnACpuForOneThatIsLessFarAway) {
  const auto on_cpu = [](int between, const std::string& product) {
    return absl::StrReplaceAll(SumOfProduct(between, product), {{"cuda:0", "cpu"}});
  };
  const std::string product = "aten::mm(%0 f32[1024,1024], %0 f32[1024,1024])";
  EXPECT_EQ(UpdatesWhereItSums(on_cpu(8, product)), 1);
  EXPECT_EQ(UpdatesWhereItSums(on_cpu(24, product)), 0);
  EXPECT_EQ(UpdatesWhereItSums(on_cpu(24, "aten::neg(%0 f32[1024,1024])")), 1) << "that is not stored";
  const std::string small = absl::StrReplaceAll(on_cpu(24, product), {{"1024,1024", "64,64"}, {"[1024]", "[64]"}, {"4194304", "16384"}});
  EXPECT_EQ(UpdatesWhereItSums(small), 1);
}

// Sums of small operands could be there when the rest is still recorded.
TEST(RecordedApart, NorDoesASumOfASmallOne) {
  const auto small = [](std::string text) {
    return absl::StrReplaceAll(text, {{"1024,1024", "64,64"}, {"[1024]", "[64]"}, {"4194304", "16384"}, {"4096", "256"}});
  };
  const std::string product = "aten::mm(%0 f32[1024,1024], %0 f32[1024,1024])";
  EXPECT_EQ(UpdatesWhereItSums(small(SumOfProduct(8, product))), 1);
  EXPECT_EQ(UpdatesWhereItSums(small(SumOfProduct(kMostOpsApart + 8, product))), 0);
}

TEST(RecordedApart, NothingIsKeptAliveByWhatIsNotStored) {
  EXPECT_EQ(UpdatesWhereItSums(SumOfProduct(kMostOpsApart + 8, "aten::neg(%0 f32[1024,1024])")), 1);
}

// A sum, of which a small input's running value is made, and that all elements are divided by.
constexpr const char* kRunningSum = R"(trace scalars=2 offsets=0
storage %0: input cuda:0
storage %1: fresh 256 bytes cuda:0
storage %2: input cuda:0 mutated
storage %3: fresh 4096 bytes cuda:0 live
%1 f32[64] = aten::sum.dim_IntList(%0 f32[16,64], dim=[0], keepdim=false, dtype=none)
aten::add_.Tensor(%2 f32[64], %1 f32[64], alpha=#0:f64)
%3 f32[16,64] = aten::div.Tensor(%0 f32[16,64], %1 f32[64])
)";

TEST(RecordedApart, ASmallUpdateIsNotPartOfWhatOthersWaitFor) {
  EXPECT_EQ(UpdatesWhereItSums(kRunningSum), 0);
  EXPECT_EQ(UpdatesWhereItSums(absl::StrReplaceAll(kRunningSum, {{"cuda:0", "cpu"}})), 1);
}

TEST(RecordedApart, ItIsWhereNobodyWaits) {
  EXPECT_EQ(UpdatesWhereItSums(absl::StrReplaceAll(kRunningSum, {{"div.Tensor(%0 f32[16,64], %1 f32[64])", "neg(%0 f32[16,64])"}})), 1);
}

TEST(KnownAt, IsTheFirstMention) {
  const auto trace = ParseTrace(
      "trace scalars=2 offsets=1\n"
      "storage %0: input cpu\nstorage %1: fresh 64 bytes cpu\nstorage %2: input cpu\nstorage %3: fresh 64 bytes cpu live\n"
      "%1 f32[16] = aten::mul.Tensor(%0 f32[16], #0:f64)\n"
      "%3 f32[16] = aten::add.Tensor(%1 f32[16], %2 f32[16](1)+o0, alpha=#1:f64)\n");
  ASSERT_TRUE(trace.ok()) << trace.status();
  const runtime::KnownAt known_at = KnownAtOf(*trace);
  EXPECT_EQ(known_at.storages, (std::vector<int32_t>{1, 0, 2, 0}));
  EXPECT_EQ(known_at.scalars, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(known_at.offsets, (std::vector<int32_t>{2}));
}

}  // namespace
}  // namespace lazuli::codegen
