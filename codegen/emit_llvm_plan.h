// How a kernel becomes loops: canonical domain, loop order, vectorised dimension, passes over the reduced dimensions, units of parallel
// work. Decided here from the IR alone, so that the emitter only writes down what the plan says.
#pragma once

#include <cstdint>
#include <vector>

#include "codegen/kernel_stages.h"
#include "codegen/kernel_weight.h"

namespace lazuli::codegen {

// The instruction set the emitter writes for.
struct IsaInfo {
  int vector_bytes = 16;         // 64, 32 or 16.
  bool masked_memory = false;    // Masked loads and stores of every element size (AVX-512BW).
  bool half_conversion = false;  // F16C.
};

// What is chosen other than by the cost model; see schedule.h. Without a change to it, the cost model chooses everything.
struct Schedule {
  int unroll = 0;    // Vectors per iteration of the main loop. 0: the cost model's.
  int narrow = 0;    // 1: vectors of half the instruction set's width.
  int prefetch = 1;  // 0: nothing is asked for ahead of time,
  int stream = 1;    // and nothing stored past the caches, even where the cost model would.
  int grain = 0;     // How much work is worth a thread: a quarter (-1) or four times (1) of what the cost model says.

  bool operator==(const Schedule& o) const {
    return unroll == o.unroll && narrow == o.narrow && prefetch == o.prefetch && stream == o.stream && grain == o.grain;
  }
};

// How many units of parallel work a kernel has.
struct UnitCount {
  runtime::Product outer;  // Sizes of the loops of which every index is a unit, times splits.
  runtime::Product size;   // Of the loop that is cut into chunks.
  int64_t chunk = 1;

  // With the symbols' first values.
  int64_t CountHint(const runtime::SymbolTable& symbols) const;
  int64_t Count(const int64_t* symbols) const { return outer.Evaluate(symbols) * ((size.Evaluate(symbols) + chunk - 1) / chunk); }
};

// Iterations that are summed up one after another; see LoopPlan::cascade_dim.
constexpr int64_t kCascadeBlock = 128;

// How much memory a split kernel keeps its reductions in, between its functions: for each, a result and then its partial results, one
// for each kept point (and split).
struct ScratchSize {
  runtime::Product kept;
  int64_t splits = 1;
  std::vector<int64_t> element_bytes;  // Of each reduction.

  static constexpr int64_t kAlignment = 64;
  static int64_t Aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }
  int64_t Bytes(const int64_t* symbols) const {
    int64_t bytes = 0;
    for (const int64_t element : element_bytes) {
      const int64_t whole = kept.Evaluate(symbols) * element;
      bytes += Aligned(whole) + Aligned(whole * splits);
    }
    return bytes;
  }
};

// What a kernel writes has left the caches before anyone reads it again when it is this much, for all threads and for each. Then its stores
// go past the caches, which saves reading each line before it is written. Measured with 2 MiB of second-level cache for each core and a
// large third level: the kernel gains from half of this on, with a next one that reads it, from this on.
constexpr int64_t kStreamBytes = int64_t{32} << 20;
constexpr int64_t kStreamShare = int64_t{4} << 20;
// How far ahead of a loop memory is asked for.
constexpr int64_t kPrefetchBytes = 2048;

// Strides so small that what lies between lanes is read with them: whole vectors, and out of them what is wanted.
constexpr int64_t kNearStride = 4;

// There is at least one loop in all.
struct LoopPlan : StagedKernel {
  int vector_dim = 0;  // The last kept or the last loop; the last but one in tiled kernels.
  int lanes = 1;       // Elements of one vector, whatever their type.
  int unroll = 1;      // Vectors per iteration of the main loop.
  // Of tiled kernels: the size of the loop that was cut in two, of which the last tile may be shorter than the innermost loop.
  int64_t tiled_size = 0;

  // Per instruction.
  std::vector<bool> needs_splat;              // Uniform along the vector loop but used by something that is not.
  std::vector<bool> cached;                   // Kept in the row cache.
  std::vector<int> cache_pass;                // The pass that fills the cache.
  std::vector<bool> packed;                   // Loads whose tile is copied to the stack before the loop over it.
  std::vector<bool> prefetched;               // Loads and stores whose lines are asked for some vectors ahead.
  std::vector<int> next_row_pass;             // Loads that ask for their next row in a later pass than the first: that pass. Otherwise -1.
  std::vector<bool> streams;                  // Stores that go past the caches when the kernel writes kStreamBytes or more.
  std::vector<bool> by_reciprocal;            // Divisions done by their divisor's reciprocal,
  std::vector<bool> needs_reciprocal;         // and these divisors.
  std::vector<std::vector<bool>> pass_needs;  // [pass][instruction]: full-level instructions evaluated in that pass.

