#include "codegen/kernel_compiler.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "codegen/autotune.h"
#include "codegen/cuda/cuda_compiler.h"
#include "codegen/emit_llvm.h"
#include "codegen/emit_llvm_math.h"
#include "codegen/kernel_runner.h"
#include "codegen/kernel_store.h"
#include "codegen/made_kernel.h"
#include "codegen/orc_compiler.h"
#include "codegen/orc_linker.h"
#include "codegen/schedule.h"
#include "runtime/compile_pool.h"

namespace lazuli::codegen {
namespace {

absl::StatusOr<Isa> IsaOf(const KernelTarget& target) {
  Isa wanted;
  if (target.isa == "avx512") {
    wanted = Isa::kAvx512;
  } else if (target.isa == "avx2") {
    wanted = Isa::kAvx2;
  } else if (target.isa == "sse4") {
    wanted = Isa::kSse4;
  } else {
    return absl::InvalidArgumentError(absl::StrCat("unknown ISA '", target.isa, "'; known: avx512, avx2, sse4"));
  }
  return std::min(wanted, HostIsa());
}

IsaInfo InfoOf(Isa isa) {
  IsaInfo info;
  info.vector_bytes = isa == Isa::kAvx512 ? 64 : isa == Isa::kAvx2 ? 32 : 16;
  info.masked_memory = isa == Isa::kAvx512;
  info.half_conversion = isa != Isa::kSse4;
  return info;
}

bool HasNoWork(const KernelIR& kernel) {
  const int num_kept = static_cast<int>(kernel.sizes.size()) - kernel.num_reduced;
  bool has_store = false;
  for (const KInst& inst : kernel.insts) has_store |= HasEffect(inst.op);
  return !has_store || std::any_of(kernel.sizes.begin(), kernel.sizes.begin() + num_kept, [](int64_t size) { return size == 0; });
}

int64_t GrainOf(const KernelPhase& phase, const Schedule& schedule) {
  const double ns = static_cast<double>(schedule.grain < 0 ? kGrainNs / 4 : schedule.grain > 0 ? kGrainNs * 4 : kGrainNs);
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(ns / std::max(phase.unit_ns, 1.0))));
}

// What is to be made.
struct Job {
  const KernelIR& kernel;
  const std::string text;
  const Isa isa;
  const KernelTarget& target;

  // How much work is worth a thread is no matter of code.
  std::string Key(Schedule schedule) const {
    schedule.grain = 0;
    return KernelKey(text, isa, target.precision, PrintSchedule(schedule));
  }
  PlannedKernel Plan(const Schedule& schedule) const { return PlanKernel(kernel, InfoOf(isa), KernelSymbol(Key(schedule)), schedule); }
};

absl::StatusOr<MadeKernel> Link(const Job& job, const PlannedKernel& planned, const Schedule& schedule, std::string object) {
  std::vector<std::string> names;
  for (const KernelPhase& phase : planned.phases) names.push_back(phase.function);
  absl::StatusOr<std::shared_ptr<const JitCode>> code = LinkObject(object, names, ResolveKernelSymbol);
  if (!code.ok()) return code.status();
  std::vector<RunnablePhase> phases;
  for (size_t i = 0; i < planned.phases.size(); ++i) {
    RunnablePhase phase;
    phase.function = reinterpret_cast<KernelFunction>((*code)->addresses()[i]);
    phase.units = planned.phases[i].units;
    phase.unit_ns = static_cast<int64_t>(std::ceil(planned.phases[i].unit_ns));
    phase.grain = GrainOf(planned.phases[i], schedule);
    phase.min_threads = planned.phases[i].min_threads;
    phases.push_back(phase);
  }
  auto runner =
      std::make_shared<KernelRunner>(*std::move(code), std::move(phases), planned.scratch, !planned.plan.IsParted(), WalksOf(planned.plan));
  return MadeKernel{std::move(runner), job.Key(schedule), std::move(object)};
}

absl::StatusOr<MadeKernel> Compile(const Job& job, const Schedule& schedule) {
  const PlannedKernel planned = job.Plan(schedule);
  EmittedKernel emitted = EmitKernel(planned, InfoOf(job.isa), job.target.precision);
  absl::StatusOr<std::string> object = CompileObject(*emitted.module, job.isa);
  if (!object.ok()) return object.status();
  return Link(job, planned, schedule, *std::move(object));
}

absl::StatusOr<MadeKernel> NoWork() {
  return MadeKernel{std::make_shared<KernelRunner>(nullptr, std::vector<RunnablePhase>(), ScratchSize(), true), "", ""};
}

