// item() at a glance: the number that a CPU tensor of one element holds, without ATen's kernel.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <optional>

namespace lazuli::tracer {

// Where the one element of `tensor` lies; null where its contents are not at hand, it is on a GPU, or it is more than a window over memory.
void* FindNumber(const at::Tensor& tensor);

// The value of `tensor`, of one element; none where it is not found, or of no type that numbers have: the kernel has to read it, or say
// what is wrong.
std::optional<at::Scalar> ReadNumber(const at::Tensor& tensor);

}  // namespace lazuli::tracer
