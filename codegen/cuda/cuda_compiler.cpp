#include "codegen/cuda/cuda_compiler.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "codegen/cuda/autotune_cuda.h"
#include "codegen/cuda/cuda_kernel.h"
#include "codegen/cuda/emit_cuda.h"
#include "codegen/cuda/nvrtc_compiler.h"
#include "codegen/cuda/rough_functions.h"
#include "codegen/kernel_store.h"
#include "runtime/compile_pool.h"

namespace lazuli::codegen {
namespace {

constexpr double kBytesPerUs = 2.5e6;  // What kernels move on a GPU with fast memory.
constexpr double kLaunchUs = 2;

// What is to be made.
struct CudaJob {
  const KernelIR& kernel;
  const KernelTarget& target;
  const std::string nvrtc;  // Its version.
  bool wide = false;

  CudaPlan Plan(const CudaSchedule& schedule) const {
    CudaPlan plan = PlanCuda(kernel, wide, target.batches, schedule);
    if (target.precision != "strict") ChooseRoughFunctions(&plan);
    return plan;
  }
  std::string Key(const std::string& source) const { return CudaKernelKey(source, target.cuda_arch, nvrtc, target.precision); }
  absl::StatusOr<std::string> Compile(const std::string& source) const {
    return CompileCuda(source, target.cuda_arch, target.precision == "fast");
  }
};

absl::StatusOr<MadeKernel> LoadOrCompileCuda(const CudaJob& job, const CudaSchedule& schedule, KernelOrigin* origin);

// The same kernel again, otherwise.
absl::StatusOr<std::shared_ptr<const CompiledKernel>> MakeAgain(const KernelIR& kernel, KernelTarget target, const std::string& nvrtc,
                                                                bool wide, const CudaSchedule& schedule) {
  KernelOrigin unused;
  target.cached_only = false;
  absl::StatusOr<MadeKernel> made = LoadOrCompileCuda({kernel, target, nvrtc, wide}, schedule, &unused);
  if (!made.ok()) return made.status();
  return made->kernel;
}

// Where sizes of what is reduced are symbols, and no schedule was chosen by timing, which is of its sizes. `key`: of the plan's text.
OtherPlans::Make OtherPlansOf(const CudaJob& job, const CudaPlan& plan, const std::string& key) {
  const bool varies = plan.kernel.num_reduced > 0 && plan.kernel.symbols.HasSymbol(plan.kernel.sizes);
  // Precision strict keeps the order of sums.
  if (!varies || plan.wide || !(plan.schedule == CudaSchedule()) || job.target.precision == "strict") return nullptr;
  return [kernel = job.kernel, target = job.target, nvrtc = job.nvrtc,
          key](absl::Span<const int64_t> hints) -> absl::StatusOr<std::shared_ptr<const CompiledKernel>> {
    KernelIR planned = kernel;
    for (int i = 0; i < planned.symbols.size(); ++i) planned.symbols.SetHint(i, hints[static_cast<size_t>(i)]);
    const CudaJob other{planned, target, nvrtc};
    if (other.Key(EmitCuda(other.Plan({}))) == key) return nullptr;
    return MakeAgain(planned, target, nvrtc, /*wide=*/false, {});
  };
}

// `object`: what NVRTC made of the plan's text, which is `key`'s.
MadeKernel WrapCuda(const CudaJob& job, const CudaPlan& plan, const std::string& key, const std::string& object) {
  CudaKernel::MakeWide make_wide;
  if (!job.kernel.symbols.empty() && !plan.wide) {
    make_wide = [kernel = job.kernel, target = job.target, nvrtc = job.nvrtc, schedule = plan.schedule] {
      return MakeAgain(kernel, target, nvrtc, /*wide=*/true, schedule);
    };
  }
  return {std::make_shared<CudaKernel>(plan, object, std::move(make_wide), OtherPlansOf(job, plan, key)), key, object};
}

absl::StatusOr<MadeKernel> LoadOrCompileCuda(const CudaJob& job, const CudaSchedule& schedule, KernelOrigin* origin) {
  const CudaPlan plan = job.Plan(schedule);
  const std::string source = EmitCuda(plan), key = job.Key(source);
  std::optional<std::string> object = FindObject(job.target.disk, key);
  *origin = object.has_value() ? KernelOrigin::kLoaded : KernelOrigin::kCompiled;
  if (!object.has_value()) {
    if (job.target.cached_only) return absl::UnavailableError("a kernel is not in the cache");
    absl::StatusOr<std::string> compiled = job.Compile(source);
    if (!compiled.ok()) return compiled.status();
    object = *std::move(compiled);
    KeepObject(job.target.disk, key, *object);
  }
  return WrapCuda(job, plan, key, *object);
}

// With the schedule that is the fastest, as an earlier process found or is found out now. Of what is compiled for that, only the fastest
// and the default's code are kept on disk.
absl::StatusOr<MadeKernel> LoadOrTuneCuda(const CudaJob& job, KernelOrigin* origin) {
  const CudaPlan planned = job.Plan({});
  const std::string source = EmitCuda(planned), machine = absl::StrCat("gpu ", job.target.cuda_arch);
  if (const std::optional<std::string> known = FindFastest(job.target.disk, machine, job.Key(source))) {
    if (const absl::StatusOr<CudaSchedule> schedule = ParseCudaSchedule(*known); schedule.ok())
      return LoadOrCompileCuda(job, *schedule, origin);
  }
  absl::StatusOr<MadeKernel> by_default = LoadOrCompileCuda(job, {}, origin);
  if (!by_default.ok() || job.target.cached_only) return by_default;
  std::vector<std::pair<CudaSchedule, MadeKernel>> others;
  const auto make = [&](const CudaSchedule& schedule) -> absl::StatusOr<std::shared_ptr<const CompiledKernel>> {
    const CudaPlan plan = job.Plan(schedule);
    const std::string text = EmitCuda(plan);
    if (text == source && plan.launch.more_splits == planned.launch.more_splits) return nullptr;
    absl::StatusOr<std::string> object = text == source ? by_default->object : job.Compile(text);
    if (!object.ok()) return object.status();
    others.emplace_back(schedule, WrapCuda(job, plan, job.Key(text), *object));
    return others.back().second.kernel;
  };
  const bool reorder = job.target.precision != "strict" || !(HasReductions(job.kernel) || HasScans(job.kernel));
  const CudaSchedule best = AutotuneCuda(job.kernel, job.target.cuda_arch, reorder, job.target.autotune_ms, *by_default->kernel, make);
  if (!runtime::CompilePool::Hurries()) KeepFastest(job.target.disk, machine, job.Key(source), PrintCudaSchedule(best));
  for (auto& [schedule, made] : others) {
    if (!(schedule == best)) continue;
    KeepObject(job.target.disk, made.key, made.object);
    return std::move(made);
  }
  return by_default;
}

}  // namespace

absl::StatusOr<MadeKernel> MakeCudaKernel(const KernelIR& kernel, const KernelTarget& target, KernelOrigin* origin) {
  absl::StatusOr<std::string> version = NvrtcVersion();
  if (!version.ok()) return version.status();
  const absl::StatusOr<CudaSchedule> schedule = ParseCudaSchedule(target.schedule);
  if (!schedule.ok()) return schedule.status();
  const CudaJob job{kernel, target, *std::move(version)};
  return target.autotune_ms > 0 ? LoadOrTuneCuda(job, origin) : LoadOrCompileCuda(job, *schedule, origin);
}

std::string CudaSource(const KernelIR& kernel, const KernelTarget& target) {
  return EmitCuda(CudaJob{kernel, target, /*nvrtc=*/"", /*wide=*/false}.Plan({}));
}

std::string ExplainCudaKernel(const KernelIR& kernel, absl::Span<const int64_t> symbols) {
  const CudaPlan plan = PlanCuda(kernel, /*wide=*/false);
  const CudaLaunch& launch = plan.launch;
  const std::vector<int64_t> values = symbols.empty() ? HintsOf(kernel) : std::vector<int64_t>(symbols.begin(), symbols.end());
  const auto bytes = static_cast<double>(TouchedBytes(kernel, values));
  const int64_t splits = launch.Splits(values.data(), kPlannedMultiprocessors);
  const size_t phases = launch.phases.size();
  return absl::StrFormat("%.1f KB of memory, estimated %.1f us; %d blocks of %dx%d threads, %d at a time along loop %d of %d%s%s%s",
                         bytes / 1024, bytes / kBytesPerUs + kLaunchUs * static_cast<double>(phases), launch.Blocks(values.data()) * splits,
                         launch.phases[0].threads_x, launch.phases[0].threads_y, plan.lanes, plan.vector_dim, plan.rank,
                         plan.num_passes > 1 ? absl::StrCat(", ", plan.num_passes, " passes") : "",
                         plan.iterations > 0    ? ", rows stay in registers"
                         : launch.row_bytes > 0 ? ", rows stay in shared memory"
                                                : "",
                         !launch.partial_bytes.empty() ? absl::StrCat(", reduced in ", splits, " parts by ", phases, " launches") : "");
}

}  // namespace lazuli::codegen
