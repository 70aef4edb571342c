// The devices whose tensors are recorded, the CPU and CUDA GPUs: their names in a trace, their memory, their streams. Everything goes
// through c10's device-generic interfaces: nothing of CUDA is linked.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <optional>

namespace lazuli::runtime {

// A device in six bits: 0 is the CPU, 1 and up the GPU of that index minus one.
using DeviceCode = uint8_t;
constexpr DeviceCode kCpuCode = 0;
constexpr DeviceCode kMaxDeviceCode = 63;

// Null for devices that are not recorded. A GPU without an index is the thread's current one.
std::optional<DeviceCode> CodeOfGpu(c10::Device device);
inline std::optional<DeviceCode> CodeOf(c10::Device device) {
  if (device.is_cpu()) return kCpuCode;
  return CodeOfGpu(device);
}
inline c10::Device DeviceOf(DeviceCode code) {
  return code == kCpuCode ? c10::Device(c10::kCPU) : c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(code - 1));
}

// LibTorch's allocator for memory of that device.
c10::Allocator* AllocatorOf(c10::Device device);

// Uninitialised memory for a result, or for one run when it is `scratch`: the CPU's from BufferPool, a GPU's from LibTorch's caching
// allocator, for use on the thread's current stream of that device. Throws c10::OutOfMemoryError.
at::DataPtr AllocateOn(c10::Device device, int64_t nbytes, bool scratch);

// Bytes of memory that a device has, in use or not; 0 where it cannot be asked.
int64_t MemoryOf(c10::Device device);

// The stream that this thread would launch work for GPU `device` on.
c10::Stream CurrentStream(c10::Device device);

// A stream of GPU `device`'s beside those that are in use, as far as there are others.
c10::Stream NewStream(c10::Device device);

// Makes what is launched on `later` from now on wait for what was launched on `earlier`; both belong to GPUs.
void OrderStreams(const c10::Stream& earlier, const c10::Stream& later);

// Whether work launched on `stream` goes into a CUDA graph instead of running.
bool IsCapturing(const c10::Stream& stream);

}  // namespace lazuli::runtime
