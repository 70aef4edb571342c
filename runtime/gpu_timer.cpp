#include "runtime/gpu_timer.h"

#include "absl/strings/str_cat.h"

namespace lazuli::runtime {

GpuTimer::GpuTimer(CudaStreamHandle stream) : driver_(RequireCudaDriver()), stream_(stream) {
  error_ = driver_.event_create(&begin_, 0);
  if (error_ == 0) error_ = driver_.event_create(&end_, 0);
}

GpuTimer::~GpuTimer() {
  if (begin_ != nullptr) driver_.event_destroy(begin_);
  if (end_ != nullptr) driver_.event_destroy(end_);
}

void GpuTimer::KeepBusy(void* memory, size_t bytes, int times) {
  busy_memory_ = reinterpret_cast<uint64_t>(memory);
  busy_bytes_ = bytes;
  busy_times_ = times;
}

absl::StatusOr<double> GpuTimer::Time(const std::function<void()>& launch) {
  float milliseconds = 0;
  int error = error_;
  for (int i = 0; i < busy_times_ && error == 0; ++i) error = driver_.memset(busy_memory_, 0, busy_bytes_, stream_);
  if (error == 0) error = driver_.event_record(begin_, stream_);
  if (error == 0) launch();
  if (error == 0) error = driver_.event_record(end_, stream_);
  if (error == 0) error = driver_.event_synchronize(end_);
  if (error == 0) error = driver_.event_elapsed_time(&milliseconds, begin_, end_);
  if (error != 0) return absl::InternalError(absl::StrCat("cannot time the GPU's work: ", driver_.ErrorText(error)));
  return 1e-3 * static_cast<double>(milliseconds);
}

}  // namespace lazuli::runtime
