// The memory that LibTorch keeps for cuBLAS: 32 MiB on Hopper, 8 on others, for each thread and stream that has used it.
#pragma once

#include <c10/core/Stream.h>

namespace lazuli::runtime {

// Whose workspace goes back.
enum class Unless {
  kNever,
  kAlone,  // Unless the thread is the only one that has some for the stream.
};

// Gives back to LibTorch's allocator what the calling thread has of it for `stream`; cuBLAS's next call gets it again. For threads that
// take turns on one stream, each of which would hold some. Nothing for other streams than a device's default one, which CUDA graphs may
// have been captured from that go on using it, where LibTorch is not 2.11, and where it fails.
void FreeBlasWorkspace(const c10::Stream& stream, Unless unless) noexcept;

// LibTorch, on the calling thread, calls cuBLAS with this handle, which is the thread's for its current device.
void NoteBlasHandle(void* handle);

}  // namespace lazuli::runtime