absl::StatusOr<MadeKernel> LoadOrCompile(const Job& job, const Schedule& schedule, KernelOrigin* origin) {
  *origin = KernelOrigin::kFound;
  if (HasNoWork(job.kernel)) return NoWork();
  runtime::DiskCache* disk = job.target.disk;
  const std::string key = job.Key(schedule);
  if (std::optional<std::string> object = FindObject(disk, key)) {
    absl::StatusOr<MadeKernel> loaded = Link(job, job.Plan(schedule), schedule, *std::move(object));
    *origin = KernelOrigin::kLoaded;
    if (loaded.ok()) return loaded;
    RejectObject(disk, key, std::string(loaded.status().message()));
  }
  if (job.target.cached_only) return absl::UnavailableError("a kernel is not in the cache");
  *origin = KernelOrigin::kCompiled;
  absl::StatusOr<MadeKernel> compiled = Compile(job, schedule);
  if (compiled.ok()) KeepObject(disk, key, compiled->object);
  return compiled;
}

// With the schedule that is the fastest, as an earlier process found or is found out now. Of what is compiled for that, only the fastest
// and the default's code are kept on disk.
absl::StatusOr<MadeKernel> LoadOrTune(const Job& job, KernelOrigin* origin) {
  if (HasNoWork(job.kernel)) return LoadOrCompile(job, {}, origin);
  const std::string key = job.Key({});
  const std::string machine = MachineOf(at::get_num_threads());
  if (const std::optional<std::string> known = FindFastest(job.target.disk, machine, key)) {
    if (const absl::StatusOr<Schedule> schedule = ParseSchedule(*known); schedule.ok()) return LoadOrCompile(job, *schedule, origin);
  }
  absl::StatusOr<MadeKernel> by_default = LoadOrCompile(job, {}, origin);
  if (!by_default.ok() || job.target.cached_only) return by_default;
  std::vector<std::pair<Schedule, MadeKernel>> others;
  const auto make = [&](const Schedule& schedule) -> absl::StatusOr<std::shared_ptr<const CompiledKernel>> {
    absl::StatusOr<MadeKernel> made = Compile(job, schedule);
    if (!made.ok()) return made.status();
    others.emplace_back(schedule, *made);
    return made->kernel;
  };
  const LoopPlan plan = job.Plan({}).plan;
  const Schedule best = Autotune(job.kernel, plan, InfoOf(job.isa), job.target.autotune_ms, *by_default->kernel, make);
  if (!runtime::CompilePool::Hurries()) KeepFastest(job.target.disk, machine, key, PrintSchedule(best));
  for (auto& [schedule, made] : others) {
    if (!(schedule == best)) continue;
    KeepObject(job.target.disk, made.key, made.object);
    return std::move(made);
  }
  return by_default;
}

constexpr size_t kMaxIdleKernels = 4096;

struct KernelCache {
  std::mutex mutex;
  absl::flat_hash_map<std::string, MadeKernel> kernels;
  size_t next_sweep = kMaxIdleKernels;

  // The mutex is held.
  void ForgetIdle() {
    absl::erase_if(kernels, [](const auto& entry) { return entry.second.kernel.use_count() == 1; });
    next_sweep = kernels.size() + kMaxIdleKernels;
  }
  void Sweep() {
    if (kernels.size() >= next_sweep) ForgetIdle();
  }
};

KernelCache& Cache() {
  static KernelCache* const cache = new KernelCache;
  return *cache;
}

