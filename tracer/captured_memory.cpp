#include "tracer/captured_memory.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <mutex>

#include "absl/container/flat_hash_map.h"
#include "runtime/device.h"
#include "runtime/mode_keys.h"
#include "tracer/lazy_tensor.h"
#include "tracer/recorder.h"

namespace lazuli::tracer {

std::atomic<bool> internal::any_captured{false};

namespace {

struct Captured {
  std::mutex mutex;
  // Weak references keep an address from being another storage's.
  absl::flat_hash_map<c10::StorageImpl*, c10::weak_intrusive_ptr<c10::StorageImpl>> storages;
  size_t cleaned_at = 1024;  // So many: those that are gone are forgotten.

  static Captured& Get() {
    static auto* const captured = new Captured;
    return *captured;
  }
};

}  // namespace

bool internal::WasCaptured(c10::StorageImpl* storage) {
  Captured& captured = Captured::Get();
  std::lock_guard<std::mutex> lock(captured.mutex);
  return captured.storages.contains(storage);
}

bool IsBeingCaptured(c10::DispatchKeySet keys) {
  return keys.has_backend(c10::BackendComponent::CUDABit) && c10::impl::hasDeviceGuardImpl(c10::kCUDA) &&
         runtime::IsCapturing(runtime::CurrentStream(c10::impl::getDeviceGuardImpl(c10::kCUDA)->getDevice()));
}

void RunWhatCameBeforeCapture() {
  Recorder* const recorder = Recorder::Current();
  if (recorder != nullptr && !recorder->IsEmpty()) recorder->Flush("capture");
}

static void Note(c10::StorageImpl* storage) {
  Captured& captured = Captured::Get();
  std::lock_guard<std::mutex> lock(captured.mutex);
  if (captured.storages.size() >= captured.cleaned_at) {
    absl::erase_if(captured.storages, [](const auto& entry) { return entry.second.expired(); });
    captured.cleaned_at = 2 * std::max(captured.storages.size(), captured.cleaned_at / 2);
  }
  auto strong = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage);
  captured.storages.try_emplace(storage, strong);
  internal::any_captured.store(true, std::memory_order_relaxed);
}

void NoteCaptured(const at::Tensor& tensor) {
  if (c10::StorageImpl* const storage = StorageOf(tensor)) Note(storage);
}

void NoteCapturedAccess(c10::StorageImpl* storage) {
  if (!storage->device().is_cuda()) return;
  // Programs of ours, which are captured in other ways, run without the mode's keys.
  if (!c10::impl::tls_is_dispatch_key_included(runtime::kRecorderKey)) return;
  if (IsBeingCaptured(c10::DispatchKeySet(c10::DispatchKey::CUDA))) Note(storage);
}

}  // namespace lazuli::tracer
