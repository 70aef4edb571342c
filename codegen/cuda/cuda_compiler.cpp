#include "codegen/cuda/cuda_compiler.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "codegen/cuda/cuda_kernel.h"
#include "codegen/cuda/emit_cuda.h"
#include "codegen/cuda/nvrtc_compiler.h"
#include "codegen/kernel_store.h"

namespace lazuli::codegen {
namespace {

constexpr double kBytesPerUs = 2.5e6;  // What kernels move on a GPU with fast memory.
constexpr double kLaunchUs = 2;

std::vector<int64_t> Hints(const KernelIR& kernel) {
  std::vector<int64_t> hints;
  for (int i = 0; i < kernel.symbols.size(); ++i) hints.push_back(kernel.symbols.hint(i));
  return hints;
}

absl::StatusOr<MadeKernel> Make(const KernelIR& kernel, const KernelTarget& target, bool wide, KernelOrigin* origin) {
  absl::StatusOr<std::string> version = NvrtcVersion();
  if (!version.ok()) return version.status();
  const CudaPlan plan = PlanCuda(kernel, wide, target.batches);
  const std::string source = EmitCuda(plan);
  const std::string key = CudaKernelKey(source, target.cuda_arch, *version, target.precision);
  std::optional<std::string> object = FindObject(target.disk, key);
  *origin = object.has_value() ? KernelOrigin::kLoaded : KernelOrigin::kCompiled;
  if (!object.has_value()) {
    if (target.cached_only) return absl::UnavailableError("a kernel is not in the cache");
    absl::StatusOr<std::string> compiled = CompileCuda(source, target.cuda_arch, target.precision == "fast");
    if (!compiled.ok()) return compiled.status();
    object = *std::move(compiled);
    KeepObject(target.disk, key, *object);
  }
  CudaKernel::MakeWide make_wide;
  if (!kernel.symbols.empty() && !plan.wide) {
    make_wide = [kernel, target]() -> absl::StatusOr<std::shared_ptr<const CompiledKernel>> {
      KernelOrigin unused;
      KernelTarget any = target;
      any.cached_only = false;
      absl::StatusOr<MadeKernel> made = Make(kernel, any, /*wide=*/true, &unused);
      if (!made.ok()) return made.status();
      return made->kernel;
    };
  }
  return MadeKernel{std::make_shared<CudaKernel>(plan, *object, std::move(make_wide)), key, *object};
}

}  // namespace

absl::StatusOr<MadeKernel> MakeCudaKernel(const KernelIR& kernel, const KernelTarget& target, KernelOrigin* origin) {
  return Make(kernel, target, /*wide=*/false, origin);
}

std::string CudaSource(const KernelIR& kernel, bool batches) { return EmitCuda(PlanCuda(kernel, /*wide=*/false, batches)); }

std::string ExplainCudaKernel(const KernelIR& kernel, absl::Span<const int64_t> symbols) {
  const CudaPlan plan = PlanCuda(kernel, /*wide=*/false);
  const CudaLaunch& launch = plan.launch;
  const std::vector<int64_t> values = symbols.empty() ? Hints(kernel) : std::vector<int64_t>(symbols.begin(), symbols.end());
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
