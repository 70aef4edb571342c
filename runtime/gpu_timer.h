// Times what is launched on a stream of a GPU.
#pragma once

#include <c10/core/Allocator.h>

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

  // From here on the GPU has something to fill first, so many times, some 5 us each, and is busy while work is launched that would take
  // less than launching it. 0: no more. Throws c10::Error when there is no memory for it.
  void KeepBusy(int times);

 private:
  const CudaDriver& driver_;
  CudaStreamHandle stream_;
  CudaEventHandle begin_ = nullptr, end_ = nullptr;
  int error_ = 0;
  c10::DataPtr busy_;  // Memory of the GPU.
  int busy_times_ = 0;
};

}  // namespace lazuli::runtime
