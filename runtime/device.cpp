#include "runtime/device.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <unistd.h>

#include <algorithm>

#include "runtime/buffer_pool.h"
#include "runtime/cuda_driver.h"

namespace lazuli::runtime {

std::optional<DeviceCode> CodeOfGpu(c10::Device device) {
  if (!device.is_cuda() || !c10::impl::hasDeviceGuardImpl(c10::kCUDA)) return std::nullopt;
  const int index = device.has_index() ? device.index() : c10::impl::VirtualGuardImpl(c10::kCUDA).getDevice().index();
  if (index < 0 || index + 1 > kMaxDeviceCode) return std::nullopt;
  return static_cast<DeviceCode>(index + 1);
}

c10::Allocator* AllocatorOf(c10::Device device) { return device.is_cpu() ? c10::GetCPUAllocator() : c10::GetAllocator(device.type()); }

at::DataPtr AllocateOn(c10::Device device, int64_t nbytes, bool scratch) {
  if (device.is_cpu()) return scratch ? BufferPool::Get().AllocateScratch(nbytes) : BufferPool::Get().Allocate(nbytes);
  const c10::DeviceGuard guard(device);
  return AllocatorOf(device)->allocate(static_cast<size_t>(nbytes));
}

int64_t MemoryOf(c10::Device device) {
  if (device.is_cpu()) {
    static const int64_t all = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<int64_t>(sysconf(_SC_PAGE_SIZE));
    return std::max<int64_t>(all, 0);
  }
  const absl::StatusOr<CudaDeviceInfo> info = GetCudaDeviceInfo(device.index());
  return info.ok() ? info->memory : 0;
}

c10::Stream CurrentStream(c10::Device device) { return c10::impl::VirtualGuardImpl(device.type()).getStream(device); }

c10::Stream NewStream(c10::Device device) { return c10::impl::VirtualGuardImpl(device.type()).getNewStream(device, /*priority=*/0); }

void OrderStreams(const c10::Stream& earlier, const c10::Stream& later) {
  const c10::DeviceGuard guard(earlier.device());
  c10::Event event(earlier.device_type());
  event.record(earlier);
  event.block(later);
}

bool IsCapturing(const c10::Stream& stream) {
  if (stream.id() == 0) return false;  // The default stream cannot.
  const absl::StatusOr<const CudaDriver*> driver = GetCudaDriver();
  int status = 0;
  return driver.ok() && (*driver)->stream_is_capturing(HandleOf(stream), &status) == 0 && status != CudaDriver::kNotCapturing;
}

}  // namespace lazuli::runtime
