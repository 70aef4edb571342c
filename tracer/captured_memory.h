// CUDA graphs that the program captures itself (at::cuda::CUDAGraph, torch.cuda.graph). A replay reads and writes the memory that was used
// during the capture without a word to LibTorch. So nothing is recorded during a capture, what was recorded before runs outside it, and
// memory that was used in one is foreign from then on (foreign_memory.h): operators on it run when they are called.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/StorageImpl.h>

#include <atomic>

namespace lazuli::tracer {

namespace internal {
extern std::atomic<bool> any_captured;
bool WasCaptured(c10::StorageImpl* storage);
}  // namespace internal

// Whether an operator called with `keys` is being captured: it is for a GPU, and this thread's work goes to a graph.
bool IsBeingCaptured(c10::DispatchKeySet keys);

// Before an operator that is being captured: runs what this thread's recorder has pending. The operator itself may do what a capture
// forbids others (runtime::AnyCaptures): what came before, which eager mode runs as it is, may have left libraries without their handles.
void RunWhatCameBeforeCapture();

// `tensor` is an operand or a result of an operator that is being captured. Thread-safe.
void NoteCaptured(const at::Tensor& tensor);
// A kernel of such an operator may have asked for the memory of `storage` (a generator's seed, which LibTorch writes before each replay).
void NoteCapturedAccess(c10::StorageImpl* storage);

// Whether `storage` is memory of such a tensor.
inline bool IsCaptured(c10::StorageImpl* storage) {
  return internal::any_captured.load(std::memory_order_relaxed) && internal::WasCaptured(storage);
}

}  // namespace lazuli::tracer
