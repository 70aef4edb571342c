#include "runtime/gpu_launch.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>

#include <cstring>

namespace lazuli::runtime {
namespace {

thread_local LaunchTape* current_tape = nullptr;

using Pointers = c10::SmallVector<void*, 64>;

// Of CudaLaunchConfig or CudaKernelNodeParams.
template <class Params>
void SetShape(const GpuLaunch& launch, Params* params) {
  params->grid_x = launch.grid_x;
  params->grid_y = launch.grid_y;
  params->block_x = launch.block_x;
  params->block_y = launch.block_y;
  params->shared_bytes = launch.shared_bytes;
}

int LaunchNow(const GpuLaunch& launch, CudaStreamHandle stream) {
  Pointers pointers;  // The driver copies what they point to.
  for (const GpuLaunch::Argument& argument : launch.arguments) pointers.push_back(argument.data);
  CudaLaunchAttribute overlap;
  overlap.id = CudaLaunchAttribute::kProgrammaticStreamSerialization;
  overlap.value[0] = 1;
  CudaLaunchConfig config;
  SetShape(launch, &config);
  config.stream = stream;
  config.attributes = &overlap;
  config.num_attributes = launch.waits ? 1 : 0;
  const auto launch_once = [&] { return RequireCudaDriver().launch_kernel(&config, launch.kernel, pointers.data(), nullptr); };
  const int error = launch_once();
  if (error != CudaDriver::kInvalidContext) return error;
  // What came from LibTorch so far, memory of its cache among it, needed no context on this thread: it has none yet.
  const c10::impl::VirtualGuardImpl device_of(c10::kCUDA);
  if (const int failed = SetCurrentContext(device_of.getDevice().index()); failed != 0) return failed;
  return launch_once();
}

size_t Padded(size_t size) { return (size + 7) / 8 * 8; }

}  // namespace

LaunchTape::Scope::Scope(LaunchTape* tape) : outer_(current_tape) { current_tape = tape; }
LaunchTape::Scope::~Scope() { current_tape = outer_; }

bool LaunchTape::IsActive() { return current_tape != nullptr; }

bool LaunchTape::IsPatching() { return current_tape != nullptr && current_tape->exec_ != nullptr; }

int LaunchTape::Record(const GpuLaunch& launch, CudaStreamHandle stream) {
  if (const int error = LaunchNow(launch, stream); error != 0) return error;
  Entry entry;
  entry.shape = launch;
  entry.shape.arguments = {};
  for (const GpuLaunch::Argument& argument : launch.arguments) {
    entry.sizes.push_back(argument.size);
    const size_t at = entry.bytes.size();
    entry.bytes.resize(at + Padded(argument.size));
    std::memcpy(entry.bytes.data() + at, argument.data, argument.size);
  }
  // What would come next depends on the launch alone: work is captured from one stream.
  const CudaGraphNode* last = nullptr;
  size_t count = 0;
  if (const int error = RequireCudaDriver().LastCaptured(stream, &last, &count); error != 0) return error;
  TORCH_INTERNAL_ASSERT(count == 1, "lazuli: a captured launch has ", count, " ends");
  entry.node = last[0];
  entries_.push_back(std::move(entry));
  return 0;
}

int LaunchTape::Patch(const GpuLaunch& launch) {
  TORCH_INTERNAL_ASSERT(next_ < entries_.size() && entries_[next_].shape.kernel == launch.kernel,
                        "lazuli: a CUDA graph's launches differ from what was captured");
  Entry& entry = entries_[next_++];
  bool changed = entry.shape.grid_x != launch.grid_x || entry.shape.grid_y != launch.grid_y;
  entry.shape.grid_x = launch.grid_x;
  entry.shape.grid_y = launch.grid_y;
  Pointers pointers;
  size_t at = 0;
  for (size_t i = 0; i < entry.sizes.size(); ++i) {
    char* kept = entry.bytes.data() + at;
    pointers.push_back(kept);
    at += Padded(entry.sizes[i]);
    if (i + launch.num_own >= entry.sizes.size()) continue;
    const GpuLaunch::Argument& argument = launch.arguments[i];
    if (std::memcmp(kept, argument.data, argument.size) == 0) continue;
    std::memcpy(kept, argument.data, argument.size);
    changed = true;
  }
  if (!changed) return 0;
  CudaKernelNodeParams params;
  SetShape(launch, &params);
  params.arguments = pointers.data();
  params.kernel = launch.kernel;
  return RequireCudaDriver().graph_exec_kernel_node_set_params(exec_, entry.node, &params);
}

int Launch(const GpuLaunch& launch, CudaStreamHandle stream) {
  if (current_tape == nullptr) return LaunchNow(launch, stream);
  return current_tape->exec_ == nullptr ? current_tape->Record(launch, stream) : current_tape->Patch(launch);
}

}  // namespace lazuli::runtime
