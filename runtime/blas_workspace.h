// The memory that LibTorch keeps for cuBLAS: 32 MiB on Hopper, 8 on others, for each thread and stream that has used it.
#pragma once

#include <c10/core/Stream.h>

namespace lazuli::runtime {

// Gives back to LibTorch's allocator what the calling thread has of it for `stream`, which is the thread's current one; cuBLAS's next call
// gets it again. For threads that take turns on one stream, each of which would hold some. Nothing where LibTorch is not 2.11, or has none.
void FreeBlasWorkspace(const c10::Stream& stream);

}  // namespace lazuli::runtime
