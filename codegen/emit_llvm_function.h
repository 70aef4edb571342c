// One function of a kernel: the loops of a plan around its instructions.
//
// Every function has the signature void(ptr buffers, ptr scalars, ptr symbols, i64 unit_begin, i64 unit_end, ptr scratch) and runs a range
// of its units.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <functional>
#include <vector>

#include "codegen/emit_llvm_divide.h"
#include "codegen/emit_llvm_memory.h"
#include "codegen/emit_llvm_ops.h"
#include "codegen/emit_llvm_plan.h"

namespace lazuli::codegen {

// What a split kernel keeps its live reductions in, in their order.
ScratchSize ScratchOf(const LoopPlan& plan);

class FunctionEmitter {
 public:
  FunctionEmitter(llvm::Module& module, const LoopPlan& plan, const IsaInfo& isa, const std::string& precision);

  // The whole kernel; units are the plan's.
  void EmitWhole(const std::string& name);
  // One pass of a split kernel; units are splits times the plan's units, splits outermost.
  void EmitSplitPass(const std::string& name, int pass);
  // Adds up the partial results of `pass` (none when -1) and, if `stores`, performs the kept-level stores; units are the plan's.
  void EmitCombine(const std::string& name, int pass, bool stores);

 private:
  // The current value of an instruction: one scalar if uniform along the vector loop, else one vector per unrolled step.
  struct Values {
    llvm::Value* scalar = nullptr;
    llvm::Value* splat = nullptr;
    llvm::SmallVector<llvm::Value*, 8> vectors;
    Divisor divisor;  // Of a uniform one.
  };
  struct Slot {  // A buffer, or a scratch array indexed by kept point.
    c10::ScalarType dtype;
    c10::DimVector strides;
    llvm::Value* pointer = nullptr;  // At the current indices.
  };
  struct Range {
    llvm::Value* begin;
    llvm::Value* end;
  };
  using Body = std::function<void()>;
  using Accumulators = std::vector<llvm::SmallVector<llvm::AllocaInst*, 8>>;  // By instruction.

  const KInst& inst(int i) const { return plan_.kernel.insts[i]; }
  int num_insts() const { return static_cast<int>(plan_.kernel.insts.size()); }

  // Function frame.
  void Begin(const std::string& name);
  void BindSlots();
  void BindScratch();
  void BindCache();
  // A number of the kernel's, which may hold symbols, times a constant.
  llvm::Value* Number(int64_t number, int64_t factor = 1);
  llvm::Value* Number(const runtime::Product& product, int64_t factor = 1);
  llvm::Value* CeilDiv(llvm::Value* number, int64_t divisor);
  llvm::Value* RoundUp(llvm::Value* number, int64_t multiple);
  llvm::Value* NumUnits();
  // The `index`th of the pieces of `length` that [0, size) falls into; empty past the end.
  Range Chunk(llvm::Value* index, llvm::Value* length, llvm::Value* size);
  void EmitUnits(int64_t num_splits, const Body& leaf);
  void EmitUnit(llvm::Value* unit, const Body& leaf);
  void EmitParts(const Body& leaf);
  llvm::Value* IsInParts(llvm::Value* offset);
  llvm::Value* AreAllParts();
  void EmitOwnRows(int pass, int dim);
  void Finish();

  // Loops.
  void EmitLoop(llvm::Value* begin, llvm::Value* end, int64_t step, const std::function<void(llvm::Value*)>& body);
  void EmitWhile(const std::function<llvm::Value*()>& condition, const Body& body);
  void Either(llvm::Value* condition, const Body& then, const Body& otherwise);
  void BindStreams(int64_t num_splits);
  void EmitDim(int dim, const Body& body);
  void EmitVectorDim(int dim, const Body& body);
  void EmitTail(int dim, llvm::Value* begin, const Body& body);
  // Like EmitLoop, but from the end where `dim` is what is scanned from there.
  void EmitLoopAlong(int dim, llvm::Value* begin, llvm::Value* end, int64_t step, const std::function<void(llvm::Value*)>& body);
  void EmitAlong(int dim, llvm::Value* begin, llvm::Value* end, int64_t step, const Body& body);
  void AtIndex(int dim, llvm::Value* index, const Body& body);
  void EmitKept(int depth, const Body& leaf);
  Tail MakeTail(llvm::Value* index, llvm::Value* end);

  // Which kept-level instructions the function evaluates.
  void NeedKept(int i);
  void NeedPass(int pass);
  void NeedStores();

