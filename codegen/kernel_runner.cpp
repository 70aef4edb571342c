#include "codegen/kernel_runner.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <numeric>

#include "absl/container/inlined_vector.h"
#include "codegen/thread_scratch.h"

namespace lazuli::codegen {
namespace {

// Whether the loops inside loop `outermost` go once over a dense block of the buffer, of as many elements as one step of that loop.
bool IsDenseInside(const LoopPlan& plan, const c10::DimVector& strides, int outermost) {
  std::vector<int> inner;
  for (int d = outermost + 1; d < plan.rank; ++d) inner.push_back(d);
  std::sort(inner.begin(), inner.end(), [&](int a, int b) { return plan.Hint(strides[a]) > plan.Hint(strides[b]); });
  int64_t block = strides[outermost];
  for (const int d : inner) {
    if (strides[d] * plan.kernel.sizes[d] != block) return false;
    block = strides[d];
  }
  return block == 1;
}

SymbolicWalk WalkOfBuffer(const LoopPlan& plan, const c10::DimVector& strides) {
  for (int d = 0; d < plan.unit_dim; ++d) {
    if (strides[d] != strides[d + 1] * plan.kernel.sizes[d + 1]) return {};
  }
  if (strides[plan.unit_dim] <= 0 || !IsDenseInside(plan, strides, plan.unit_dim)) return {};
  return {true, plan.kernel.symbols.Decode(strides[plan.unit_dim])};
}

constexpr int64_t kCallNs = 50;  // What calling a function takes, however little it does.

// One phase of a kernel of a batch.
struct Part {
  const RunnablePhase* phase;
  const runtime::BoundKernel* bound;
  void* scratch;
  int64_t num_units;
  int64_t begin = 0;  // Where its time begins, all parts end to end.

  int64_t unit_ns() const { return phase->unit_ns + kCallNs; }
  int64_t ns() const { return num_units * unit_ns(); }
  void Run(int64_t first, int64_t last) const {
    if (first < last) phase->function(bound->buffers, bound->scalars, bound->symbols, first, last, scratch);
  }
  // The first unit that begins at `time` or later.
  int64_t UnitAt(int64_t time) const { return time <= begin ? 0 : std::min(num_units, (time - begin + unit_ns() - 1) / unit_ns()); }
};

using Parts = absl::InlinedVector<Part, 32>;

// Thread `t` of `threads`.
void RunShare(const Parts& wide, const Parts& narrow, int64_t narrow_ns, int64_t t, int64_t threads) {
  for (const Part& part : wide) part.Run(part.num_units * t / threads, part.num_units * (t + 1) / threads);
  const int64_t begin = narrow_ns * t / threads, end = narrow_ns * (t + 1) / threads;
  auto part = std::upper_bound(narrow.begin(), narrow.end(), begin, [](int64_t time, const Part& other) { return time < other.begin; });
  if (part != narrow.begin()) --part;
  for (; part != narrow.end() && part->begin < end; ++part) part->Run(part->UnitAt(begin), part->UnitAt(end));
}

void RunParts(Parts parts) {
  int64_t total = 0;
  for (const Part& part : parts) total += part.ns();
  const int64_t threads = std::min<int64_t>(at::get_num_threads(), (total + kGrainNs - 1) / kGrainNs);
  if (threads <= 1 || at::in_parallel_region()) {
    for (const Part& part : parts) part.Run(0, part.num_units);
    return;
  }
  const auto is_wide = [&](const Part& part) { return part.num_units >= threads * part.phase->grain; };
  const auto middle = std::stable_partition(parts.begin(), parts.end(), is_wide);
  const Parts wide(parts.begin(), middle);
  Parts narrow(middle, parts.end());
  int64_t narrow_ns = 0;
  for (Part& part : narrow) {
    part.begin = narrow_ns;
    narrow_ns += part.ns();
  }
  at::parallel_for(0, threads, 1, [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) RunShare(wide, narrow, narrow_ns, t, threads);
  });
}

}  // namespace

