#include "tests/support/gpu.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include "runtime/cuda_driver.h"

namespace lazuli::testing {

std::string GpuArch(std::string* why) {
  static const char* const kNoLibrary = [] {
    return dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) != nullptr ? nullptr : dlerror();
  }();
  if (kNoLibrary != nullptr) {
    *why = "LibTorch has no CUDA here";
    return "";
  }
  const auto info = runtime::GetCudaDeviceInfo(0);
  if (!info.ok()) *why = std::string(info.status().message());
  return info.ok() ? info->arch : "";
}

void SynchronizeGpu() {
  const c10::impl::VirtualGuardImpl guard(c10::kCUDA);
  guard.synchronizeDevice(guard.getDevice().index());
}

}  // namespace lazuli::testing
