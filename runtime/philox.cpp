#include "runtime/philox.h"

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <ATen/cuda/PhiloxCudaState.h>

#include <mutex>
#include <utility>

#include "runtime/cuda_graph.h"
#include "runtime/device.h"
#include "runtime/open_library.h"

namespace lazuli::runtime {

static thread_local NumbersOfCalls* numbers_of_calls = nullptr;

std::optional<PhiloxState> TakeRandomNumbers(c10::Device device, uint64_t increment) {
  // GeneratorImpl's own functions do not stand for this one: they forget the state of cuDNN's dropout.
  using TakeNumbers = at::PhiloxCudaState(c10::GeneratorImpl * generator, uint64_t increment);
  static TakeNumbers* const take = FindInTorchCuda<TakeNumbers>("_ZN2at17CUDAGeneratorImpl17philox_cuda_stateEm");
  if (take == nullptr || IsCapturing(CurrentStream(device))) return std::nullopt;
  at::Generator generator = at::globalContext().defaultGenerator(device);
  std::lock_guard<std::mutex> lock(generator.mutex());
  const NoCaptureElsewhere drawing(&generator.mutex());
  const at::PhiloxCudaState state = take(generator.unsafeGetGeneratorImpl(), increment);
  return PhiloxState{state.seed_.val, state.offset_.val};
}

NumbersOfCalls::NumbersOfCalls() : outer_(std::exchange(numbers_of_calls, this)) {}
NumbersOfCalls::NumbersOfCalls(PhiloxState state) : state_(state), outer_(std::exchange(numbers_of_calls, this)) {}
NumbersOfCalls::~NumbersOfCalls() { numbers_of_calls = outer_; }

NumbersOfCalls* NumbersOfCalls::Current() { return numbers_of_calls; }

void NumbersOfCalls::OnTake(const c10::GeneratorImpl& generator, uint64_t increment) {
  if (at::globalContext().defaultGenerator(generator.device()).unsafeGetGeneratorImpl() != &generator) return;
  ++calls_;
  taken_ += increment;
}

}  // namespace lazuli::runtime
