#include "codegen/autotune.h"

#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/compile_pool.h"
#include "runtime/counters.h"
#include "runtime/log.h"

namespace lazuli::codegen {
namespace {

constexpr int64_t kMaxBytes = int64_t{256} << 20;  // Of all operands; kernels over more are not timed,
constexpr double kMinSeconds = 3e-6;               // nor are those that take less.
constexpr double kSampleSeconds = 20e-6;
constexpr int kMinTurns = 9;
constexpr int kMaxTurns = 15;
constexpr double kCompileSeconds = 5e-3;  // About.
constexpr double kGain = 0.97;            // What replaces a schedule takes less than this much of its time,
constexpr double kWins = 0.8;             // in this share of turns.
constexpr int64_t kPattern = 4096;        // Elements.

class Clock {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

uint32_t HashOf(int64_t i) { return static_cast<uint32_t>(i) * 2654435761u >> 16; }

// Ordinary values: floats from 0.5 to 1.5, small whole numbers that can be divided by, both truth values.
template <class T>
std::string PatternOf(T (*value)(uint32_t)) {
  std::vector<T> values(kPattern);
  for (int64_t i = 0; i < kPattern; ++i) values[static_cast<size_t>(i)] = value(HashOf(i));
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

template <class T>
T FloatFrom(uint32_t bits) {
  return static_cast<T>(0.5f + static_cast<float>(bits) / 65536.0f);
}

template <class T>
T WholeFrom(uint32_t bits) {
  return static_cast<T>(1 + bits % 4);
}

std::string Pattern(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Float:
      return PatternOf<float>(FloatFrom<float>);
    case c10::ScalarType::Double:
      return PatternOf<double>(FloatFrom<double>);
    case c10::ScalarType::BFloat16:
      return PatternOf<c10::BFloat16>(FloatFrom<c10::BFloat16>);
    case c10::ScalarType::Half:
      return PatternOf<c10::Half>(FloatFrom<c10::Half>);
    case c10::ScalarType::Bool:
      return PatternOf<uint8_t>([](uint32_t bits) { return static_cast<uint8_t>(bits % 2); });
    case c10::ScalarType::Long:
      return PatternOf<int64_t>(WholeFrom<int64_t>);
    case c10::ScalarType::Int:
      return PatternOf<int32_t>(WholeFrom<int32_t>);
    case c10::ScalarType::Short:
      return PatternOf<int16_t>(WholeFrom<int16_t>);
    default:
      return PatternOf<uint8_t>(WholeFrom<uint8_t>);
  }
}

// Memory like that of a kernel's operands, sizes that are symbols being what they were when it was made.
class Operands {
 public:
  explicit Operands(const KernelIR& kernel) : kernel_(kernel), in_place_(kernel.buffers.size(), false) {
    for (int i = 0; i < kernel.symbols.size(); ++i) symbols_.push_back(kernel.symbols.hint(i));
    for (const KInst& inst : kernel.insts) {
      if (inst.op == KOp::kLoad) in_place_[static_cast<size_t>(inst.imm)] = kernel.buffers[static_cast<size_t>(inst.imm)].written;
    }
    any_in_place_ = std::find(in_place_.begin(), in_place_.end(), true) != in_place_.end();
    for (const KBuffer& buffer : kernel.buffers) extents_.push_back(ExtentOf(buffer));
  }

  int64_t bytes() const {
    int64_t bytes = 0;
    for (const Extent& extent : extents_) bytes += extent.bytes;
    return bytes;
  }

  void Allocate() {
    scalars_.assign(static_cast<size_t>(kernel_.num_scalars), 0);
    for (const KInst& inst : kernel_.insts) {
      if (inst.op != KOp::kScalar) continue;
      constexpr double kNumber = 0.5;
      uint64_t bits = 1;
      if (c10::isFloatingType(inst.type)) std::memcpy(&bits, &kNumber, sizeof(bits));
      scalars_[static_cast<size_t>(inst.imm)] = bits;
    }
    for (size_t b = 0; b < extents_.size(); ++b) {
      memory_.push_back(c10::GetCPUAllocator()->allocate(static_cast<size_t>(std::max<int64_t>(extents_[b].bytes, 1))));
      pointers_.push_back(static_cast<char*>(memory_.back().get()) + extents_[b].first);
      Fill(b);
    }
  }

  bool any_in_place() const { return any_in_place_; }
  // What a kernel updates again and again would run out of ordinary values.
  void Renew() {
    for (size_t b = 0; any_in_place_ && b < extents_.size(); ++b) {
      if (in_place_[b]) Fill(b);
    }
  }
  void Run(const CompiledKernel& kernel) const { kernel.Run(pointers_.data(), scalars_.data(), symbols_.data()); }

 private:
  struct Extent {
    int64_t bytes = 0;
    int64_t first = 0;  // Where the point at the beginning of all dimensions lies.
  };

  Extent ExtentOf(const KBuffer& buffer) const {
    int64_t low = 0, high = 0;
    for (size_t d = 0; d < kernel_.sizes.size(); ++d) {
      const int64_t reach = kernel_.symbols.Hint(buffer.strides[d]) * (std::max<int64_t>(kernel_.symbols.Hint(kernel_.sizes[d]), 1) - 1);
      (reach < 0 ? low : high) += reach;
    }
    const int64_t element = ElementBytes(buffer.dtype);
    return {(high - low + 1) * element, -low * element};
  }

  void Fill(size_t b) {
    const std::string pattern = Pattern(kernel_.buffers[b].dtype);
    auto* memory = static_cast<char*>(memory_[b].get());
    const auto bytes = static_cast<size_t>(extents_[b].bytes);
    for (size_t at = 0; at < bytes; at += pattern.size()) std::memcpy(memory + at, pattern.data(), std::min(pattern.size(), bytes - at));
  }

  const KernelIR& kernel_;
  std::vector<bool> in_place_;
  bool any_in_place_ = false;
  std::vector<Extent> extents_;
  std::vector<at::DataPtr> memory_;
  std::vector<void*> pointers_;
  std::vector<uint64_t> scalars_;
  std::vector<int64_t> symbols_;
};

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

class Tuner {
 public:
  Tuner(const KernelIR& kernel, double budget, const MakeWithSchedule& make) : operands_(kernel), budget_(budget), make_(make) {}

  // Why the kernel is not timed; empty: it can be, and this is done for the default schedule.
  std::string Begin(const CompiledKernel& by_default) {
    if (operands_.bytes() > kMaxBytes) return absl::StrCat("not timed: it is over ", operands_.bytes() >> 20, " MiB of memory");
    try {
      operands_.Allocate();
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
    std::vector<double> ours, theirs;
    int wins = 0;
    Sample(**made);
    const double give_up = std::min(budget_, clock_.seconds() + budget_ / 8);
    for (int turn = 0; turn < kMaxTurns && (turn < kMinTurns || clock_.seconds() < give_up); ++turn) {
      theirs.push_back(Sample(*best_));
      ours.push_back(Sample(**made));
      wins += ours.back() < theirs.back() ? 1 : 0;
    }
    ++timed_;
    const double mine = Median(ours), other = Median(theirs);
    const bool faster = mine < kGain * other && wins >= kWins * static_cast<double>(ours.size());
    absl::StrAppendFormat(&report_, "\n  %s: %.1f us, %s %.1f us%s", PrintSchedule(schedule), 1e6 * mine, PrintSchedule(choice_),
                          1e6 * other, faster ? ", taken" : "");
    if (!faster) return;
    choice_ = schedule;
    seconds_ = mine;
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
  Operands operands_;
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
