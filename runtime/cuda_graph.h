// One CUDA graph, made by LibTorch's at::cuda::CUDAGraph: its allocator and its generators know about it. The few functions of that class
// are looked up in libtorch_cuda when a GPU is used: nothing of CUDA is linked.
#pragma once

#include <c10/core/Stream.h>

#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/cuda_driver.h"

namespace lazuli::runtime {

// Memory that graphs share, since they run one after the other on one stream, and the stream on which they are captured.
class CudaGraphPool {
 public:
  explicit CudaGraphPool(c10::Stream capture_stream) : capture_stream_(capture_stream) {}
  const c10::Stream& capture_stream() const { return capture_stream_; }
  // Held from a graph's launch until all is launched that reads what it left in the pool: other graphs write the same memory.
  std::mutex& launch_mutex() { return launch_mutex_; }

 private:
  friend class CudaGraph;
  using Id = std::pair<unsigned long long, unsigned long long>;  // c10::MempoolId_t.

  const c10::Stream capture_stream_;
  std::mutex launch_mutex_;
  std::mutex mutex_;
  std::weak_ptr<const Id> id_;  // Of LibTorch's pool, which goes with the last graph that uses it.
};

// While it lives, no other thread makes a CudaGraph. A capture has the default generators of GPUs for itself: LibTorch's functions that
// draw from them elsewhere throw meanwhile.
class NoCaptureElsewhere {
 public:
  // `generator`: the mutex of the one that is drawn from. It is let go of while this waits, since what is captured may draw, too.
  explicit NoCaptureElsewhere(std::mutex* generator);

 private:
  std::unique_lock<std::mutex> lock_;  // Not taken by a thread that captures.
};

class CudaGraph {
 public:
  // The pool of the graphs that are launched on `stream`; made once. Fails with Unavailable where LibTorch has no CUDA graphs.
  static absl::StatusOr<CudaGraphPool*> PoolOf(const c10::Stream& stream);

  // A graph of what `work` launches on this thread, which has the pool's capture stream as its current one meanwhile. Nothing runs; memory
  // that `work` allocates is the pool's. Threads capture one after the other, so `work` must not wait for another one. Fails with
  // FailedPrecondition when `work` throws or does what cannot be captured (the message says what it threw).
  static absl::StatusOr<std::unique_ptr<CudaGraph>> Capture(CudaGraphPool* pool, const std::function<void()>& work);
  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  // Launches it on the current stream. Throws c10::Error.
  void Launch();
  CudaGraphExec exec() const { return exec_; }
  CudaGraphPool* pool() const { return pool_; }

 private:
  explicit CudaGraph(CudaGraphPool* pool);
  absl::Status EndCapture(const c10::Stream& capture_stream);

  CudaGraphPool* const pool_;
  std::shared_ptr<const CudaGraphPool::Id> pool_id_;
  std::unique_ptr<unsigned char[]> object_;  // An at::cuda::CUDAGraph.
  CudaGraphExec exec_ = nullptr;
};

}  // namespace lazuli::runtime
