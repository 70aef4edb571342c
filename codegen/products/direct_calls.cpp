#include "codegen/products/direct_calls.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>

#include "codegen/products/product.h"

namespace lazuli::codegen {
namespace {

// A matrix of floats whose rows are contiguous.
bool HasContiguousRows(const at::Tensor& matrix) {
  return matrix.scalar_type() == c10::kFloat && matrix.dim() == 2 && (matrix.stride(1) == 1 || matrix.size(1) == 1);
}

bool IsOne(const c10::IValue& factor) { return factor.isInt() ? factor.toInt() == 1 : factor.isDouble() && factor.toDouble() == 1; }

// Whether the program allows a product of less precision than float's: then the library may have something faster.
bool MayRound() {
  const auto precision = at::globalContext().float32Precision(at::Float32Backend::MKLDNN, at::Float32Op::MATMUL);
  return precision != at::Float32Precision::NONE && precision != at::Float32Precision::IEEE;
}

// out = x * w_t + bias; `bias` is null or has one number for each column.
bool Multiply(const at::Tensor& x, const at::Tensor& w_t, const float* bias, const at::Tensor& out, bool fresh_w) {
  if (!HasContiguousRows(x) || w_t.scalar_type() != c10::kFloat || w_t.dim() != 2 || w_t.stride(0) != 1 || !HasContiguousRows(out)) {
    return false;
  }
  Product product;
  product.rows = x.size(0);
  product.cols = w_t.size(1);
  product.depth = x.size(1);
  if (!SuitsProduct(product.rows, product.cols, product.depth) || MayRound()) return false;
  product.x = x.const_data_ptr<float>();
  product.x_stride = x.stride(0);
  product.w = w_t.const_data_ptr<float>();
  product.w_stride = w_t.stride(1);
  product.bias = bias;
  product.y = out.mutable_data_ptr<float>();
  product.y_stride = out.stride(0);
  product.fresh_w = fresh_w;
  RunProduct(product);
  return true;
}

// mm.out(self, mat2, out)
template <bool kFreshW>
bool Mm(const torch::jit::Stack& arguments) {
  return Multiply(arguments[0].toTensor(), arguments[1].toTensor(), nullptr, arguments[2].toTensor(), kFreshW);
}

// addmm.out(self, mat1, mat2, beta, alpha, out)
template <bool kFreshW>
bool Addmm(const torch::jit::Stack& arguments) {
  const at::Tensor& bias = arguments[0].toTensor();
  const at::Tensor& out = arguments[5].toTensor();
  const bool one_row = bias.dim() == 1 || (bias.dim() == 2 && bias.size(0) == 1);
  if (!one_row || bias.scalar_type() != c10::kFloat || bias.size(-1) != out.size(1) || bias.stride(-1) != 1) return false;
  if (!IsOne(arguments[3]) || !IsOne(arguments[4])) return false;
  return Multiply(arguments[1].toTensor(), arguments[2].toTensor(), bias.const_data_ptr<float>(), out, kFreshW);
}

struct Row {
  const char* name;
  runtime::DirectCall call, call_with_fresh_w;
  int x, w_t;  // Arguments.
};

constexpr Row kRows[] = {{"aten::mm.out", &Mm<false>, &Mm<true>, 0, 1}, {"aten::addmm.out", &Addmm<false>, &Addmm<true>, 1, 2}};

// Whether the operands can suit, whatever symbols turn out to be.
bool MaySuit(const TensorRef& x, const TensorRef& w_t, const runtime::SymbolTable& symbols) {
  if (x.dtype != c10::kFloat || w_t.dtype != c10::kFloat || x.sizes.size() != 2 || w_t.sizes.size() != 2 || w_t.strides[0] != 1)
    return false;
  return SuitsProduct(symbols.IsSymbolic(x.sizes[0]) ? 1 : x.sizes[0], symbols.IsSymbolic(w_t.sizes[1]) ? 1 : w_t.sizes[1],
                      symbols.IsSymbolic(x.sizes[1]) ? 1 : x.sizes[1]);
}

// Whether the trace itself writes what is in `operand`.
bool IsWritten(const TensorRef& operand, const Graph& graph) {
  const Value& value = graph.values[operand.storage];
  return value.producer != kNoNode || graph.contents[value.storage] != operand.storage;
}

}  // namespace

runtime::DirectCall FindDirectCall(const Node& node, const OpInfo& out, const Graph& graph) {
  for (const Row& row : kRows) {
    if (out.name != row.name) continue;
    const TensorRef& w_t = node.op.args[row.w_t].tensors[0];
    if (!MaySuit(node.op.args[row.x].tensors[0], w_t, graph.symbols)) return nullptr;
    return IsWritten(w_t, graph) ? row.call_with_fresh_w : row.call;
  }
  return nullptr;
}

}  // namespace lazuli::codegen
