// What every target's plan begins with: over which loops an instruction varies, whether anybody needs it, and how many passes over the
// reduced loops come before it.
#pragma once

#include <cstdint>
#include <vector>

#include "codegen/kernel_ir.h"

namespace lazuli::codegen {

// Loops are numbered outermost first: `num_kept` loops over kept dimensions, then the reduced ones. Loop i is dimension i of `kernel`.
struct StagedKernel {
  KernelIR kernel;  // Canonical: no size-1 dimensions, loop order, adjacent dimensions merged.
  int rank = 0;
  int num_kept = 0;

  // Per instruction.
  std::vector<uint64_t> deps;   // Bit d: varies over loop d.
  std::vector<bool> live;       // Reaches an effect.
  std::vector<int> stage;       // Passes over the reduced loops that must be complete before it can be evaluated.
  std::vector<int> store_pass;  // Effects at every point: the pass that has them. Otherwise -1.
  int num_passes = 0;

  bool has_scans = false;
  bool from_end = false;  // They begin at the end, so that the reduced loop is gone through backwards.

  bool IsFull(int inst) const { return (deps[inst] >> num_kept) != 0; }

  // Finds all of that, from the first three. Again after a change of the loops.
  void FindStages();

 private:
  void FindDependences();
  void FindLiveness();
};

inline bool IsLoad(KOp op) { return op == KOp::kLoad || op == KOp::kGather; }

}  // namespace lazuli::codegen
