#include "codegen/products/direct_calls.h"

#include <ATen/Parallel.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cmath>

#include "codegen/products/attention_calls.h"
#include "codegen/products/flash_calls.h"
#include "codegen/products/gpu_product.h"

namespace lazuli::codegen {
namespace {

// A matrix of floats whose rows are contiguous.
bool HasContiguousRows(const at::Tensor& matrix) {
  return matrix.scalar_type() == c10::kFloat && matrix.dim() == 2 && (matrix.stride(1) == 1 || matrix.size(1) == 1);
}

// x * w_t + bias into `out`; `bias` is null or has one number for each column.
bool DescribeMatrices(const at::Tensor& x, const at::Tensor& w_t, const float* bias, const at::Tensor& out, Product* product) {
  if (!HasContiguousRows(x) || w_t.scalar_type() != c10::kFloat || w_t.dim() != 2 || w_t.stride(0) != 1 || !HasContiguousRows(out)) {
    return false;
  }
  if (MayRound(at::Float32Op::MATMUL)) return false;
  product->rows = x.size(0);
  product->cols = w_t.size(1);
  product->depth = x.size(1);
  product->x = x.const_data_ptr<float>();
  product->x_stride = x.stride(0);
  product->w = w_t.const_data_ptr<float>();
  product->w_stride = w_t.stride(1);
  product->bias = bias;
  product->y = out.mutable_data_ptr<float>();
  product->y_stride = out.stride(0);
  return true;
}

// mm.out(self, mat2, out)
bool DescribeMm(const torch::jit::Stack& arguments, Product* product) {
  return DescribeMatrices(arguments[0].toTensor(), arguments[1].toTensor(), nullptr, arguments[2].toTensor(), product);
}

// addmm.out(self, mat1, mat2, beta, alpha, out)
bool DescribeAddmm(const torch::jit::Stack& arguments, Product* product) {
  const at::Tensor& bias = arguments[0].toTensor();
  const at::Tensor& out = arguments[5].toTensor();
  const bool one_row = bias.dim() == 1 || (bias.dim() == 2 && bias.size(0) == 1);
  if (!one_row || bias.scalar_type() != c10::kFloat || bias.size(-1) != out.size(1) || bias.stride(-1) != 1) return false;
  if (!IsUnitFactor(arguments[3]) || !IsUnitFactor(arguments[4])) return false;
  return DescribeMatrices(arguments[1].toTensor(), arguments[2].toTensor(), bias.const_data_ptr<float>(), out, product);
}

bool AllAre(const c10::IValue& list, int64_t number) {
  const auto numbers = list.toIntVector();
  return std::all_of(numbers.begin(), numbers.end(), [&](int64_t n) { return n == number; });
}

bool IsOnePixel(c10::IntArrayRef weight_sizes) {
  return std::all_of(weight_sizes.begin() + 2, weight_sizes.end(), [](int64_t size) { return size == 1; });
}

// The rows of x that a convolution of one pixel with `strides` takes from dense images: in lines that follow each other.
bool TakePixels(const at::Tensor& images, const std::vector<int64_t>& strides, Product* product) {
  const int64_t width = images.size(-1), dims = images.dim() - 2;
  if (static_cast<int64_t>(strides.size()) != dims) return false;
  product->x_stride = product->depth * strides.back();
  product->rows = images.size(0);
  for (int64_t d = 0; d < dims; ++d) product->rows *= at::divup(images.size(2 + d), strides[d]);
  if (std::all_of(strides.begin(), strides.end(), [](int64_t stride) { return stride == 1; })) return true;
  product->x_group = at::divup(width, strides.back());
  product->x_group_stride = width * product->depth * (dims > 1 ? strides[dims - 2] : 1);
  // Lines of several images, too, are equally far from each other.
  return dims == 1 || (dims == 2 && images.size(2) % strides[0] == 0);
}

// convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups) whose weights are one pixel.
bool DescribeConvolution(const torch::jit::Stack& arguments, Product* product) {
  const at::Tensor& x = arguments[0].toTensor();
  const at::Tensor& w = arguments[1].toTensor();
  const at::Tensor bias = arguments[2].isNone() ? at::Tensor() : arguments[2].toTensor();
  if (x.scalar_type() != c10::kFloat || w.scalar_type() != c10::kFloat || x.dim() < 3 || x.dim() != w.dim() || x.size(1) == 0) return false;
  if (!IsOnePixel(w.sizes()) || (w.size(1) != 1 && w.stride(1) != 1) || arguments[8].toInt() != 1) return false;
  if (!AllAre(arguments[4], 0) || arguments[6].toBool() || !HasDenseRows(x.sizes(), x.strides())) return false;
  if (bias.defined() && (bias.scalar_type() != c10::kFloat || bias.stride(0) != 1)) return false;
  if (MayRound(at::Float32Op::CONV)) return false;
  product->cols = w.size(0);
  product->depth = w.size(1);
  if (!TakePixels(x, arguments[3].toIntVector(), product)) return false;
  product->x = x.const_data_ptr<float>();
  product->w = w.const_data_ptr<float>();
  product->w_stride = w.stride(0);
  product->bias = bias.defined() ? bias.const_data_ptr<float>() : nullptr;
  return true;
}

template <decltype(&DescribeMm) describe, bool kFreshW>
bool Multiply(const torch::jit::Stack& arguments, torch::jit::Stack*) {
  Product product;
  if (!describe(arguments, &product) || !SuitsProduct(product.rows, product.cols, product.depth)) return false;
  product.fresh_w = kFreshW;
  RunProduct(product);
  return true;
}

struct Row {
  const char* name;
  decltype(&DescribeMm) describe;
  runtime::DirectCall call, call_with_fresh_w;  // Null: faster than the library's only together with what surrounds it.
  int x, w_t;                                   // Arguments.
  int strides = -1;                             // Argument: which rows of x it takes. -1: all.
};

constexpr Row kRows[] = {
    {"aten::mm.out", &DescribeMm, &Multiply<&DescribeMm, false>, &Multiply<&DescribeMm, true>, 0, 1},
    {"aten::addmm.out", &DescribeAddmm, &Multiply<&DescribeAddmm, false>, &Multiply<&DescribeAddmm, true>, 1, 2},
    {"aten::convolution", &DescribeConvolution, nullptr, nullptr, 0, 1, 3},
};

const Row* FindRow(const std::string& op) {
  const auto row = std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& r) { return op == r.name; });
  return row != std::end(kRows) ? &*row : nullptr;
}

