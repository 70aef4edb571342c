// Lets results take the memory of what they are made of.
#pragma once

#include "absl/status/statusor.h"
#include "codegen/ir/graph.h"

namespace lazuli::codegen {

// A kernel that is the last to read some value which the trace itself made, point by point, and stores a result of the same type at the
// same places, stores it there: the result becomes the next content of that memory (Value::previous). Less memory is then in use, and what
// a GPU's cache would write back for nobody to read is overwritten in it. What leaves the trace (a gradient that is clipped) takes memory
// that is worth it, unless `cudagraphs`: it has another address in each run, which graphs of calls that wrote there before would not
// survive. On the CPU nothing else takes memory, which kernels and products share by rows (fused_product.h), and only if others read the
// value as well. Likewise a kernel on a GPU, whatever it does, that writes the first of the windows which a new memory is put together
// from, where it reads a value of that memory's size at the same places: the windows are then written into the value's memory.
absl::StatusOr<Graph> ReuseMemory(Graph graph, bool cudagraphs);

}  // namespace lazuli::codegen
