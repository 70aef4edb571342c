#include "runtime/blas_workspace.h"

#include <c10/core/Allocator.h>
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

// The last that the thread called cuBLAS with; null for none.
thread_local void* handle_of_thread = nullptr;
thread_local bool program_has_it = false;

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

void Free(Workspaces* workspaces, const c10::Stream& stream, Unless unless) {
  const std::tuple<void*, void*> place(handle_of_thread, reinterpret_cast<void*>(HandleOf(stream)));
  at::DataPtr freed;  // Outside the lock.
  const std::unique_lock<std::shared_mutex> lock(workspaces->mutex);
  const auto found = workspaces->map.find(place);
  if (found == workspaces->map.end()) return;
  const auto is_others = [&](const auto& entry) {
    return entry.first != place && std::get<1>(entry.first) == std::get<1>(place) && entry.second.device() == stream.device();
  };
  if (unless == Unless::kAlone && std::none_of(workspaces->map.begin(), workspaces->map.end(), is_others)) return;
  freed = std::move(found->second);
  workspaces->map.erase(found);
}
#endif

}  // namespace

void NoteBlasHandle(void* handle, bool by_program) {
  handle_of_thread = handle;
  program_has_it = program_has_it || by_program;
}

void FreeBlasWorkspace([[maybe_unused]] const c10::Stream& stream, [[maybe_unused]] Unless unless) noexcept {
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR == 11
  if (stream.id() != 0 || handle_of_thread == nullptr || program_has_it) return;
  try {
    if (Workspaces* const workspaces = GetWorkspaces(); workspaces != nullptr) Free(workspaces, stream, unless);
  } catch (...) {  // It stays where it is.
  }
#endif
}

}  // namespace lazuli::runtime
