#include "codegen/autotune.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "codegen/race.h"
#include "codegen/trial_operands.h"
#include "runtime/compile_pool.h"
#include "runtime/counters.h"
#include "runtime/log.h"

namespace lazuli::codegen {
namespace {

constexpr int64_t kMaxBytes = int64_t{256} << 20;  // Of all operands; kernels over more are not timed,
constexpr double kMinSeconds = 3e-6;               // nor are those that take less.
constexpr double kSampleSeconds = 20e-6;
constexpr double kCompileSeconds = 5e-3;  // About.

class Clock {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

class Tuner {
 public:
  Tuner(const KernelIR& kernel, double budget, const MakeWithSchedule& make) : operands_(kernel), budget_(budget), make_(make) {}

  // Why the kernel is not timed; empty: it can be, and this is done for the default schedule.
  std::string Begin(const CompiledKernel& by_default) {
    if (operands_.bytes() > kMaxBytes) return absl::StrCat("not timed: it is over ", operands_.bytes() >> 20, " MiB of memory");
    try {
      operands_.Allocate(c10::kCPU);
    } catch (const std::exception& error) {
      return absl::StrCat("not timed: ", error.what());
    }
    best_ = &by_default;
    Sample(by_default);
    const double once = Sample(by_default);
    if (once < kMinSeconds) return absl::StrFormat("not timed: it takes %.1f us", 1e6 * once);
    const int most = operands_.any_in_place() ? 8 : 64;
    repeats_ = std::clamp(static_cast<int>(kSampleSeconds / once), 1, most);
    seconds_ = once;
    return "";
  }

  // Whether there is time to compile and time one more.
  bool HasTime() const {
    return !runtime::CompilePool::Hurries() && clock_.seconds() + kCompileSeconds + 2.0 * kMinTurns * repeats_ * seconds_ < budget_;
  }

  // Times `schedule` by turns with the best so far, which it becomes when it is faster.
  void Try(const Schedule& schedule) {
    auto made = make_(schedule);
    if (!made.ok()) return;
    Sample(**made);
    const double give_up = std::min(budget_, clock_.seconds() + budget_ / 8);
    const RaceResult race =
        Race([&] { return Sample(**made); }, [&] { return Sample(*best_); }, [&] { return clock_.seconds() < give_up; });
    ++timed_;
    absl::StrAppendFormat(&report_, "\n  %s: %.1f us, %s %.1f us%s", PrintSchedule(schedule), 1e6 * race.ours, PrintSchedule(choice_),
                          1e6 * race.theirs, race.faster ? ", taken" : "");
    if (!race.faster) return;
    choice_ = schedule;
    seconds_ = race.ours;
    kept_ = *std::move(made);
    best_ = kept_.get();
  }

  const Schedule& choice() const { return choice_; }
  int timed() const { return timed_; }
  const std::string& report() const { return report_; }

 private:
  // Seconds of one run.
  double Sample(const CompiledKernel& kernel) {
    operands_.Renew();
    const Clock clock;
    for (int i = 0; i < repeats_; ++i) operands_.Run(kernel);
    return clock.seconds() / repeats_;
  }

  const Clock clock_;
  TrialOperands operands_;
  const double budget_;  // Seconds.
  const MakeWithSchedule& make_;
  int repeats_ = 1;
  double seconds_ = 0;  // Of the best.
  const CompiledKernel* best_ = nullptr;
  std::shared_ptr<const CompiledKernel> kept_;  // The best, when it is not the default.
  Schedule choice_;
  int timed_ = 0;
  std::string report_;
};

void LogChoice(const LoopPlan& plan, const std::string& text) {
  if (!runtime::LogEnabled(runtime::LogCategory::kAutotuning)) return;
  std::string sizes;
  for (const int64_t size : plan.kernel.sizes) absl::StrAppend(&sizes, sizes.empty() ? "" : ", ", plan.kernel.symbols.Text(size));
  runtime::Log(runtime::LogCategory::kAutotuning,
               absl::StrCat("Kernel of ", plan.kernel.insts.size(), " instructions over [", sizes, "]: ", text));
}

}  // namespace

Schedule Autotune(const KernelIR& kernel, const LoopPlan& plan, const IsaInfo& isa, int64_t budget_ms, const CompiledKernel& by_default,
                  const MakeWithSchedule& make) {
  static std::mutex* const one_at_a_time = new std::mutex;
  std::lock_guard<std::mutex> lock(*one_at_a_time);
  Tuner tuner(kernel, 1e-3 * static_cast<double>(budget_ms), make);
  // A thread that compiles in the background has a team of its own, which competes with the program's: more threads would seem worth less.
  const int threads = runtime::CompilePool::OnItsThread() ? 1 : at::get_num_threads();
  const auto variations = [&](Knob knob) { return Variations(plan, isa, threads, tuner.choice(), knob); };
  if (std::all_of(std::begin(kAllKnobs), std::end(kAllKnobs), [&](Knob knob) { return variations(knob).empty(); })) {
    LogChoice(plan, "nothing to choose");
    return {};
  }
  if (const std::string why_not = tuner.Begin(by_default); !why_not.empty()) {
    LogChoice(plan, why_not);
    return {};
  }
  for (const Knob knob : kAllKnobs) {
    for (const Schedule& schedule : variations(knob)) {
      if (tuner.HasTime()) tuner.Try(schedule);
    }
  }
  if (tuner.timed() > 0) {
    runtime::Counters::Get().kernels_tuned.Add();
    runtime::Counters::Get().schedules_timed.Add(tuner.timed() + 1);
  }
  LogChoice(plan, absl::StrCat(PrintSchedule(tuner.choice()), " chosen of ", tuner.timed() + 1, tuner.report()));
  return tuner.choice();
}

}  // namespace lazuli::codegen
