#include "codegen/kernel_runner.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <numeric>

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

KernelRunner::KernelRunner(std::shared_ptr<const JitCode> code, std::vector<RunnablePhase> phases, ScratchSize scratch,
                           std::vector<SymbolicWalk> walks)
    : code_(std::move(code)), phases_(std::move(phases)), scratch_(std::move(scratch)), walks_(std::move(walks)) {}

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
  thread_local ThreadScratch thread_scratch;
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

}  // namespace lazuli::codegen
