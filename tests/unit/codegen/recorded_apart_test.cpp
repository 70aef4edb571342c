// Kernels of a GPU do not wait for operators that are recorded much later than what others need of them.
#include "codegen/passes/recorded_apart.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "codegen/pipeline.h"

namespace lazuli::codegen {
namespace {

// A sum that the next operator needs, and that an input is updated by after `between` others.
std::string SumAndUpdate(int between) {
  std::string storages = "storage %0: input cuda:0\nstorage %1: fresh 256 bytes cuda:0\nstorage %2: fresh 4096 bytes cuda:0\n";
  std::string ops = "%1 f32[64] = aten::sum.dim_IntList(%0 f32[16,64], dim=[0], keepdim=false, dtype=none)\n";
  absl::StrAppend(&ops, "%2 f32[16,64] = aten::mul.Tensor(%0 f32[16,64], %1 f32[64])\n");
  int last = 2;
  for (int i = 0; i < between; ++i, ++last) {
    absl::StrAppend(&storages, "storage %", last + 1, ": fresh 4096 bytes cuda:0", i + 1 == between ? " live" : "", "\n");
    absl::StrAppend(&ops, "%", last + 1, " f32[16,64] = aten::mul.Tensor(%", last, " f32[16,64], %", last, " f32[16,64])\n");
  }
  absl::StrAppend(&storages, "storage %", last + 1, ": input cuda:0 mutated\n");
  absl::StrAppend(&ops, "aten::add_.Tensor(%", last + 1, " f32[64], %1 f32[64], alpha=#0:f64)\n");
  return absl::StrCat("trace scalars=1 offsets=0\n", storages, ops);
}

// Whether the update is in one kernel with the sum. -1: an error.
int UpdatesWhereItSums(const std::string& text) {
  const auto trace = ParseTrace(text);
  if (!trace.ok()) return ADD_FAILURE() << trace.status(), -1;
  PipelineOptions options;
  options.target.cuda_arch = "sm_90";
  const auto graph = RunPasses(*trace, options, "fuse");
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

}  // namespace
}  // namespace lazuli::codegen
