// Times what is launched on a stream of a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "runtime/cuda_driver.h"

namespace lazuli::runtime {

class GpuTimer {
 public:
  // On the current device, whose stream it is and on which nothing may be captured.
  explicit GpuTimer(CudaStreamHandle stream);
  ~GpuTimer();
  GpuTimer(const GpuTimer&) = delete;
  GpuTimer& operator=(const GpuTimer&) = delete;

  // Seconds that the GPU needs for what `launch` launches, by the GPU's own clock. Waits for that. Fails with the driver's error.
  absl::StatusOr<double> Time(const std::function<void()>& launch);

  // While it has memory to fill first, so many times, the GPU is busy while work is launched that would take less than launching it.
  // `memory`: of the GPU, for as long as this timer is used.
  void KeepBusy(void* memory, size_t bytes, int times);

 private:
  const CudaDriver& driver_;
  CudaStreamHandle stream_;
  CudaEventHandle begin_ = nullptr, end_ = nullptr;
  int error_ = 0;
  uint64_t busy_memory_ = 0;
  size_t busy_bytes_ = 0;
  int busy_times_ = 0;
};

}  // namespace lazuli::runtime
