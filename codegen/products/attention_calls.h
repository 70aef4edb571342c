// LibTorch's attention on the CPU and its gradient, by code of our own (attention.h).
#pragma once

#include <ATen/core/Tensor.h>

#include "codegen/ir/graph.h"
#include "codegen/products/attention.h"
#include "runtime/executor.h"

namespace lazuli::codegen {

// FindDirectCall (direct_calls.h) for aten::_scaled_dot_product_flash_attention_for_cpu and its gradient; null for any other operator.
runtime::DirectCall FindAttentionCall(const Node& node, const OpInfo& called, const Graph& graph);

// The attention of heads [batch, heads, rows, width]: floats, whose rows are stored element after element. False: they are not like that,
// or do not suit (SuitsAttention). What is not known from them keeps its default.
bool DescribeAttention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, Attention* attention);

// Heads, rows and elements as those: a tensor whose rows are stored so.
template <class Float>
HeadRows<Float> RowsOf(const at::Tensor& heads, Float* data) {
  return {data, heads.stride(0), heads.stride(1), heads.stride(2)};
}
bool HasHeadRows(const at::Tensor& heads);

// One of `numbers`, which can be expanded to batch, heads, queries and keys, for each score; `data` is theirs.
template <class Element>
ScoreTable<Element> TableOf(const at::Tensor& numbers, const Attention& a, const Element* data) {
  const at::Tensor all = numbers.expand({a.batch, a.heads, a.queries, a.keys});
  return {data, all.stride(0), all.stride(1), all.stride(2), all.stride(3)};
}

}  // namespace lazuli::codegen
