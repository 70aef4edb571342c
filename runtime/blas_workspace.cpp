#include "runtime/blas_workspace.h"

#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <torch/headeronly/version.h>

#include <algorithm>
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

// The calling thread's for `device`, which it keeps.
void* HandleOfThread(c10::Device device) {
  static auto* const find = FindInTorchCuda<void*()>("_ZN2at4cuda24getCurrentCUDABlasHandleEv");
  thread_local c10::Device known(c10::kCPU);
  thread_local void* handle = nullptr;
  if (find != nullptr && known != device) {
    const c10::DeviceGuard guard(device);
    handle = find();
    known = device;
  }
  return handle;
}

bool HasAny(Workspaces* workspaces, void* stream) {
  const std::shared_lock<std::shared_mutex> lock(workspaces->mutex);
  return std::any_of(workspaces->map.begin(), workspaces->map.end(), [&](const auto& entry) { return std::get<1>(entry.first) == stream; });
}

void Free(Workspaces* workspaces, const c10::Stream& stream) {
  void* const of = reinterpret_cast<void*>(HandleOf(stream));
  if (!HasAny(workspaces, of)) return;
  void* const handle = HandleOfThread(stream.device());
  at::DataPtr freed;  // Outside the lock.
  const std::unique_lock<std::shared_mutex> lock(workspaces->mutex);
  const auto found = workspaces->map.find({handle, of});
  if (found == workspaces->map.end()) return;
  freed = std::move(found->second);
  workspaces->map.erase(found);
}
#endif

}  // namespace

void FreeBlasWorkspace(const c10::Stream& stream) noexcept {
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR == 11
  if (stream.id() != 0) return;
  try {
    if (Workspaces* const workspaces = GetWorkspaces(); workspaces != nullptr) Free(workspaces, stream);
  } catch (...) {  // It stays where it is.
  }
#endif
}

}  // namespace lazuli::runtime
