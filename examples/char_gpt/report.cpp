#include "report.h"

#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <map>

#include "lazuli/lazuli.h"

namespace char_gpt {
namespace {

constexpr double kTolerance = 1e-3;
constexpr size_t kComparedSteps = 50;

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

bool Close(double a, double b) { return std::abs(a - b) <= kTolerance * std::abs(a); }

void PrintCount(const char* name, int64_t value) { std::printf("  %-22s %" PRId64 "\n", name, value); }

// A total, and what it is made of.
void PrintCounts(const char* title, const std::map<std::string, int64_t>& counts) {
  int64_t total = 0;
  for (const auto& [name, count] : counts) total += count;
  PrintCount(title, total);
  for (const auto& [name, count] : counts) std::printf("    %-36s %" PRId64 "\n", name.c_str(), count);
}

}  // namespace

void Report::CheckModeIsOff() {
  if (!lazuli::is_enabled()) return;
  throw UserError("Lazuli is on already (LAZULI=1), so there is no eager run to compare with. Run char_gpt without it.");
}

size_t Report::warm_up() const { return std::min<size_t>(10, static_cast<size_t>(options_.steps) / 2); }

void Report::Progress(const char* name, int64_t step, double loss) {
  static const bool terminal = isatty(STDOUT_FILENO) != 0;
  const int64_t every = terminal ? 1 : std::max<int64_t>(1, options_.steps / 4);
  if (step % every != 0 && step != options_.steps) return;
  std::printf("%s%-7s step %" PRId64 "/%" PRId64 "  loss %.4f%s", terminal ? "\r" : "", name, step, options_.steps, loss,
              terminal && step != options_.steps ? "" : "\n");
  std::fflush(stdout);
}

StepHook Report::EagerProgress() {
  return [this](int64_t step, double loss) { Progress("eager", step, loss); };
}

StepHook Report::LazuliProgress() {
  before_ = lazuli::stats();
  per_step_.clear();
  return [this](int64_t step, double loss) {
    per_step_.push_back(lazuli::stats());
    Progress("lazuli", step, loss);
  };
}

void Report::PrintLosses(const TrainLog& eager, const TrainLog& lazuli) const {
  std::printf("\n%8s %12s %12s %12s\n", "step", "eager loss", "lazuli loss", "difference");
  const size_t count = eager.losses.size();
  const size_t every = std::max<size_t>(1, count / 10);
  for (size_t i = 0; i < count; ++i) {
    if ((i + 1) % every != 0 && i != 0 && i + 1 != count) continue;
    std::printf("%8zu %12.6f %12.6f %12.2e\n", i + 1, eager.losses[i], lazuli.losses[i],
                std::abs(eager.losses[i] - lazuli.losses[i]) / std::abs(eager.losses[i]));
  }
}

void Report::PrintTimes(const TrainLog& eager, const TrainLog& lazuli) const {
  const auto median = [&](const TrainLog& log) {
    return Median({log.step_ms.begin() + static_cast<int64_t>(warm_up()), log.step_ms.end()});
  };
  const double eager_ms = median(eager);
  const double lazuli_ms = median(lazuli);
  std::printf("\nmedian step: eager %.2f ms, lazuli %.2f ms: %.2fx as fast\n", eager_ms, lazuli_ms, eager_ms / lazuli_ms);
  std::printf("first step:  eager %.2f ms, lazuli %.2f ms (compiling included)\n", eager.step_ms[0], lazuli.step_ms[0]);
}

void Report::PrintCompiles() const {
  const size_t warm = warm_up();
  int64_t last = 0;
  std::string steps;
  for (size_t i = 0; i < per_step_.size(); ++i) {
    const int64_t before = i == 0 ? before_.programs_compiled : per_step_[i - 1].programs_compiled;
    const int64_t compiled = per_step_[i].programs_compiled - before;
    if (compiled == 0) continue;
    last = static_cast<int64_t>(i) + 1;
    if (steps.size() < 200) steps += (steps.empty() ? "" : ", ") + std::to_string(compiled) + " in step " + std::to_string(last);
  }
  std::printf("  programs by step       %s; none in the %" PRId64 " steps since\n", steps.empty() ? "none" : steps.c_str(),
              static_cast<int64_t>(per_step_.size()) - last);
  const auto& base = warm == 0 ? before_ : per_step_[warm - 1];
  std::printf("  compiles after warm-up %" PRId64 " programs, %" PRId64 " kernels (warm-up: %zu steps)\n",
              per_step_.back().programs_compiled - base.programs_compiled, per_step_.back().kernels_compiled - base.kernels_compiled, warm);
}

void Report::PrintCounters() const {
  lazuli::sync();  // What the last step left pending belongs to it.
  const lazuli::Stats end = lazuli::stats();
  std::printf("\nLazuli, over %zu steps:\n", per_step_.size());
  PrintCount("ops recorded", end.ops_recorded - before_.ops_recorded);
  PrintCount("views recorded", end.views_recorded - before_.views_recorded);
  PrintCount("traces", end.traces - before_.traces);
  PrintCount("programs compiled", end.programs_compiled - before_.programs_compiled);
  PrintCount("kernels compiled", end.kernels_compiled - before_.kernels_compiled);
  PrintCount("cache hits", end.cache_hits - before_.cache_hits);
  PrintCount("  of them predicted", end.predicted_hits - before_.predicted_hits);
  PrintCount("kernel launches", end.kernel_launches - before_.kernel_launches);
  PrintCount("library calls", end.aten_calls - before_.aten_calls);
  PrintCount("traces run eagerly", end.eager_replays - before_.eager_replays);
  std::printf("  %-22s %.0f ms\n", "compile time", 1e3 * (end.compile_seconds - before_.compile_seconds));
  PrintCompiles();
  PrintCounts("eager fallbacks", end.eager_fallbacks);
  PrintCounts("eager without a cut", end.eager_uncut);
  PrintCounts("cuts by cause", end.cuts);
}

int Report::Compare(const TrainLog& eager, const TrainLog& lazuli) const {
  PrintLosses(eager, lazuli);
  PrintTimes(eager, lazuli);
  PrintCounters();
  const size_t compared = std::min(kComparedSteps, eager.losses.size());
  for (size_t i = 0; i < compared; ++i) {
    if (Close(eager.losses[i], lazuli.losses[i])) continue;
    std::printf("\nFAILED: the losses differ at step %zu: eager %.8f, lazuli %.8f. They must be within %g of each other for %zu steps.\n",
                i + 1, eager.losses[i], lazuli.losses[i], kTolerance, compared);
    return 1;
  }
  std::printf("\nlosses equal within %g (relative) for the first %zu steps\n", kTolerance, compared);
  return 0;
}

void Report::PrintSample(const std::string& text) const { std::printf("\nsampled from the model:\n---\n%s\n---\n", text.c_str()); }

}  // namespace char_gpt
