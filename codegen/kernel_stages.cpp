#include "codegen/kernel_stages.h"

#include <algorithm>

namespace lazuli::codegen {

void StagedKernel::FindDependences() {
  deps.clear();
  const uint64_t kept = (uint64_t{1} << num_kept) - 1;
  for (const KInst& inst : kernel.insts) {
    uint64_t over = 0;
    for (int k = 0; k < KOpArity(inst.op); ++k) over |= deps[inst.in[k]];
    for (int d = 0; HasBuffer(inst.op) && d < rank; ++d) {
      if (kernel.buffers[inst.imm].strides[d] != 0) over |= uint64_t{1} << d;
    }
    if (inst.op == KOp::kIndex) over = uint64_t{1} << inst.imm;
    if (IsReduce(inst.op)) over &= kept;
    if (IsScan(inst.op)) over |= uint64_t{1} << (rank - 1);
    if (IsScatter(inst.op)) over = (uint64_t{1} << rank) - 1;
    deps.push_back(over);
  }
}

void StagedKernel::FindLiveness() {
  live.assign(kernel.insts.size(), false);
  for (size_t i = kernel.insts.size(); i-- > 0;) {
    const KInst& inst = kernel.insts[i];
    if (HasEffect(inst.op)) live[i] = true;
    for (int k = 0; live[i] && k < KOpArity(inst.op); ++k) live[inst.in[k]] = true;
  }
}

void StagedKernel::FindStages() {
  FindDependences();
  FindLiveness();
  has_scans = HasScans(kernel);
  from_end = ScansFromEnd(kernel);
  const auto& insts = kernel.insts;
  const int count = static_cast<int>(insts.size());
  stage.assign(count, 0);
  store_pass.assign(count, -1);
  num_passes = 0;
  for (int i = 0; i < count; ++i) {
    const bool reduces = IsReduce(insts[i].op), stores = HasEffect(insts[i].op) && IsFull(i);
    int before = 0;
    for (int k = 0; k < KOpArity(insts[i].op); ++k) before = std::max(before, stage[insts[i].in[k]]);
    if (live[i] && (reduces || stores)) num_passes = std::max(num_passes, before + 1);
    if (stores) store_pass[i] = before;
    stage[i] = before + (reduces ? 1 : 0);
  }
  // An operand that is overwritten must stay readable until no pass needs it.
  for (int i = 0; i < count; ++i) {
    for (int j = 0; store_pass[i] >= 0 && j < i; ++j) {
      if (IsLoad(insts[j].op) && live[j] && insts[j].imm == insts[i].imm) store_pass[i] = num_passes - 1;
    }
  }
}

}  // namespace lazuli::codegen
