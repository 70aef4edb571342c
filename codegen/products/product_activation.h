// Products of matrices with an activation function of each element: operators that passes/epilogue.h makes of two, for cuBLASLt's
// epilogues. ATen's own operators, one after the other, compute them where that does not.
//
//   lazuli::_product_activation(Tensor? bias, Tensor self, Tensor mat2, str activation) -> Tensor
//     activation(self mat2 + bias): [n, m], [m, p], and [p] or none -> [n, p].
//   lazuli::_product_activation.keep(...) -> (Tensor, Tensor)
//     With what the function took as the second result.
//
// Each has an out-variant, whose results are like the dense tensors above. Activations: "relu", and "gelu" by tanh.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "codegen/ir/trace.h"

namespace lazuli::codegen {

enum class Activation : uint8_t { kRelu, kGelu };

// What `op` computes of its first argument; none where it is another operator.
std::optional<Activation> ActivationOf(const TraceOp& op);

// The operator, and its argument that names the activation.
const OpInfo* ProductWithActivation(bool keeps);
TraceArg ActivationArg(Activation activation);
// What such an argument says. Throws c10::Error for any other name.
Activation ActivationNamed(const std::string& name);

}  // namespace lazuli::codegen
