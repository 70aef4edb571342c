// Biases of convolutions on GPUs. There ATen adds them, and sums up their gradients, in kernels of their own after cuDNN's, which those
// around may do as well.
#include <ATen/core/List.h>

#include <utility>
#include <vector>

#include "codegen/lower_index.h"
#include "codegen/lower_pieces.h"

namespace lazuli::codegen {
namespace {

// Arguments of aten::convolution and aten::convolution_backward.
constexpr int kInput = 0, kBias = 2, kTransposed = 6, kGroups = 8;
constexpr int kGrad = 0, kMask = 10;
constexpr int kBiasGradient = 2;  // A result.

// LibTorch's own kernels, which add the bias themselves.
bool IsDepthwise(const TraceOp& op) {
  const int64_t groups = op.args[kGroups].value.toInt();
  return groups != 1 && groups == RefOf(op, kInput).sizes[1] && !op.args[kTransposed].value.toBool();
}

bool AcceptsBias(const OpRow&, const TraceOp& op) {
  const TensorRef& bias = RefOf(op, kBias);
  return op.device.is_cuda() && bias.defined() && bias.dtype == op.results[0].dtype && (TypeBit(bias.dtype) & kFloats) != 0 &&
         Rank(bias) == 1 && RefOf(op, kInput).sizes.size() == op.results[0].sizes.size() && op.results[0].numel() != 0 && !IsDepthwise(op);
}

void ExpandBias(const TraceOp& op, Expansion* out) {
  const TensorRef& result = op.results[0];
  TraceOp product = op;
  product.results = {out->Temporary(result.dtype, result.sizes)};
  product.results[0].strides = result.strides;
  SetRef(&product, kBias, TensorRef());
  TensorRef bias = RefOf(op, kBias);
  bias.sizes.resize(result.sizes.size() - 1, 1);
  bias.strides.resize(bias.sizes.size(), 0);
  TraceOp sum = Sum(product.results[0], bias, result);
  out->pieces.push_back({std::move(product), Expansion::kWholeOp});
  out->pieces.push_back({std::move(sum), Expansion::kWholeOp});
}

bool AcceptsBiasGradient(const OpRow&, const TraceOp& op) {
  const TensorRef &grad = RefOf(op, kGrad), &sums = op.results[kBiasGradient];
  return op.device.is_cuda() && sums.defined() && sums.dtype == grad.dtype && (TypeBit(grad.dtype) & kFloats) != 0 && grad.numel() != 0;
}

void ExpandBiasGradient(const TraceOp& op, Expansion* out) {
  TraceOp rest = op, sums = CallOf("aten::sum.dim_IntList", op.results[kBiasGradient]);
  c10::List<bool> mask = op.args[kMask].value.toBoolList().copy();
  mask[kBiasGradient] = false;
  const bool has_rest = mask[0] || mask[1];
  rest.args[kMask].value = std::move(mask);
  rest.results[kBiasGradient] = TensorRef();
  SetRef(&sums, 0, RefOf(op, kGrad));
  std::vector<int64_t> dims = {0};
  for (int64_t dim = 2; dim < Rank(RefOf(op, kGrad)); ++dim) dims.push_back(dim);
  sums.args[1].value = std::move(dims);
  sums.args[2].value = false;
  out->pieces.push_back({std::move(sums), Expansion::kWholeOp});
  if (has_rest) out->pieces.push_back({std::move(rest), Expansion::kWholeOp});
}

OpRow BiasRow(bool (*accepts)(const OpRow&, const TraceOp&), void (*expand)(const TraceOp&, Expansion*)) {
  OpRow row;
  row.moves = true;
  row.accepts = accepts;
  row.expand = expand;
  return row;
}

}  // namespace

OpRow ConvolutionRow() { return BiasRow(&AcceptsBias, &ExpandBias); }
OpRow ConvolutionBackwardRow() { return BiasRow(&AcceptsBiasGradient, &ExpandBiasGradient); }

}  // namespace lazuli::codegen