// The kernel under `key`; where this process does not have it, what `make` makes.
template <typename Make>
absl::StatusOr<std::shared_ptr<const CompiledKernel>> FindOrMake(const std::string& key, const Make& make) {
  KernelCache& cache = Cache();
  {
    std::lock_guard<std::mutex> lock(cache.mutex);
    auto it = cache.kernels.find(key);
    if (it != cache.kernels.end()) return it->second.kernel;
  }
  absl::StatusOr<MadeKernel> made = make();
  if (!made.ok()) return made.status();
  // Two threads may have made the same kernel; all go on with the first.
  std::lock_guard<std::mutex> lock(cache.mutex);
  cache.Sweep();
  return cache.kernels.emplace(key, *std::move(made)).first->second.kernel;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const CompiledKernel>> CompileKernel(const KernelIR& kernel, const KernelTarget& target,
                                                                    KernelOrigin* origin) {
  KernelOrigin unused;
  if (origin == nullptr) origin = &unused;
  *origin = KernelOrigin::kFound;
  if (absl::Status status = VerifyKernel(kernel); !status.ok()) return status;
  if (!target.cuda_arch.empty()) {
    const std::string key = absl::StrCat("cuda ", target.cuda_arch, " precision ", target.precision, target.batches ? " batches" : "",
                                         " schedule ", target.autotune_ms > 0 ? "autotuned" : target.schedule, "\n", PrintKernel(kernel));
    return FindOrMake(key, [&] { return HasNoWork(kernel) ? NoWork() : MakeCudaKernel(kernel, target, origin); });
  }
  const auto is_random = [](const KInst& inst) { return IsRandom(inst.op); };
  if (std::any_of(kernel.insts.begin(), kernel.insts.end(), is_random)) {
    return absl::InvalidArgumentError("kernels draw random numbers on GPUs only");
  }
  absl::StatusOr<Isa> isa = IsaOf(target);
  if (!isa.ok()) return isa.status();
  absl::StatusOr<Schedule> schedule = ParseSchedule(target.schedule);
  if (!schedule.ok()) return schedule.status();
  const Job job{kernel, PrintKernel(kernel), *isa, target};
  const bool tunes = target.autotune_ms > 0;
  const std::string key = KernelKey(job.text, *isa, target.precision, tunes ? "autotuned" : target.schedule);
  return FindOrMake(key, [&] { return tunes ? LoadOrTune(job, origin) : LoadOrCompile(job, *schedule, origin); });
}

int64_t TouchedBytes(const KernelIR& kernel, absl::Span<const int64_t> symbols) {
  const auto value = [&](int64_t number) {
    return symbols.empty() ? kernel.symbols.Hint(number) : kernel.symbols.Decode(number).Evaluate(symbols.data());
  };
  int64_t bytes = 0;
  for (const auto& buffer : kernel.buffers) {
    int64_t elements = 1;
    for (size_t d = 0; d < kernel.sizes.size(); ++d) elements *= buffer.strides[d] != 0 ? value(kernel.sizes[d]) : 1;
    bytes += elements * ElementBytes(buffer.dtype);
  }
  return bytes;
}

void ForgetIdleKernels() {
  KernelCache& cache = Cache();
  std::lock_guard<std::mutex> lock(cache.mutex);
  cache.ForgetIdle();
}

void RunBatch(absl::Span<const runtime::BoundKernel> batch) {
  static_cast<const CompiledKernel*>(batch.front().kernel)->RunFirstOfBatch(batch);
}

absl::Status SaveCompiledKernels(const std::string& path) {
  std::vector<std::pair<std::string, std::string>> kernels;
  {
    KernelCache& cache = Cache();
    std::lock_guard<std::mutex> lock(cache.mutex);
    for (const auto& [key, made] : cache.kernels) {
      if (!made.object.empty()) kernels.emplace_back(made.key, made.object);
    }
  }
  std::sort(kernels.begin(), kernels.end());  // Equal kernels, equal files.
  kernels.erase(std::unique(kernels.begin(), kernels.end(), [](const auto& a, const auto& b) { return a.first == b.first; }),
                kernels.end());
  return SaveKernels(path, kernels);
}

absl::StatusOr<std::string> ExplainKernel(const KernelIR& kernel, const KernelTarget& target, absl::Span<const int64_t> symbols) {
  if (HasNoWork(kernel)) return std::string("no work");
  if (!target.cuda_arch.empty()) return ExplainCudaKernel(kernel, symbols);
  absl::StatusOr<Isa> isa = IsaOf(target);
  if (!isa.ok()) return isa.status();
  const absl::StatusOr<Schedule> schedule = ParseSchedule(target.schedule);
  if (!schedule.ok()) return schedule.status();
  const PlannedKernel planned = PlanKernel(kernel, InfoOf(*isa), "kernel", *schedule);
  const LoopPlan& plan = planned.plan;
  double ns = 0;
  int64_t units = 0, tasks = 0;
  for (const KernelPhase& phase : planned.phases) {
    const int64_t count = phase.units.CountHint(kernel.symbols);
    ns += phase.unit_ns * static_cast<double>(count);
    units = std::max(units, count);
    tasks = std::max(tasks, (count + GrainOf(phase, *schedule) - 1) / GrainOf(phase, *schedule));
  }
  return absl::StrFormat(
      "%.1f KB of memory, estimated %.1f us on one thread; %d units for at most %d threads, %d at a time along loop %d of %d%s%s",
      static_cast<double>(TouchedBytes(kernel, symbols)) / 1024, ns / 1000, units, tasks, plan.lanes * plan.unroll, plan.vector_dim,
      plan.rank, plan.num_passes > 1 ? absl::StrCat(", ", plan.num_passes, " passes") : "",
      plan.IsSplit() ? absl::StrCat(", reduced in ", plan.num_splits, " parts") : "");
}

absl::StatusOr<std::string> KernelSource(const KernelIR& kernel, const KernelTarget& target) {
  if (absl::Status status = VerifyKernel(kernel); !status.ok()) return status;
  if (!target.cuda_arch.empty()) return HasNoWork(kernel) ? std::string("// no work\n") : CudaSource(kernel, target);
  absl::StatusOr<Isa> isa = IsaOf(target);
  if (!isa.ok()) return isa.status();
  const absl::StatusOr<Schedule> schedule = ParseSchedule(target.schedule);
  if (!schedule.ok()) return schedule.status();
  if (HasNoWork(kernel)) return std::string("; no work\n");
  EmittedKernel emitted = EmitKernel(PlanKernel(kernel, InfoOf(*isa), "kernel", *schedule), InfoOf(*isa), target.precision);
  return ModuleText(*emitted.module, *isa);
}

}  // namespace lazuli::codegen
