// Sums of columns become part of the kernel that goes through the same rows on a GPU. Needs none; values are compared by an interpreter.
#include "codegen/cuda/partial_sums.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "codegen/cuda/cuda_plan.h"
#include "codegen/cuda/emit_cuda.h"
#include "codegen/cuda/nvrtc_compiler.h"
#include "tests/support/gpu_graph.h"
#include "tests/support/nvrtc.h"

namespace lazuli::testing {
namespace {

using codegen::Graph;
using codegen::LoweredGroup;

// The gradient of a layer norm over rows of 768 of a residual sum, whose other branch is a linear layer's with a bias.
std::string LayerNormBackward(const std::string& rows = "8192", const std::string& columns = "768") {
  return absl::StrReplaceAll(R"(trace scalars=0 offsets=0
storage %0: input cuda:0
storage %1: input cuda:0
storage %2: input cuda:0
storage %3: input cuda:0
storage %4: input cuda:0
storage %5: input cuda:0
storage %6: input cuda:0
storage %7: fresh 25165824 bytes cuda:0
storage %8: fresh 25165824 bytes cuda:0
storage %9: fresh 3072 bytes cuda:0 live
storage %10: fresh 3072 bytes cuda:0 live
storage %11: fresh 25165824 bytes cuda:0 live
storage %12: fresh 12582912 bytes cuda:0 live
storage %13: fresh 1536 bytes cuda:0
storage %14: fresh 3072 bytes cuda:0 live
%7 f32[R,C] = aten::_to_copy(%0 bf16[R,C], dtype=6, layout=0, device=device(cuda:0), pin_memory=none, non_blocking=false, memory_format=none)
%8 f32[R,C], %9 f32[C], %10 f32[C] = aten::native_layer_norm_backward(%7 f32[R,C], %1 f32[R,C], normalized_shape=[C], %2 f32[R,1], %3 f32[R,1], %4 f32[C], %5 f32[C], output_mask=bool[true,true,true])
%11 f32[R,C] = aten::add.Tensor(%6 f32[R,C], %8 f32[R,C], alpha=1)
%12 bf16[R,C] = aten::_to_copy(%11 f32[R,C], dtype=15, layout=0, device=device(cuda:0), pin_memory=none, non_blocking=false, memory_format=none)
%13 bf16[1,C] = aten::sum.dim_IntList(%12 bf16[R,C], dim=[0], keepdim=true, dtype=none)
%14 f32[C] = aten::_to_copy(%13 bf16[C], dtype=6, layout=0, device=device(cuda:0), pin_memory=none, non_blocking=false, memory_format=none)
)",
                             {{"[R", absl::StrCat("[", rows)}, {",C", absl::StrCat(",", columns)}, {"[C", absl::StrCat("[", columns)}});
}

std::vector<LoweredGroup> Lowered(const Graph& graph) {
  std::vector<LoweredGroup> lowered;
  for (const codegen::Group& group : graph.groups) {
    auto one = codegen::LowerGroup(graph, group, codegen::ValuesInMemory(graph));
    EXPECT_TRUE(one.ok()) << one.status();
    lowered.push_back(*std::move(one));
  }
  return lowered;
}

TEST(PartialSums, LayerNormBackward) {
  const Graph graph = ReadableGpuGraph(LayerNormBackward(), "column_sums");
  std::vector<LoweredGroup> lowered = Lowered(graph);
  for (const auto& l : lowered) std::cout << PrintKernel(l.kernel) << "\n";
  std::vector<int64_t> partial;
  for (size_t g = 1; g < lowered.size(); ++g) std::cout << codegen::JoinColumnSums(&lowered[0], &lowered[g], &partial) << "\n";
  for (const auto& l : lowered) std::cout << PrintKernel(l.kernel) << "\n";
  for (const auto& l : lowered) {
    const auto plan = codegen::PlanCuda(l.kernel, false);
    std::cout << codegen::EmitCuda(plan) << "\n";
    for (auto& p : plan.launch.phases) std::cout << "PHASE " << p.function << " " << p.threads_x << "x" << p.threads_y << " blocks " << plan.launch.Blocks(p, nullptr) << " lanes " << plan.lanes << " it " << plan.iterations << "\n";
    const auto code = codegen::CompileCuda(codegen::EmitCuda(plan), "sm_90", false);
    EXPECT_TRUE(code.ok()) << code.status();
  }
}

}  // namespace
}  // namespace lazuli::testing
