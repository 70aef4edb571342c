// On GPUs, activation functions of products of matrices become part of the product: cuBLASLt computes them on what it is about to store
// ("epilogues"), so that no kernel reads it again.
#pragma once

#include "absl/status/statusor.h"
#include "codegen/ir/graph.h"

namespace lazuli::codegen {

// After fuse. Replaces mm or addmm and what a kernel does to its result by one of the operators of products/product_activation.cpp:
//  - relu, where nobody else needs the product and the kernel does nothing else: the same function of the same product.
//  - Where it need not be eager's to the last digits (`fast`), gelu by tanh of halves, perhaps with the product stored, too (for the
//    gradient): of the product before it is rounded, which where gelu vanishes is another number.
// Sums come in the order of cuBLASLt's algorithm. So it is where these epilogues are faster: where sums are short, since else the choice of
// cuBLASLt's algorithm matters more. Their gradients' epilogues are slower than a kernel that adds up the bias's gradient besides.
absl::StatusOr<Graph> FuseEpilogues(Graph graph, bool fast);

}  // namespace lazuli::codegen
