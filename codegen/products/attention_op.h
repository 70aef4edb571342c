// Attention as operators, which passes/attention.h makes of a program's formula:
//
//   lazuli::_attention(Tensor query, Tensor key, Tensor value, Tensor? scale, bool divides, Tensor? bias, Tensor? filled, bool keeps,
//                      Tensor? fill, int[] orders, bool fixed) -> (Tensor, Tensor)
//     y and the logsumexp of each query's scores (float, [batch, heads, queries]; on the CPU [batch, heads, queries, 2]: the largest, and
//     the logsumexp of what scores are less). With heads [batch, heads, rows, width]: scores = query key^T, times the number `scale` or
//     divided by it, plus `bias`, and the number `fill` where `filled` (or, if it says what it `keeps`, where it is false), both broadcast;
//     y = softmax(scores) value. Scale 1 and fill minus infinity where there are none.
//   lazuli::_attention_backward(Tensor grad, Tensor query, Tensor key, Tensor value, Tensor y, Tensor logsumexp, Tensor? scale,
//                               bool divides, Tensor? bias, Tensor? filled, bool keeps, Tensor? fill, Tensor? grad_scale,
//                               Tensor? grad_fill, int[] orders, bool fixed) -> (Tensor, Tensor, Tensor)
//     Gradients of query, key and value. `grad_scale` and `grad_fill` are what the program uses in place of `scale` and of 0.
//
// `orders`: the layout of y, or of each gradient: a HeadOrder. `fixed`: sizes are the same in all runs, so that what takes long for the
// first of them pays. Floats on the CPU are computed by attention.h; halves on a GPU by cuDNN where LibTorch's own choice is that and sizes
// are fixed, else, without bias and fills, by flash attention; all else by LibTorch's products, which is counted
// (stats().unfused_attentions).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/DimVector.h>

#include <cstdint>

#include "codegen/ir/op_info.h"

namespace lazuli::codegen {

// From the outermost dimension in.
enum class HeadOrder : int64_t {
  kHeadsRows = 0,     // Batch, heads, rows, width.
  kRowsHeads = 1,     // Batch, rows, heads, width.
  kHeadsColumns = 2,  // Batch, heads, width, rows.
};

// Strides of [batch, heads, rows, width].
c10::DimVector StridesOf(c10::IntArrayRef heads, HeadOrder order);

const OpInfo* AttentionOp();
const OpInfo* AttentionGradientOp();
bool IsAttentionOp(const OpInfo& info);

// Whether kernels for GPUs can read the rows of `heads`, four dimensions, as whole vectors of 16 bytes.
bool HasWholeVectors(const at::Tensor& heads);

// Widths of heads that kernels for GPUs take.
constexpr bool IsWidthForGpu(int64_t width) { return width > 0 && width % 8 == 0 && width <= 128; }

}  // namespace lazuli::codegen
