#include "codegen/kernel_compiler.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "codegen/emit_llvm.h"
#include "codegen/emit_llvm_math.h"
#include "codegen/kernel_runner.h"
#include "codegen/orc_compiler.h"

namespace lazuli::codegen {
namespace {

constexpr double kGrainNs = 25000;  // A thread is worth waking for this much work.

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
  for (const KInst& inst : kernel.insts) has_store |= inst.op == KOp::kStore;
  return !has_store || std::any_of(kernel.sizes.begin(), kernel.sizes.begin() + num_kept, [](int64_t size) { return size == 0; });
}

absl::StatusOr<std::shared_ptr<const CompiledKernel>> Compile(const KernelIR& kernel, Isa isa, const std::string& precision) {
  if (HasNoWork(kernel)) return std::make_shared<KernelRunner>(nullptr, std::vector<RunnablePhase>(), ScratchSize());
  static std::atomic<int64_t> next_id{0};
  EmittedKernel emitted = EmitKernel(kernel, InfoOf(isa), precision, absl::StrCat("lazuli_kernel_", next_id.fetch_add(1)));
  std::vector<std::string> names;
  for (const KernelPhase& phase : emitted.phases) names.push_back(phase.function);
  absl::StatusOr<std::shared_ptr<const JitCode>> code = CompileModule(*emitted.module, isa, names, ResolveKernelSymbol);
  if (!code.ok()) return code.status();
  std::vector<RunnablePhase> phases;
  for (size_t i = 0; i < emitted.phases.size(); ++i) {
    RunnablePhase phase;
    phase.function = reinterpret_cast<KernelFunction>((*code)->addresses()[i]);
    phase.units = emitted.phases[i].units;
    phase.grain = std::max<int64_t>(1, static_cast<int64_t>(std::ceil(kGrainNs / std::max(emitted.phases[i].unit_ns, 1.0))));
    phases.push_back(phase);
  }
  return std::make_shared<KernelRunner>(*std::move(code), std::move(phases), emitted.scratch);
}

constexpr size_t kMaxIdleKernels = 4096;

struct KernelCache {
  std::mutex mutex;
  absl::flat_hash_map<std::string, std::shared_ptr<const CompiledKernel>> kernels;
  size_t next_sweep = kMaxIdleKernels;

  // Forgets kernels that no program uses, once there are many. The mutex is held.
  void Sweep() {
    if (kernels.size() < next_sweep) return;
    absl::erase_if(kernels, [](const auto& entry) { return entry.second.use_count() == 1; });
    next_sweep = kernels.size() + kMaxIdleKernels;
  }
};

KernelCache& Cache() {
  static KernelCache* const cache = new KernelCache;
  return *cache;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const CompiledKernel>> CompileKernel(const KernelIR& kernel, const KernelTarget& target, bool* compiled) {
  if (compiled != nullptr) *compiled = false;
  if (absl::Status status = VerifyKernel(kernel); !status.ok()) return status;
  absl::StatusOr<Isa> isa = IsaOf(target);
  if (!isa.ok()) return isa.status();
  const std::string key = absl::StrCat(static_cast<int>(*isa), " ", target.precision, "\n", PrintKernel(kernel));
  KernelCache& cache = Cache();
  {
    std::lock_guard<std::mutex> lock(cache.mutex);
    auto it = cache.kernels.find(key);
    if (it != cache.kernels.end()) return it->second;
  }
  absl::StatusOr<std::shared_ptr<const CompiledKernel>> made = Compile(kernel, *isa, target.precision);
  if (!made.ok()) return made.status();
  if (compiled != nullptr) *compiled = true;
  // Two threads may have compiled the same kernel; all go on with the first.
  std::lock_guard<std::mutex> lock(cache.mutex);
  cache.Sweep();
  return cache.kernels.emplace(key, *std::move(made)).first->second;
}

absl::StatusOr<std::string> KernelLlvmIr(const KernelIR& kernel, const KernelTarget& target) {
  if (absl::Status status = VerifyKernel(kernel); !status.ok()) return status;
  absl::StatusOr<Isa> isa = IsaOf(target);
  if (!isa.ok()) return isa.status();
  if (HasNoWork(kernel)) return std::string("; no work\n");
  EmittedKernel emitted = EmitKernel(kernel, InfoOf(*isa), target.precision, "kernel");
  return ModuleText(*emitted.module, *isa);
}

}  // namespace lazuli::codegen
