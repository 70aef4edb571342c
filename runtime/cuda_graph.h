// One CUDA graph, made by LibTorch's at::cuda::CUDAGraph: its allocator and its generators know about it. The few functions of that class
// are looked up in libtorch_cuda when a GPU is used: nothing of CUDA is linked.
#pragma once

#include <c10/core/Stream.h>

#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/cuda_driver.h"

namespace lazuli::runtime {

// Memory that graphs share, since they run one after the other on one stream, and the stream on which they are captured.
struct CudaGraphPool {
  using Id = std::pair<unsigned long long, unsigned long long>;  // c10::MempoolId_t.
  Id id;
  c10::Stream capture_stream;
};

class CudaGraph {
 public:
  // The pool of the graphs that are launched on `stream`; made once. Fails with Unavailable where LibTorch has no CUDA graphs.
  static absl::StatusOr<const CudaGraphPool*> PoolOf(const c10::Stream& stream);

  // A graph of what `work` launches on this thread, which has the pool's capture stream as its current one meanwhile. Nothing runs; memory
  // that `work` allocates is the pool's. Fails with FailedPrecondition when `work` throws or does what cannot be captured (the message says
  // what it threw).
  static absl::StatusOr<std::unique_ptr<CudaGraph>> Capture(const CudaGraphPool& pool, const std::function<void()>& work);
  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  // Launches it on the current stream. Throws c10::Error.
  void Launch();
  CudaGraphExec exec() const { return exec_; }

 private:
  CudaGraph();
  absl::Status EndCapture(const CudaGraphPool& pool);

  std::unique_ptr<unsigned char[]> object_;  // An at::cuda::CUDAGraph.
  CudaGraphExec exec_ = nullptr;
};

}  // namespace lazuli::runtime