  // Units of parallel work: every index of the kept loops before unit_dim, times chunks of unit_dim. One unit when num_kept is 0.
  int unit_dim = 0;
  int64_t unit_chunk = 1;
  double unit_ns = 0;  // Estimated time of one unit (of one split of one unit, when split).

  // Splitting of one reduced loop into a fixed number of chunks, multiples of `split_multiple`, whose partial results are combined in
  // order.
  int split_dim = -1;
  int64_t split_multiple = 1;
  int64_t num_splits = 1;

  // Float sums are added up in blocks of `cascade_block` iterations of this reduced loop, and the blocks' sums then, so that rounding
  // errors grow with the sum of both lengths rather than with their product. -1: few enough terms.
  int cascade_dim = -1;
  int64_t cascade_block = 1;

  // A scatter's places fall into so many parts, by a hash of the offset, and its columns, if it has such, into chunks; every part of every
  // chunk of every kept point is a unit of its own. Functions go through all that is scattered once for each run of units, and do what
  // belongs to them, in order. 1: units are as above.
  int64_t num_parts = 1;
  int64_t column_chunk = 1;
  int scattered_offset = -1;   // The instruction that says where.
  int min_threads = 1;         // With fewer, going through all of it takes more than they gain.
  bool scatters_rows = false;  // The vector loop is the innermost one, and every vector of it goes to neighbouring places.

  int64_t kept_numel = 1;  // May hold symbols, as may the kernel's sizes and strides.
  int64_t reduced_numel = 1;

  bool IsUniform(int inst) const { return ((deps[inst] >> vector_dim) & 1) == 0; }
  bool VectorIsReduced() const { return vector_dim >= num_kept; }
  bool IsTiled() const { return vector_dim < num_kept - 1; }
  // Whether each iteration of the innermost loop takes a piece of another row.
  bool WalksColumns() const { return vector_dim == num_kept - 1 && rank > num_kept; }
  bool IsSplit() const { return split_dim >= 0; }
  // Whether pass `pass` finds the instruction's values in a cache that an earlier one filled, and whether it computes them itself.
  bool IsCachedBefore(int inst, int pass) const { return cached[inst] && cache_pass[inst] < pass; }
  bool IsComputedIn(int inst, int pass) const { return pass_needs[pass][inst] && !IsCachedBefore(inst, pass); }
  bool Scatters() const;  // Whether it has an instruction that writes where indices say.
  bool IsParted() const { return num_parts > 1; }
  // Bytes of the elements at one point that `streams` are stored to.
  int64_t StreamedBytes() const;
  // Points that one iteration of the loop over `dim` takes.
  int64_t Step(int dim) const { return dim == vector_dim ? static_cast<int64_t>(lanes) * unroll : 1; }
  // Loops that enclose the instruction's evaluation.
  int Depth(int inst) const;
  // Whether the instruction is a store at every point (as opposed to one per kept point).
  bool IsFullStore(int inst) const { return store_pass[inst] >= 0; }
  bool IsSymbolic(int64_t number) const { return kernel.symbols.IsSymbolic(number); }
  int64_t Hint(int64_t number) const { return kernel.symbols.Hint(number); }
  int64_t SizeHint(int dim) const { return Hint(kernel.sizes[dim]); }
  // Units of one function, without splits.
  UnitCount Units() const;
  int64_t UnitsHint() const;
};

// `kernel` must verify.
LoopPlan PlanLoops(const KernelIR& kernel, const IsaInfo& isa, const Schedule& schedule = {});

// Fills in `prefetched`, `next_row_pass` and `streams`, when all else is planned.
void PlanMemory(LoopPlan* plan, const Schedule& schedule);

// Fills in `by_reciprocal` and `needs_reciprocal`, when passes are planned.
void PlanDivisions(LoopPlan* plan, const IsaInfo& isa);

// Bytes of one element in memory.
int ElementBytes(c10::ScalarType type);

}  // namespace lazuli::codegen
