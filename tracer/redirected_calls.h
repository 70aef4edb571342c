// Functions of LibTorch's and of CUDA's that programs call past the dispatcher, and that must know of what is pending.
#pragma once

namespace lazuli::tracer {

// Redirects to ours, from any library that is loaded:
// - c10::isSharedStorageAlias, which looks at storages' pointers and so throws for pending ones: an iterator over a pending tensor (a
//   program's own kernel, an operator on a thread that records nothing) would fail before it asks for data, and settles it, the usual way;
// - at::native::resize_bytes_cpu and resize_bytes_cuda, which do the same (an iterator's result, at::native::resize_output): pending
//   storages are settled before, and what is yet to read them runs;
// - at::CUDAGeneratorImpl's philox_cuda_state and philox_engine_inputs, which throw while another thread captures a CUDA graph: they wait
//   while we do;
// - at::cuda::getCurrentCUDABlasHandle: which thread has a handle;
// - c10::Dispatcher::registerImpl: kernels that the program puts in place of LibTorch's;
// - waiting for a GPU or one of its streams, asking whether a stream is done, recording an event on it and having it call a function: what
//   this thread has recorded is launched before;
// - beginning to capture a CUDA graph: likewise, and so no part of it.
// Once a process. CUDA's own functions are found where they are called in libraries of their own, not where they are linked statically.
void RedirectCalls();

// The same for cuBLAS's handles in the library of LibTorch's that solves matrices on GPUs, which it opens when it first does: once, when
// it is there.
void RedirectCallsOfLinalg();

}  // namespace lazuli::tracer
