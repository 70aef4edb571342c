// Tensors of four dimensions in which all channels of a pixel lie together, and windows of them.
#pragma once

#include "codegen/ir/graph.h"

namespace lazuli::codegen {

// Strides of a dense tensor of these sizes, [images, channels, rows, columns].
inline c10::DimVector ChannelsLast(const c10::DimVector& sizes) {
  return {sizes[1] * sizes[2] * sizes[3], 1, sizes[3] * sizes[1], sizes[1]};
}

// Whether `use`, a window of the dense tensor `layout`, is one as well when that lies channels last: all of it, in whatever order or with
// neighbouring dimensions as one, or a part along one of its dimensions that begins where the graph knows.
bool FollowsToChannelsLast(const Graph& graph, const TensorRef& use, const TensorRef& layout);

// That window, which there must be.
TensorRef InChannelsLast(Graph* graph, const TensorRef& use, const TensorRef& layout);

}  // namespace lazuli::codegen
