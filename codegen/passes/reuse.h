// Lets results take the memory of what they are made of.
#pragma once

#include "absl/status/statusor.h"
#include "codegen/ir/graph.h"

namespace lazuli::codegen {

// A kernel on a GPU that is the last to read some value which the trace itself made, point by point, and stores a result of the same type
// at the same places and for the trace alone, stores it there: the result becomes the next content of that memory (Value::previous). Less
// memory is then in use, and what the GPU's cache would write back for nobody to read is overwritten in it. (On the CPU, kernels and
// products share rows instead: fused_product.h.) Likewise a kernel on a GPU, whatever it does, that writes the first of the windows which a
// new memory is put together from, where it reads a value of that memory's size at the same places: the windows are then written into the
// value's memory.
absl::StatusOr<Graph> ReuseMemory(Graph graph);

}  // namespace lazuli::codegen
