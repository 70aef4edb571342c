// Windows of what the trace makes. One that lies in what cat, stack or a write through a window put there is read where that came from; and
// what pointwise operators make, and kernels read window by window, is made window by window. So coordinates, colours, halves of a rotary
// embedding, or the components of a state that each step stacks again, are values like others, which fuse with what reads them.
#pragma once

#include "absl/status/statusor.h"
#include "codegen/ir/graph.h"

namespace lazuli::codegen {

// Leaves behind what nobody reads any more. Not for what LibTorch's own operators read, which need it in memory anyway.
absl::StatusOr<Graph> ComputeWindows(Graph graph);

}  // namespace lazuli::codegen
