#include "runtime/blas_workspace.h"

#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <torch/headeronly/version.h>

#include <map>
#include <mutex>
#include <shared_mutex>
#include <tuple>

#include "runtime/cuda_driver.h"
#include "runtime/open_library.h"

namespace lazuli::runtime {
namespace {

#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR == 11
// As at::cuda::WorkspaceMapWithMutex of LibTorch 2.11, by handle and stream.
struct Workspaces {
  std::map<std::tuple<void*, void*>, at::DataPtr> map;
  std::shared_mutex mutex;
};

Workspaces* GetWorkspaces() {
  static auto* const find = FindInTorchCuda<Workspaces&()>("_ZN2at4cuda33cublas_handle_stream_to_workspaceEv");
  return find == nullptr ? nullptr : &find();
}

// The calling thread's, on its current device.
void* HandleOfThread() {
  static auto* const find = FindInTorchCuda<void*()>("_ZN2at4cuda24getCurrentCUDABlasHandleEv");
  return find == nullptr ? nullptr : find();
}
#endif

}  // namespace

void FreeBlasWorkspace(const c10::Stream& stream) {
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR == 11
  Workspaces* const workspaces = GetWorkspaces();
  if (workspaces == nullptr) return;
  thread_local c10::Device device(c10::kCPU);
  thread_local void* handle = nullptr;  // On `device`; a thread keeps it.
  if (device != stream.device()) {
    const c10::DeviceGuard guard(stream.device());
    handle = HandleOfThread();
    device = stream.device();
  }
  at::DataPtr freed;  // Outside the lock.
  const std::unique_lock<std::shared_mutex> lock(workspaces->mutex);
  const auto found = workspaces->map.find({handle, reinterpret_cast<void*>(HandleOf(stream))});
  if (found == workspaces->map.end()) return;
  freed = std::move(found->second);
  workspaces->map.erase(found);
#endif
}

}  // namespace lazuli::runtime
