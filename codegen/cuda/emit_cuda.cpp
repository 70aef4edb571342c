#include "codegen/cuda/emit_cuda.h"

#include "absl/strings/str_cat.h"
#include "codegen/cuda/device_helpers.h"
#include "codegen/cuda/emit_cuda_function.h"

namespace lazuli::codegen {

std::string EmitCuda(const CudaPlan& plan) {
  std::string body;
  const int num_phases = static_cast<int>(plan.launch.phases.size());
  for (int p = 0; p < num_phases; ++p) {
    const CudaLaunch::Phase& phase = plan.launch.phases[p];
    const bool all = !plan.launch.split;
    CudaFunctionEmitter function(plan, phase, all ? 0 : p, all ? plan.num_passes : std::min(p + 1, plan.num_passes),
                                 all || p == plan.num_passes);
    absl::StrAppend(&body, "\n", function.Run());
  }
  const char* index = plan.wide ? "typedef i64 I;\ntypedef u64 U;\n" : "typedef int I;\ntypedef unsigned U;\n";
  return DeviceHelpersFor(absl::StrCat(index, body));
}

}  // namespace lazuli::codegen
