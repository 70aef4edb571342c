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

// The calling thread asks LibTorch for this handle, its own for the current device, to call cuBLAS. Where it is the program's code that
// asks and not LibTorch's, the thread's workspaces are never given back: who has the handle may call with it at any time.
void NoteBlasHandle(void* handle, bool by_program);

}  // namespace lazuli::runtime
