// Products of matrices on GPUs, launched through cuBLASLt without LibTorch's dispatcher.
#pragma once

#include "codegen/ir/graph.h"
#include "codegen/ir/op_info.h"
#include "runtime/executor.h"

namespace lazuli::codegen {

// Which of the algorithms that cuBLASLt proposes for a product.
enum class LtChoice {
  // Its first guess, where the product is so small that the host's work for it counts and its sums so short that the guess is good; the
  // others are left to LibTorch's call. Products with an epilogue are launched whatever their size.
  kFirst,
  // The fastest, for products of every size (mode max-autotune): the first time that a product of its shape comes (where there are very
  // many shapes, the eighth), the algorithms are timed where the operands are, each by turns with the best so far, for as long as
  // LAZULI_AUTOTUNE_MS says; the fastest serves all products of that shape from then on, and is kept on disk.
  kFastest,
};

// For `node`, which operator `called` computes on a GPU, its own or its out-variant: what to try before calling that. Sums come in
// cuBLASLt's order; programs that ask for deterministic algorithms get LibTorch's call. Null where cuBLASLt does not compute the operator.
runtime::DirectCall FindGpuProductCall(const Node& node, const OpInfo& called, LtChoice choice);

}  // namespace lazuli::codegen
