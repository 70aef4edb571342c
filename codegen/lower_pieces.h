// What expansions make their pieces of.
#pragma once

#include <vector>

#include "codegen/lower.h"

namespace lazuli::codegen {

// Tensor argument `arg`; undefined where there is none.
const TensorRef& RefOf(const TraceOp& op, int arg);
void SetRef(TraceOp* op, int arg, TensorRef ref);

// A call of the op `name` that makes `result`; its arguments are yet to come.
TraceOp CallOf(const char* name, const TensorRef& result);
// Whether it is `cat` or `stack`.
bool PutsTogether(const TraceOp& op);
// `parts` along dimension `dim` of `result`.
TraceOp Cat(std::vector<TensorRef> parts, int64_t dim, const TensorRef& result);
TraceOp NewZeros(const TensorRef& like, const TensorRef& result);
// `a` and `b`, and `a` less `b`.
TraceOp Sum(const TensorRef& a, const TensorRef& b, const TensorRef& result);
TraceOp Difference(const TensorRef& a, const TensorRef& b, const TensorRef& result);
// `source` in the type of `result`.
TraceOp Rounded(const TensorRef& source, const TensorRef& result);

}  // namespace lazuli::codegen
