#include "runtime/cuda_graph.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <exception>
#include <map>
#include <mutex>

#include "runtime/device.h"
#include "runtime/open_library.h"
#include "runtime/status.h"

namespace lazuli::runtime {
namespace {

// at::cuda::CUDAGraph takes some 200 bytes.
constexpr size_t kObjectBytes = 1024;

// What of LibTorch is used, by its mangled names.
struct GraphFunctions {
  using PoolId = std::pair<unsigned long long, unsigned long long>;
  PoolId (*new_pool)();
  void (*construct)(void* graph, bool keep_graph);
  void (*destroy)(void* graph);
  void (*begin)(void* graph, PoolId pool, int mode);
  void (*end)(void* graph);
  void (*instantiate)(void* graph);
  void (*replay)(void* graph);
  CudaGraphExec (*exec)(void* graph);
};

template <typename F>
bool Find(void* library, const char* name, F** function) {
  *function = reinterpret_cast<F*>(dlsym(library, name));
  return *function != nullptr;
}

absl::StatusOr<GraphFunctions> FindFunctions() {
  void* library = FindOpen({"libtorch_cuda.so"});
  if (library == nullptr) return absl::UnavailableError("LibTorch's CUDA library is not loaded");
  GraphFunctions f{};
  const bool found = Find(library, "_ZN2at4cuda17graph_pool_handleEv", &f.new_pool) &&
                     Find(library, "_ZN2at4cuda9CUDAGraphC1Eb", &f.construct) && Find(library, "_ZN2at4cuda9CUDAGraphD1Ev", &f.destroy) &&
                     Find(library, "_ZN2at4cuda9CUDAGraph13capture_beginESt4pairIyyE21cudaStreamCaptureMode", &f.begin) &&
                     Find(library, "_ZN2at4cuda9CUDAGraph11capture_endEv", &f.end) &&
                     Find(library, "_ZN2at4cuda9CUDAGraph11instantiateEv", &f.instantiate) &&
                     Find(library, "_ZN2at4cuda9CUDAGraph6replayEv", &f.replay) &&
                     Find(library, "_ZN2at4cuda9CUDAGraph19raw_cuda_graph_execEv", &f.exec);
  if (!found) return absl::UnavailableError("this version of LibTorch has other CUDA graphs than those of 2.11");
  return f;
}

const absl::StatusOr<GraphFunctions>& Functions() {
  static const auto* const functions = new absl::StatusOr<GraphFunctions>(FindFunctions());
  return *functions;
}

std::mutex& CaptureMutex() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}

thread_local bool is_capturing = false;

class CapturingScope {
 public:
  CapturingScope() : lock_(CaptureMutex()) { is_capturing = true; }
  ~CapturingScope() { is_capturing = false; }
  CapturingScope(const CapturingScope&) = delete;
  CapturingScope& operator=(const CapturingScope&) = delete;

 private:
  const std::lock_guard<std::mutex> lock_;
};

class SilentWarnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning& /*warning*/) override {}
};

}  // namespace

NoCaptureElsewhere::NoCaptureElsewhere(std::mutex* generator) {
  if (is_capturing) return;
  lock_ = std::unique_lock<std::mutex>(CaptureMutex(), std::try_to_lock);
  if (lock_.owns_lock()) return;
  // Whoever draws has to hold it. Where nobody does, this thread does not.
  const bool held = !generator->try_lock();
  generator->unlock();
  lock_.lock();
  if (held) generator->lock();
}

absl::StatusOr<CudaGraphPool*> CudaGraph::PoolOf(const c10::Stream& stream) {
  static auto* const mutex = new std::mutex;
  static auto* const pools = new std::map<std::pair<int, int64_t>, std::unique_ptr<CudaGraphPool>>;
  if (!Functions().ok()) return Functions().status();
  std::lock_guard<std::mutex> lock(*mutex);
  const std::pair<int, int64_t> key(stream.device_index(), stream.id());
  std::unique_ptr<CudaGraphPool>& pool = (*pools)[key];
  if (pool == nullptr) {
    const c10::DeviceGuard guard(stream.device());
    pool = std::make_unique<CudaGraphPool>(NewStream(stream.device()));
  }
  return pool.get();
}

CudaGraph::CudaGraph(CudaGraphPool* pool) : pool_(pool), object_(new unsigned char[kObjectBytes]) {
  std::lock_guard<std::mutex> lock(pool->mutex_);
  pool_id_ = pool->id_.lock();
  if (pool_id_ == nullptr) pool->id_ = pool_id_ = std::make_shared<const CudaGraphPool::Id>(Functions()->new_pool());
  Functions()->construct(object_.get(), /*keep_graph=*/true);
}

CudaGraph::~CudaGraph() { Functions()->destroy(object_.get()); }

absl::StatusOr<std::unique_ptr<CudaGraph>> CudaGraph::Capture(CudaGraphPool* pool, const std::function<void()>& work) {
  const CapturingScope capturing;
  const c10::StreamGuard guard(pool->capture_stream());
  std::unique_ptr<CudaGraph> graph(new CudaGraph(pool));
  std::string thrown;
  bool begun = false;
  try {
    Functions()->begin(graph->object_.get(), *graph->pool_id_, CudaDriver::kRelaxedCapture);
    begun = true;
    work();
  } catch (...) {
    thrown = ExceptionMessage(std::current_exception());
  }
  const absl::Status ended = begun ? graph->EndCapture(pool->capture_stream()) : absl::OkStatus();
  if (!thrown.empty()) return absl::FailedPreconditionError(thrown);
  if (!ended.ok()) return ended;
  try {
    Functions()->instantiate(graph->object_.get());
    graph->exec_ = Functions()->exec(graph->object_.get());
  } catch (...) {
    return absl::FailedPreconditionError(ExceptionMessage(std::current_exception()));
  }
  return graph;
}

absl::Status CudaGraph::EndCapture(const c10::Stream& capture_stream) {
  const absl::StatusOr<const CudaDriver*> driver = GetCudaDriver();
  if (!driver.ok()) return driver.status();
  const CudaStreamHandle stream = HandleOf(capture_stream);
  int status = CudaDriver::kNotCapturing;
  (*driver)->stream_is_capturing(stream, &status);
  absl::Status invalid;
  SilentWarnings silent;
  const c10::WarningUtils::WarningHandlerGuard no_warnings(&silent);
  if (status == CudaDriver::kCaptureInvalidated) {
    // LibTorch gives its allocator back to other uses only where the capture ends well. So this one ends, and an empty one takes its place.
    CudaGraphHandle none = nullptr;
    (*driver)->stream_end_capture(stream, &none);
    (*driver)->stream_begin_capture(stream, CudaDriver::kRelaxedCapture);
    invalid = absl::FailedPreconditionError("an operator did what cannot be captured");
  }
  try {
    Functions()->end(object_.get());
  } catch (...) {
    return absl::FailedPreconditionError(ExceptionMessage(std::current_exception()));
  }
  return invalid;
}

void CudaGraph::Launch() { Functions()->replay(object_.get()); }

}  // namespace lazuli::runtime
