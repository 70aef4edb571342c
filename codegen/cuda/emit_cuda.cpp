#include "codegen/cuda/emit_cuda.h"

#include "absl/strings/str_cat.h"
#include "codegen/cuda/device_helpers.h"
#include "codegen/cuda/emit_cuda_function.h"

namespace lazuli::codegen {

namespace {

// Of columns' parts that are put together each thread takes one column: much may be computed of its sums, and threads are there.
CudaPlan OneColumnAtATime(CudaPlan plan) {
  plan.launch.phases.back().kept_per_block *= plan.lanes;
  plan.lanes = 1;
  plan.shift_buffer = -1;
  return plan;
}

}  // namespace

std::string EmitCuda(const CudaPlan& plan) {
  std::string body;
  const CudaPlan combining = plan.launch.split && !plan.rows ? OneColumnAtATime(plan) : plan;  // Of the last function.
  const int num_phases = static_cast<int>(plan.launch.phases.size());
  for (int p = 0; p < num_phases; ++p) {
    const bool all = !plan.launch.split;
    const CudaPlan& own = p == plan.num_passes ? combining : plan;
    CudaFunctionEmitter function(own, own.launch.phases[p], all ? 0 : p, all ? plan.num_passes : std::min(p + 1, plan.num_passes),
                                 all || p == plan.num_passes);
    absl::StrAppend(&body, "\n", function.Run());
  }
  const char* index = plan.wide ? "typedef i64 I;\ntypedef u64 U;\n" : "typedef int I;\ntypedef unsigned U;\n";
  return DeviceHelpersFor(absl::StrCat(index, body));
}

}  // namespace lazuli::codegen
