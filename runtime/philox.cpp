#include "runtime/philox.h"

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <ATen/cuda/PhiloxCudaState.h>
#include <dlfcn.h>

#include <mutex>

#include "runtime/device.h"

namespace lazuli::runtime {
namespace {

// at::CUDAGeneratorImpl::philox_cuda_state, which GeneratorImpl's own functions do not stand for: they forget the state of cuDNN's dropout.
using TakeNumbers = at::PhiloxCudaState (*)(c10::GeneratorImpl* generator, uint64_t increment);

TakeNumbers FindTakeNumbers() {
  void* library = dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  return reinterpret_cast<TakeNumbers>(dlsym(library, "_ZN2at17CUDAGeneratorImpl17philox_cuda_stateEm"));
}

}  // namespace

std::optional<PhiloxState> TakeRandomNumbers(c10::Device device, uint64_t increment) {
  static const TakeNumbers take = FindTakeNumbers();
  if (take == nullptr || IsCapturing(CurrentStream(device))) return std::nullopt;
  at::Generator generator = at::globalContext().defaultGenerator(device);
  std::lock_guard<std::mutex> lock(generator.mutex());
  const at::PhiloxCudaState state = take(generator.unsafeGetGeneratorImpl(), increment);
  return PhiloxState{state.seed_.val, state.offset_.val};
}

}  // namespace lazuli::runtime
