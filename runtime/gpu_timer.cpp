#include "runtime/gpu_timer.h"

#include "absl/strings/str_cat.h"

namespace lazuli::runtime {
namespace {

constexpr size_t kBusyBytes = size_t{16} << 20;

}  // namespace

GpuTimer::GpuTimer(CudaStreamHandle stream) : driver_(RequireCudaDriver()), stream_(stream) {
  error_ = driver_.event_create(&begin_, 0);
  if (error_ == 0) error_ = driver_.event_create(&end_, 0);
}

GpuTimer::~GpuTimer() {
  if (begin_ != nullptr) driver_.event_destroy(begin_);
  if (end_ != nullptr) driver_.event_destroy(end_);
}

void GpuTimer::KeepBusy(int times) {
  if (times == 0) busy_.clear();
  if (times > 0 && !busy_) busy_ = c10::GetAllocator(c10::kCUDA)->allocate(kBusyBytes);
  busy_times_ = times;
}

absl::StatusOr<double> GpuTimer::Time(const std::function<void()>& launch) {
  float milliseconds = 0;
  int error = error_;
  for (int i = 0; i < busy_times_ && error == 0; ++i)
    error = driver_.memset(reinterpret_cast<uint64_t>(busy_.get()), 0, kBusyBytes, stream_);
  if (error == 0) error = driver_.event_record(begin_, stream_);
  if (error == 0) launch();
  if (error == 0) error = driver_.event_record(end_, stream_);
  if (error == 0) error = driver_.event_synchronize(end_);
  if (error == 0) error = driver_.event_elapsed_time(&milliseconds, begin_, end_);
  if (error != 0) return absl::InternalError(absl::StrCat("cannot time the GPU's work: ", driver_.ErrorText(error)));
  return 1e-3 * static_cast<double>(milliseconds);
}

}  // namespace lazuli::runtime
