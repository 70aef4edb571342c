// Writes one function of a kernel's CUDA text. Private to the emitter.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "codegen/cuda/cuda_plan.h"

namespace lazuli::codegen {

// Variables of the text, by what they belong to:
//   b3 buffer, s0 symbol, x0 scalar, i2 coordinate of loop 2 (of the vector loop: of its first lane), n valid lanes, shift points that the
//   first piece of a row lacks, r2 number of a piece of loop 2, a8 accumulator, t7 value of instruction 7, c7 the same kept in registers
//   between passes, e9 scan 9 of a thread's points, row what is kept in shared memory, m7 as it lies in memory, l7
//   that of several turns, o9 places that scatter 9 adds up for its block, g7 and f7 random numbers and where they begin, q9 a
//   vector for maximum 9 (online_sums.h), y9 what store 9 stores, w partial results, p9 sums of columns for kPartialSum 9, v lane.
class CudaFunctionEmitter {
 public:
  // Passes [begin, end) of the plan, and what is done once for each kept point when `kept_effects`.
  CudaFunctionEmitter(const CudaPlan& plan, const CudaLaunch::Phase& phase, int begin, int end, bool kept_effects);
  std::string Run();

 private:
  const KInst& inst(int i) const { return plan_.kernel.insts[i]; }
  const KBuffer& buffer(int b) const { return plan_.kernel.buffers[b]; }
  int num_insts() const { return static_cast<int>(plan_.kernel.insts.size()); }
  bool Reduces() const { return plan_.kernel.num_reduced > 0; }
  bool IsColumns() const { return Reduces() && !plan_.rows; }
  // Whether threads of a block wait for each other.
  bool Syncs() const;
  // Of blocks whose rows have several warps each: of those of one row.
  std::string Barrier() const;
  // In the loop over kept points, once for each of them.
  void Sync();
  // After that loop, before what all threads of the block wait for.
  void CatchUpSyncs();
  bool HasRowsOfWarps() const { return plan_.rows && phase_.threads_x > 32 && phase_.threads_y > 1; }

  // emit_cuda_function.cpp: the function around the passes.
  void FindNeeds();
  void Require(int i);
  void EmitSignature();
  // Types and names of the function's parameters, as members of a batch's table where `members`.
  std::vector<std::string> Parameters(bool members) const;
  std::string LaunchBounds() const;
  // The functions that are launched: of one kernel, and of several where a launch may run several.
  void EmitEntryPoints();
  void EmitBatchEntryPoint();
  // What an entry point does: `from` is where its arguments are.
  void EmitCall(const std::string& from, const std::string& block, const std::string& blocks, const std::string& split);
  void EmitFacts();
  void EmitKeptLoop();
  void EmitTileLoop();
  bool KeepsVectorsApart(int b) const;
  void EmitFast(int b);
  void EmitShift();
  bool SkipsLastTurn(const std::vector<bool>& chosen, int pass) const;
  bool HasWholeEnds() const;
  std::string InLanes() const;
  std::string LaneRange() const;
  // Lines that define n.
  void EmitValidLanes(const std::string& condition);
  void EmitCoordinates(const std::string& chunk, int begin, int end);
  std::string ChunksText(int begin, int end) const;
  std::string Number(int64_t number, bool wide = false) const;
  std::string ProductText(const runtime::Product& product, bool wide) const;
  void Line(const std::string& text);
  void Open(const std::string& text);
  void Close();

  // emit_cuda_body.cpp: what is evaluated at points.
  void FindDrawn();
  void EmitKeptStage(int stage);
  void EmitKeptEffects();
  void EmitPass(int pass);
  // How many pieces of reduced points there are.
  std::string ReducedPieces() const;
  void EmitReducedLoop(const std::vector<bool>& chosen, const std::vector<bool>& effects, int pass, int unroll, bool staged);
  // emit_cuda_picks.cpp: elements that are picked by their number.
  int PickedNumber(int i) const;
  std::string PickCondition(const std::vector<bool>& chosen) const;
  bool SumsPicked(int reduce) const;
  // emit_cuda_scatter.cpp: what is written where indices say.
  void EmitScatter(int i);
  bool AddsVectors(int inst) const;
  void BeginOwnPlaces();
  void AddOwnPlaces();

