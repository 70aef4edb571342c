#include "codegen/cuda/autotune_cuda.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <mutex>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "codegen/race.h"
#include "codegen/trial_operands.h"
#include "runtime/compile_pool.h"
#include "runtime/counters.h"
#include "runtime/device.h"
#include "runtime/gpu_timer.h"
#include "runtime/log.h"

namespace lazuli::codegen {
namespace {

constexpr int64_t kMostTrialBytes = int64_t{512} << 20;  // Of all operands; kernels over more are not timed,
constexpr double kShortestSeconds = 4e-6;                // nor are those that take less, about as long as a launch does.
// Operands of less are there several times, so that no run finds its own in the cache, but no more often than this.
constexpr int64_t kGpuCacheBytes = int64_t{128} << 20, kMaxCopies = 8;
constexpr double kGpuSampleSeconds = 50e-6;
constexpr int kMostTrialRepeats = 16;
constexpr double kNeverSeconds = 3600;
constexpr double kHopelessSchedule = 1.2;  // What takes so much longer the first time is not timed further.

c10::Device FirstGpuOf(const std::string& arch) {
  const c10::DeviceIndex count = c10::impl::VirtualGuardImpl(c10::kCUDA).deviceCount();
  for (c10::DeviceIndex d = 0; d < count; ++d) {
    const absl::StatusOr<runtime::CudaDeviceInfo> info = runtime::GetCudaDeviceInfo(d);
    if (info.ok() && info->arch == arch) return {c10::kCUDA, d};
  }
  return c10::kCPU;
}

// The current stream of the device, whose context becomes this thread's.
runtime::CudaStreamHandle TrialStreamOf(c10::Device device) {
  runtime::SetCurrentContext(device.index());
  return runtime::HandleOf(runtime::CurrentStream(device));
}

class CudaTuner {
 public:
  CudaTuner(const KernelIR& kernel, c10::Device device, double budget)
      : kernel_(kernel), budget_(budget), guard_(device), timer_(TrialStreamOf(device)) {}

  // Why the kernel is not timed; empty: it can be, and this is done for the default schedule.
  std::string Begin(const CompiledKernel& by_default) {
    const Using timing(this);
    const int64_t bytes = TrialOperands(kernel_).bytes();
    if (bytes > kMostTrialBytes) return absl::StrCat("not timed: it is over ", bytes >> 20, " MiB of memory");
    if (const std::string why_not = Allocate(); !why_not.empty()) return absl::StrCat("not timed: ", why_not);
    best_ = &by_default;
    Sample(by_default);
    seconds_ = Sample(by_default);
    if (seconds_ >= kNeverSeconds) return "not timed: it does not run";
    if (seconds_ < kShortestSeconds) return absl::StrFormat("not timed: it takes %.1f us", 1e6 * seconds_);
    repeats_ = std::clamp(static_cast<int>(kGpuSampleSeconds / seconds_), 1, kMostTrialRepeats);
    return "";
  }

  bool HasTime() const { return !runtime::CompilePool::Hurries() && spent_ + 2.0 * kMinTurns * repeats_ * seconds_ < budget_; }

  // Times `kernel` by turns with the best so far, which it becomes when it is faster.
  void Try(const CudaSchedule& schedule, std::shared_ptr<const CompiledKernel> kernel) {
    const Using timing(this);
    if (!Allocate().empty()) return;
    Sample(*kernel);
    ++timed_;
    if (const double once = Sample(*kernel); once > kHopelessSchedule * seconds_) {
      absl::StrAppendFormat(&report_, "\n  %s: %.1f us", PrintCudaSchedule(schedule), 1e6 * once);
      return;
    }
    const double give_up = std::min(budget_, timing.spent() + budget_ / 8);
    const RaceResult race = Race([&] { return Sample(*kernel); }, [&] { return Sample(*best_); }, [&] { return timing.spent() < give_up; });
    absl::StrAppendFormat(&report_, "\n  %s: %.1f us, %s %.1f us%s", PrintCudaSchedule(schedule), 1e6 * race.ours,
                          PrintCudaSchedule(choice_), 1e6 * race.theirs, race.faster ? ", taken" : "");
    if (!race.faster) return;
    choice_ = schedule;
    seconds_ = race.ours;
    kept_ = std::move(kernel);
    best_ = kept_.get();
  }

  const CudaSchedule& choice() const { return choice_; }
  int timed() const { return timed_; }
  const std::string& report() const { return report_; }

 private:
  using Clock = std::chrono::steady_clock;