// Whether the operands can suit, whatever symbols turn out to be.
bool MaySuit(const TensorRef& x, const TensorRef& w_t, const runtime::SymbolTable& symbols) {
  if (x.dtype != c10::kFloat || w_t.dtype != c10::kFloat || x.sizes.size() != 2 || w_t.sizes.size() != 2 || w_t.strides[0] != 1)
    return false;
  return SuitsProduct(symbols.IsSymbolic(x.sizes[0]) ? 1 : x.sizes[0], symbols.IsSymbolic(w_t.sizes[1]) ? 1 : w_t.sizes[1],
                      symbols.IsSymbolic(x.sizes[1]) ? 1 : x.sizes[1]);
}

}  // namespace

bool MayRound(at::Float32Op op) {
  const auto precision = at::globalContext().float32Precision(at::Float32Backend::MKLDNN, op);
  return precision != at::Float32Precision::NONE && precision != at::Float32Precision::IEEE;
}

bool IsWritten(const TensorRef& operand, const Graph& graph) {
  const Value& value = graph.values[operand.storage];
  return value.producer != kNoNode || graph.contents[value.storage] != operand.storage;
}

runtime::DirectCall FindDirectCall(const Node& node, const OpInfo& called, const Graph& graph, LtChoice choice) {
  if (!node.op.device.is_cpu()) {
    const runtime::DirectCall flash = FindFlashCall(node, called, graph);
    return flash != nullptr ? flash : FindGpuProductCall(node, called, choice);
  }
  if (const runtime::DirectCall attention = FindAttentionCall(node, called, graph); attention != nullptr) return attention;
  const Row* row = FindRow(called.name);
  if (row == nullptr || row->call == nullptr) return nullptr;
  const TensorRef& w_t = node.op.args[row->w_t].tensors[0];
  if (!MaySuit(node.op.args[row->x].tensors[0], w_t, graph.symbols)) return nullptr;
  return IsWritten(w_t, graph) ? row->call_with_fresh_w : row->call;
}

bool HasDenseRows(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  int64_t next = 1;
  const auto follows = [&](size_t d) {
    const bool dense = sizes[d] == 1 || strides[d] == next;
    next *= sizes[d];
    return dense;
  };
  bool dense = follows(1);
  for (size_t d = sizes.size() - 1; d >= 2; --d) dense = dense && follows(d);
  return dense && follows(0);
}

ProductCall FindProductCall(const Node& node, const OpInfo& called, const Graph& graph) {
  const Row* row = FindRow(called.name);
  if (row == nullptr) return {};
  const TensorRef& x = node.op.args[row->x].tensors[0];
  const TensorRef& w = node.op.args[row->w_t].tensors[0];
  if (x.dtype != c10::kFloat || w.dtype != c10::kFloat || w.sizes.size() < 2 || !IsOnePixel(w.sizes)) return {};
  const bool takes_all = row->strides < 0 || AllAre(node.op.args[row->strides].value, 1);
  return {row->describe, row->x, takes_all, IsWritten(w, graph)};
}

}  // namespace lazuli::codegen