  // emit_cuda_scan.cpp: scans, which every pass that uses them computes.
  std::vector<int> ScansOf(const std::vector<bool>& chosen) const;
  void BeginScans(const std::vector<int>& scans);
  void EmitScanLoop(const std::vector<bool>& chosen, const std::vector<bool>& effects, int pass, const std::vector<int>& scans);
  void EmitOperand(int scan, const std::vector<bool>& chosen, int pass);
  void SetScanned(bool lanes);
  std::string Scanned(int i, const std::string& lane) const;
  int ScanLanes(int i) const { return plan_.HasLanes(i) ? plan_.lanes : 1; }
  void EmitStagedTurns(const std::vector<bool>& chosen, const std::vector<bool>& effects, int pass, int turns, int threads);
  bool IsStaged(int i, int pass) const;
  std::optional<std::vector<int>> WholeVectors(const std::vector<bool>& chosen, const std::vector<bool>& effects, int pass) const;
  // Instructions `chosen`, in order, where `lanes`: for each lane of the vector loop. `pass`: -1 for kept points.
  void EmitBlock(const std::vector<bool>& chosen, const std::vector<bool>& effects, bool lanes, int pass);
  void EmitValue(int i, int pass, bool in_lanes);
  // Defines f%, which says where the numbers of `i`, which draws them, begin.
  void EmitPlace(int i, int pass, bool in_lanes);
  void EmitLoad(int i, int pass, bool lanes);
  void EmitVectorLoad(int i, const std::string& into);
  std::string Check(const std::string& valid) const;
  void EmitLaneEffect(int i);
  void EmitStores(const std::vector<bool>& effects, bool lanes);
  void EmitUniformEffect(int i);
  void Accumulate(int i);
  void AccumulateOnline(const std::vector<bool>& effects);
  std::string Offset(int b, bool in_row = true) const;
  std::string Coordinate(int i) const;
  std::optional<int64_t> StepAlongLanes(int i) const;
  std::string Expression(int i) const;
  bool RoundsToHalf(int i) const;
  std::string Value(int i) const { return "t" + std::to_string(i); }
  std::string Operand(int i, bool in_lanes) const;
  bool IsArray(int i) const { return IsColumns() && !plan_.IsFull(i) && plan_.HasLanes(i); }

  // emit_cuda_reduce.cpp: from accumulators to results.
  int AccumulatorLanes(int reduce) const;
  void BeginAccumulators(int pass);
  // Combines what the threads accumulated for these reductions.
  void Combine(const std::vector<int>& reduces);
  void CombineInRow(const std::vector<int>& reduces);
  void CombineInColumn(const std::vector<int>& reduces);
  void EmitTree(const std::vector<int>& reduces);
  void StorePartials(const std::vector<int>& reduces);
  void EmitPartialsLoop(const std::vector<int>& reduces, bool guarded);
  void LoadPartials(int stage);
  std::string KeptPoint(const std::string& lane) const;
  // What a thread adds up of its columns before it goes through rows, and after that.
  void BeginPartialSums();
  void StorePartialSums();

  const CudaPlan& plan_;
  const CudaLaunch::Phase& phase_;
  const int begin_;
  const int end_;
  const bool kept_effects_;
  std::vector<bool> needs_;
  std::vector<int> drawn_by_;  // By instruction: the one that draws numbers and alone needs it, where its numbers are drawn. -1: none.
  std::string text_;
  int syncs_ = 0;  // Calls of Sync().
  int depth_ = 0;
  int scanned_ = -1;     // The scan whose operand is being emitted.
  bool picks_ = false;   // In `each`, which is called where a vector holds what is picked, and where not.
  bool staged_ = false;  // What a turn of several loads is there already.
};

}  // namespace lazuli::codegen
