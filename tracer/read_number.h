// item() at a glance: the number that a CPU tensor of one element holds, without ATen's kernel.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <optional>

namespace lazuli::tracer {

// The value of `tensor`, of one element; none where its contents are not at hand, it is on a GPU, or it is more than a window over memory:
// the kernel has to read it, or say what is wrong.
std::optional<at::Scalar> ReadNumber(const at::Tensor& tensor);

}  // namespace lazuli::tracer
