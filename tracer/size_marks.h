// Sizes that the program marked: lazuli::mark_dynamic, lazuli::mark_static, and LAZULI_DYNAMIC=1, which marks all data.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/types/span.h"
#include "codegen/ir/trace_log.h"

namespace lazuli::tracer {

// Throws c10::Error when nothing of `tensor` can be marked.
void CheckMarkable(const at::Tensor& tensor);

// Marks a size of `tensor` for as long as its storage lives; a later mark of the same size replaces it. Thread-safe. Throws c10::Error
// when there is no such dimension or its size is outside of [least, most].
void MarkSize(const at::Tensor& tensor, int64_t dim, bool dynamic, int64_t least = 0, int64_t most = std::numeric_limits<int64_t>::max());

// A storage of a trace.
struct MarkedStorage {
  const c10::StorageImpl* impl = nullptr;  // Null when it is gone.
  bool is_data = false;                    // LAZULI_DYNAMIC=1 makes symbols of its sizes.
};

// The marks of `log`, whose storages are `storages` by number, by position. Cheap when there are none.
std::vector<codegen::SizeMark> FindMarks(const codegen::TraceLog& log, absl::Span<const MarkedStorage> storages);

}  // namespace lazuli::tracer
