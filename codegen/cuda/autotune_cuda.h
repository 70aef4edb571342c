// Mode max-autotune on a GPU: schedules of a kernel, timed.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "codegen/cuda/cuda_schedule.h"
#include "codegen/kernel_compiler.h"

namespace lazuli::codegen {

// Compiles the kernel with a schedule. Null where that comes to the same code as the default.
using MakeWithCudaSchedule = std::function<absl::StatusOr<std::shared_ptr<const CompiledKernel>>(const CudaSchedule&)>;

// The fastest schedule of `kernel`, of which `by_default` is the code of the default schedule, on the first GPU of architecture `arch`: one
// choice after another, each value by turns with the best so far, on memory of its own and on the current stream, for about `budget_ms`
// milliseconds without compiling. What is not clearly faster does not replace the default. `reorder`: sums may come in another order.
CudaSchedule AutotuneCuda(const KernelIR& kernel, const std::string& arch, bool reorder, int64_t budget_ms,
                          const CompiledKernel& by_default, const MakeWithCudaSchedule& make);

}  // namespace lazuli::codegen
