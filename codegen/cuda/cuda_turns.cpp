#include "codegen/cuda/cuda_turns.h"

#include <algorithm>
#include <utility>

#include "codegen/cuda/cuda_plan.h"
#include "codegen/emit_llvm_plan.h"

namespace lazuli::codegen {
namespace {

constexpr int64_t kMinTurnedRows = 64, kTurnedLanes = 4;
constexpr int64_t kLeastColumns = 32;
constexpr int64_t kTurnedPoints = 256;  // That a block's threads take at a time.

// Whether the kernel reads more bytes for each point of the last loop than for each of all points.
bool ReadsMoreOfRow(const KernelIR& kernel) {
  const int last = static_cast<int>(kernel.sizes.size()) - 1;
  int64_t of_row = 0, of_all = 0;
  for (const KInst& inst : kernel.insts) {
    if (inst.op == KOp::kCheck || (HasBuffer(inst.op) && inst.op != KOp::kLoad && inst.op != KOp::kStore)) return false;
    if (!HasBuffer(inst.op)) continue;
    const c10::DimVector& strides = kernel.buffers[inst.imm].strides;
    const auto zeros = std::count(strides.begin(), strides.end() - 1, 0);
    if (strides[last] > 1 || strides[last] < 0 || (inst.op == KOp::kStore && (strides[last] == 0 || zeros != 0))) return false;
    if (strides[last] == 1) (zeros == last ? of_row : of_all) += ElementBytes(inst.type);
  }
  return of_row > of_all;
}

}  // namespace

KernelIR WithoutNeedlessReduction(const KernelIR& kernel) {
  const int num_kept = static_cast<int>(kernel.sizes.size()) - kernel.num_reduced;
  for (const KInst& inst : kernel.insts) {
    if (IsReduce(inst.op) || IsScan(inst.op) || inst.op == KOp::kPartialSum) return kernel;
    if (inst.op != KOp::kStore) continue;
    for (size_t d = static_cast<size_t>(num_kept); d < kernel.sizes.size(); ++d) {
      if (kernel.buffers[inst.imm].strides[d] == 0 && kernel.sizes[d] != 1) return kernel;
    }
  }
  KernelIR result = kernel;
  result.num_reduced = 0;
  return result;
}

bool RowsTakeTurns(const KernelIR& kernel) {
  const int last = static_cast<int>(kernel.sizes.size()) - 1;
  const auto hint = [&](int64_t number) { return kernel.symbols.Hint(number); };
  if (kernel.num_reduced != 0 || last < 1 || hint(kernel.sizes[last]) < kLeastColumns) return false;
  int64_t rows = 1;
  for (int d = 0; d < last; ++d) rows *= hint(kernel.sizes[d]);
  const bool many = rows >= kMinTurnedRows && rows * hint(kernel.sizes[last]) >= kPlannedMultiprocessors * kMinTurnedRows * kTurnedPoints;
  const auto begins_apart = [&](int64_t stride) { return hint(stride) % kTurnedLanes != 0; };
  const bool whole = std::none_of(kernel.buffers.begin(), kernel.buffers.end(), [&](const KBuffer& buffer) {
    return std::any_of(buffer.strides.begin(), buffer.strides.end() - 1, begins_apart);
  });
  return many && whole && ReadsMoreOfRow(kernel);
}

KernelIR WithRowsAsTurns(KernelIR kernel) {
  const int rank = static_cast<int>(kernel.sizes.size());
  const auto rotate = [](c10::DimVector* list) { std::rotate(list->begin(), list->end() - 1, list->end()); };
  rotate(&kernel.sizes);
  for (KBuffer& buffer : kernel.buffers) rotate(&buffer.strides);
  for (KInst& inst : kernel.insts) {
    if (inst.op == KOp::kIndex) inst.imm = (inst.imm + 1) % rank;
  }
  kernel.num_reduced = rank - 1;
  return kernel;
}

}  // namespace lazuli::codegen