  // Passes over the reduced loops, at one kept point (or one vector of them).
  void EmitPass(int pass, bool to_partials);
  void EmitFull(int pass, int depth);
  void EmitCascade(int pass, int depth);
  void CountTo(llvm::AllocaInst* count, llvm::Value* amount, int64_t limit, const Body& then);
  void FlushSums(int pass, const Accumulators& from, const Accumulators& into);
  void EmitInnermost(int pass);
  void EmitKeptStage(int stage);
  void EmitKeptStores();
  llvm::Value* FitOneBlock();
  void BeginAccumulators(int pass);
  void BeginBlocks(int pass);
  void Accumulate(int reduce);
  void EndAccumulators(int pass, bool to_partials);
  llvm::Value* Collapse(int reduce);
  void CombinePartials(int reduce);
  // emit_llvm_scan.cpp: what scans have put together so far.
  void BeginScans(int pass);
  void EmitScan(int i);
  llvm::Value* ScanLanes(int i, llvm::Value* vector);
  bool Cascades(int i) const {
    return plan_.cascade_dim >= 0 && inst(i).op == codegen::KOp::kReduceSum && c10::isFloatingType(inst(i).type);
  }
  // Whether loops that are summed over may be short or long, whatever the plan took them for.
  bool CountsBlocks() const { return plan_.cascade_dim >= 0 && plan_.IsSymbolic(plan_.reduced_numel); }
  bool InPass(int i, int pass) const { return plan_.live[i] && IsReduce(inst(i).op) && plan_.stage[i] == pass + 1; }

  // Whether the instruction is a store, or a check of what a pass computes, at a kept point: what comes last there.
  bool IsKeptStore(int i) const {
    return HasEffect(inst(i).op) && !plan_.IsFullStore(i) && (inst(i).op != codegen::KOp::kCheck || plan_.stage[i] > 0);
  }

  // Instructions.
  void EmitInst(int i);
  void EmitScatter(int i);
  void ScatterVectors(int i);
  void ScatterLanes(int i);
  void EachLane(llvm::Value* mask, const std::function<void(llvm::Value*)>& body);
  void PackTiles();
  bool IsTurned(int i) const;
  void PackRows(int i);
  void PackTurned(int i);
  llvm::Value* TurnedTile(int i);
  void LoadPacked(int i);
  void EmitStore(int i);  // Or a check.
  void EmitGather(int i);
  void EmitCheck(int i);
  void EmitIndex(int i);
  void EmitArithmetic(int i);
  llvm::Value* Convert(llvm::Value* value, c10::ScalarType from, c10::ScalarType to);
  void Define(int i, llvm::Value* scalar);
  llvm::Value* Vector(int i, int step) const;
  bool ReduceIsScalar(int i) const { return !plan_.VectorIsReduced() && plan_.IsUniform(i); }
  void LoadSlot(int i, const Slot& slot, llvm::Value* pointer);
  void StoreSlot(int i, const Slot& slot, llvm::Value* pointer);
  void Prefetch(int i);
  llvm::Value* CachePointer(int i, int step);
  llvm::Value* CacheLength(int dim);

  llvm::Module& module_;
  const LoopPlan& plan_;
  llvm::IRBuilder<> builder_;
  InstEmitter ops_;
  MemoryEmitter memory_;

  llvm::Function* function_ = nullptr;
  std::vector<Slot> slots_;
  std::vector<int> slot_of_result_, slot_of_partial_;
  std::vector<llvm::Value*> index_;  // Per loop.
  std::vector<Range> ranges_;        // Per loop.
  std::vector<Values> values_;       // Per instruction.
  std::vector<bool> kept_needs_;     // Per instruction.
  Accumulators accumulators_;
  Accumulators blocks_;                           // Of sums that cascade: those of whole blocks,
  Accumulators rows_of_blocks_;                   // and of so many blocks, where lengths are unknown.
  bool in_blocks_ = false;                        // Whether the pass has such sums, and its loops are long enough.
  llvm::AllocaInst* in_block_ = nullptr;          // Iterations since sums last moved on to their blocks,
  llvm::AllocaInst* in_row_of_blocks_ = nullptr;  // and blocks since those did.
  std::vector<llvm::AllocaInst*> tiles_;          // Per packed load: see IsTurned.
  Accumulators scanned_;                          // Per scan: see BeginScans.
  std::vector<llvm::Value*> symbols_;             // Per symbol of the kernel.
  std::vector<llvm::Value*> cache_;               // Per cached instruction: its row cache.
  int combining_pass_ = -1;                       // Whose Reduce results are at hand rather than in scratch.
  int width_ = 1;                                 // Vectors per iteration where code is being emitted.
  Tail tail_;
  Range parts_;                        // Of a scatter's places, which are the function's.
  llvm::Value* may_stream_ = nullptr;  // Whether the function writes enough to store past the caches. Null: no store ever does.
  bool loop_streams_ = false;          // Whether a vector loop emitted now has stores that may stream,
  bool streaming_ = false;             // and whether they do so in the code that is being emitted.
  bool prefetching_ = false;           // Whether code of a main loop is being emitted,
  int pass_ = 0;                       // The pass that is being emitted,
  bool from_memory_ = true;            // of a pass whose operands an earlier one did not bring into the caches.
};

}  // namespace lazuli::codegen