  // While one is in scope the GPU is this tuner's among all tuners, and its time counts.
  class Using {
   public:
    explicit Using(CudaTuner* tuner) : lock_(OneAtATime()), tuner_(tuner) {}
    ~Using() {
      tuner_->copies_.clear();
      tuner_->timer_.KeepBusy(0);
      tuner_->spent_ = spent();
    }
    Using(const Using&) = delete;
    Using& operator=(const Using&) = delete;
    double spent() const { return tuner_->spent_ + std::chrono::duration<double>(Clock::now() - start_).count(); }

   private:
    static std::mutex& OneAtATime() {
      static auto* const mutex = new std::mutex;
      return *mutex;
    }

    const std::lock_guard<std::mutex> lock_;
    const runtime::AnyCaptures captures_;
    CudaTuner* const tuner_;
    const Clock::time_point start_ = Clock::now();
  };

  // Says what is in the way. Only for as long as this tuner uses the GPU: others compile meanwhile, and want memory after it.
  std::string Allocate() {
    const int64_t bytes = std::max<int64_t>(TrialOperands(kernel_).bytes(), 1);
    const int64_t copies = std::clamp<int64_t>(kGpuCacheBytes / bytes, 1, kMaxCopies);
    try {
      for (int64_t i = 0; i < copies; ++i) {
        copies_.emplace_back(kernel_);
        copies_.back().Allocate(guard_.current_device());
      }
      if (repeats_ > 1) timer_.KeepBusy(repeats_);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  }

  // Seconds of one run; kNeverSeconds for what does not run.
  double Sample(const CompiledKernel& kernel) {
    if (copies_.front().any_in_place()) {
      for (TrialOperands& copy : copies_) copy.Renew();
    }
    try {
      const absl::StatusOr<double> seconds = timer_.Time([&] {
        for (int i = 0; i < repeats_; ++i) copies_[next_++ % copies_.size()].Run(kernel);
      });
      if (seconds.ok()) return *seconds / repeats_;
    } catch (const std::exception&) {
      // More registers or shared memory than the GPU has: a launch that the driver refuses.
    }
    return kNeverSeconds;
  }

  const KernelIR& kernel_;
  const double budget_;  // Seconds.
  const c10::DeviceGuard guard_;
  runtime::GpuTimer timer_;
  std::vector<TrialOperands> copies_;
  size_t next_ = 0;
  double spent_ = 0;  // Seconds.
  int repeats_ = 1;
  double seconds_ = 0;  // Of the best.
  const CompiledKernel* best_ = nullptr;
  std::shared_ptr<const CompiledKernel> kept_;  // The best, when it is not the default.
  CudaSchedule choice_;
  int timed_ = 0;
  std::string report_;
};

void LogCudaChoice(const KernelIR& kernel, const std::string& text) {
  if (!runtime::LogEnabled(runtime::LogCategory::kAutotuning)) return;
  std::string sizes;
  for (const int64_t size : kernel.sizes) absl::StrAppend(&sizes, sizes.empty() ? "" : ", ", kernel.symbols.Text(size));
  runtime::Log(runtime::LogCategory::kAutotuning, absl::StrCat("GPU kernel of ", kernel.insts.size(), " instructions over [", sizes, "], ",
                                                               kernel.num_reduced, " reduced: ", text));
}

}  // namespace

CudaSchedule AutotuneCuda(const KernelIR& kernel, const std::string& arch, bool reorder, int64_t budget_ms,
                          const CompiledKernel& by_default, const MakeWithCudaSchedule& make) {
  const c10::Device device = FirstGpuOf(arch);
  if (!MayRunOnTrialOperands(kernel) || device.is_cpu()) return {};
  CudaTuner tuner(kernel, device, 1e-3 * static_cast<double>(budget_ms));
  if (const std::string why_not = tuner.Begin(by_default); !why_not.empty()) {
    LogCudaChoice(kernel, why_not);
    return {};
  }
  for (int choice = 0; choice < NumCudaChoices(); ++choice) {
    for (const CudaSchedule& schedule : CudaVariations(tuner.choice(), choice, reorder)) {
      if (!tuner.HasTime()) break;
      absl::StatusOr<std::shared_ptr<const CompiledKernel>> made = make(schedule);
      if (made.ok() && *made != nullptr) tuner.Try(schedule, *std::move(made));
    }
  }
  if (tuner.timed() > 0) {
    runtime::Counters::Get().kernels_tuned.Add();
    runtime::Counters::Get().schedules_timed.Add(tuner.timed() + 1);
  }
  LogCudaChoice(kernel, absl::StrCat(PrintCudaSchedule(tuner.choice()), " chosen of ", tuner.timed() + 1, tuner.report()));
  return tuner.choice();
}

}  // namespace lazuli::codegen