std::vector<SymbolicWalk> WalksOf(const LoopPlan& plan) {
  std::vector<SymbolicWalk> walks(plan.kernel.buffers.size());
  if (plan.IsSplit() || plan.IsParted() || plan.num_kept == 0) return walks;
  for (size_t b = 0; b < walks.size(); ++b) walks[b] = WalkOfBuffer(plan, plan.kernel.buffers[b].strides);
  return walks;
}

int64_t UnitWalk::RowsOfUnits(int64_t row) const {
  if (row % outer == 0) return 1;
  const int64_t period = std::lcm(chunk, row);
  return elements <= outer || outer % period == 0 ? period / row : 0;
}

KernelRunner::KernelRunner(std::shared_ptr<const JitCode> code, std::vector<RunnablePhase> phases, ScratchSize scratch, bool can_batch,
                           std::vector<SymbolicWalk> walks)
    : code_(std::move(code)), phases_(std::move(phases)), scratch_(std::move(scratch)), can_batch_(can_batch), walks_(std::move(walks)) {}

void KernelRunner::RunUnits(void* const* buffers, const uint64_t* scalars, const int64_t* symbols, int64_t begin, int64_t end) const {
  phases_[0].function(buffers, scalars, symbols, begin, end, nullptr);
}

bool KernelRunner::Walks(int buffer) const {
  return phases_.size() == 1 && scratch_.element_bytes.empty() && static_cast<size_t>(buffer) < walks_.size() && walks_[buffer].walks;
}

UnitWalk KernelRunner::WalkOf(int buffer, const int64_t* symbols) const {
  const UnitCount& units = phases_[0].units;
  const int64_t size = units.size.Evaluate(symbols), step = walks_[buffer].step.Evaluate(symbols);
  return {size * step, units.chunk * step, (size + units.chunk - 1) / units.chunk, units.outer.Evaluate(symbols) * size * step};
}

void KernelRunner::Run(void* const* buffers, const uint64_t* scalars, const int64_t* symbols) const {
  ThreadScratch& thread_scratch = ScratchOfThread<KernelRunner>();
  const int64_t scratch_bytes = scratch_.Bytes(symbols);
  void* scratch = scratch_bytes > 0 ? thread_scratch.Reserve(scratch_bytes) : nullptr;
  for (const RunnablePhase& phase : phases_) {
    const int64_t num_units = phase.units.Count(symbols);
    if (num_units <= phase.grain || at::get_num_threads() < phase.min_threads) {
      phase.function(buffers, scalars, symbols, 0, num_units, scratch);
      continue;
    }
    at::parallel_for(0, num_units, phase.grain,
                     [&](int64_t begin, int64_t end) { phase.function(buffers, scalars, symbols, begin, end, scratch); });
  }
}

void KernelRunner::RunFirstOfBatch(absl::Span<const runtime::BoundKernel> batch) const {
  ThreadScratch& thread_scratch = ScratchOfThread<KernelRunner>();
  absl::InlinedVector<int64_t, 32> scratch_at;
  int64_t scratch_bytes = 0;
  size_t num_phases = 0;
  const auto runner = [&](size_t i) { return static_cast<const KernelRunner*>(static_cast<const CompiledKernel*>(batch[i].kernel)); };
  for (size_t i = 0; i < batch.size(); ++i) {
    num_phases = std::max(num_phases, runner(i)->phases_.size());
    scratch_at.push_back(scratch_bytes);
    scratch_bytes += ScratchSize::Aligned(runner(i)->scratch_.Bytes(batch[i].symbols));
  }
  char* scratch = scratch_bytes > 0 ? static_cast<char*>(thread_scratch.Reserve(scratch_bytes)) : nullptr;
  for (size_t p = 0; p < num_phases; ++p) {
    Parts parts;
    for (size_t i = 0; i < batch.size(); ++i) {
      if (p >= runner(i)->phases_.size()) continue;
      const RunnablePhase& phase = runner(i)->phases_[p];
      parts.push_back({&phase, &batch[i], scratch == nullptr ? nullptr : scratch + scratch_at[i], phase.units.Count(batch[i].symbols)});
    }
    RunParts(std::move(parts));
  }
}

}  // namespace lazuli::codegen
