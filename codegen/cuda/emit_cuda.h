// CUDA C++ text of a planned kernel: one function for each launch, no header. Equal plans give equal text.
#pragma once

#include <string>

#include "codegen/cuda/cuda_plan.h"

namespace lazuli::codegen {

std::string EmitCuda(const CudaPlan& plan);

}  // namespace lazuli::codegen
