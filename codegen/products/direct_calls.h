// Operators that code of our own computes, where it is faster than ATen's, without the dispatcher.
#pragma once

#include <ATen/Context.h>

#include "codegen/ir/graph.h"
#include "codegen/ir/op_info.h"
#include "codegen/products/gpu_product_call.h"
#include "codegen/products/product.h"
#include "runtime/executor.h"

namespace lazuli::codegen {

// For `node` of `graph`, which operator `called` computes, its own or its out-variant: what to try before calling that. Null where sizes or
// strides that are known by now rule our code out, or there is none. `choice`: of products on a GPU.
runtime::DirectCall FindDirectCall(const Node& node, const OpInfo& called, const Graph& graph, LtChoice choice);

// Which product a call is.
struct ProductCall {
  // Fills in `product` from the call's arguments; y only if one of them is what the call writes. False: this call is not one, by its
  // sizes and strides.
  bool (*describe)(const torch::jit::Stack& arguments, Product* product) = nullptr;
  int x = -1;                  // The argument.
  bool takes_all_rows = true;  // Of x.
  bool fresh_w = false;        // As in Product.
};

// Whether a tensor is one dense block of rows, one after another: of dimension 1, and of all others, in order, for rows. A matrix, or
// images (batch, channels, pixels...) whose channels come last. At least two dimensions.
bool HasDenseRows(c10::IntArrayRef sizes, c10::IntArrayRef strides);

// Whether the program allows a product of less precision than float's: then the library may have something faster.
bool MayRound(at::Float32Op op);

// Whether the trace itself writes what is in `operand`.
bool IsWritten(const TensorRef& operand, const Graph& graph);

// For `node` of `graph`, which operator `called` computes: its own or its out-variant. `describe` is null where it can be none.
ProductCall FindProductCall(const Node& node, const OpInfo& called, const Graph& graph);

}  // namespace lazuli::codegen
