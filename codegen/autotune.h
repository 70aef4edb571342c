// Mode max-autotune: schedules of a kernel, timed.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "codegen/kernel_compiler.h"
#include "codegen/schedule.h"

namespace lazuli::codegen {

// Compiles the kernel with a schedule.
using MakeWithSchedule = std::function<absl::StatusOr<std::shared_ptr<const CompiledKernel>>(const Schedule&)>;

// The fastest schedule of `kernel`, which the cost model plans as `plan` and of which `by_default` is the code of the default schedule: one
// knob after another, each value by turns with the best so far, on memory of its own, for about `budget_ms` milliseconds. What is not
// clearly faster does not replace the default. One kernel is timed at a time; what else runs meanwhile only blurs the result.
Schedule Autotune(const KernelIR& kernel, const LoopPlan& plan, const IsaInfo& isa, int64_t budget_ms, const CompiledKernel& by_default,
                  const MakeWithSchedule& make);

}  // namespace lazuli::codegen
