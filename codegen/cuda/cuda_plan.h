// How a kernel becomes CUDA functions: canonical domain, which threads take which points, passes over the reduced loops, launches. Decided
// here from the IR alone, so that the emitter only writes down what the plan says.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "codegen/cuda/cuda_schedule.h"
#include "codegen/kernel_stages.h"

namespace lazuli::codegen {

// Multiprocessors of the GPU that is planned for. A launch asks for the real number.
constexpr int64_t kPlannedMultiprocessors = 132;
// The side of a tile of shared memory, and where all that lies in tiles has 16 bits or less.
constexpr int kCudaTile = 32, kWideCudaTile = 64;
constexpr int kCudaVectorBytes = 16;
constexpr int kMaxCudaLanes = 8;
// Of a block that adds up places by itself, and at most so many such blocks for each multiprocessor.
constexpr int kAddingThreads = 512, kAddingBlocks = 4;
// Instructions up to which little is done at a point.
constexpr size_t kLightInsts = 24;
// Turns of a loop that is unrolled so that registers keep values from pass to pass, and bytes of shared memory that keep a row: what any
// GPU from sm_80 on has for a block.
constexpr int kMaxIterations = 8;
constexpr int64_t kRowBytes = 100864;
// Numbers of elements up to this are counted with 32 bits, with room to step past the end.
constexpr int64_t kNarrowElements = int64_t{1} << 30;

inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// A number of chunks: every index of the outer loops, times pieces of `step` of the last one and of `tile_step` of the tiled one.
struct ChunkCount {
  runtime::Product outer;
  runtime::Product last;
  int64_t step = 1;
  int64_t extra = 0;  // Points that pieces of the last loop may have to spare.
  runtime::Product tiled;
  int64_t tile_step = 1;

  int64_t Count(const int64_t* symbols) const {
    return outer.Evaluate(symbols) * Pieces(last, extra, step, symbols) * Pieces(tiled, 0, tile_step, symbols);
  }

 private:
  static int64_t Pieces(const runtime::Product& size, int64_t extra, int64_t step, const int64_t* symbols) {
    return (size.Evaluate(symbols) + extra + step - 1) / step;
  }
};

// What a launch needs to know.
struct CudaLaunch {
  struct Phase {
    std::string function;
    bool split = false;  // One block for each split; else one for all.
    int threads_x = 1;
    int threads_y = 1;
    int64_t kept_per_block = 1;  // Pieces of kept points.
  };
  std::vector<Phase> phases;    // Launched in order. Arguments: buffers, scalars, symbols and, of split kernels, scratch and splits.
  ChunkCount kept;              // Pieces of kept points.
  ChunkCount reduced;           // What is split: pieces of reduced points,
  int64_t reduced_threads = 1;  // taken by so many threads.
  bool split = false;
  int more_splits = 0;  // CudaSchedule::splits.
  runtime::Product kept_points;
  int64_t row_bytes = 0;               // Of shared memory: what is kept of a row.
  std::vector<int64_t> partial_bytes;  // Per reduction of a split kernel: bytes of one partial result.
  int64_t fixed_blocks = 0;            // So many, whatever there is to do. 0: as many as that takes.
  int64_t most_blocks = 0;             // At most so many. 0: any number.
  // The functions that do each phase of up to so many of these kernels at once, each with arguments of its own (batch_table.h). 0: there
  // are none.
  std::vector<Phase> batch;
  int batch_entries = 0;

  static constexpr int64_t kAlignment = 256;
  static constexpr int64_t kMostBlocks = (int64_t{1} << 31) - 1;  // Of a launch.
  // What a split kernel's functions take besides: its scratch memory and splits.
  int OwnArguments() const { return split ? 2 : 0; }
  static int64_t Aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }
  // Of the first phase.
  int64_t Blocks(const int64_t* symbols) const { return Blocks(phases[0], symbols); }
  int64_t Blocks(const Phase& phase, const int64_t* symbols) const {
    if (fixed_blocks > 0) return fixed_blocks;
    const int64_t blocks = (kept.Count(symbols) + phase.kept_per_block - 1) / phase.kept_per_block;
    return most_blocks > 0 ? std::min(blocks, most_blocks) : blocks;
  }
  // Chunks of one of `splits` parts of so many, for as many threads: each takes whole turns of kSplitUnroll, if there are enough.
  static int64_t SplitChunks(int64_t chunks, int64_t splits, int64_t threads);
  static constexpr int64_t kSplitUnroll = 8;
  // How often the reduced points are split, for a GPU with so many multiprocessors.
  int64_t Splits(const int64_t* symbols, int64_t multiprocessors) const;
  int64_t ScratchBytes(const int64_t* symbols, int64_t splits) const;
};

// Rows: threads of x take neighbouring pieces of the reduced points of one kept point, threads of y other kept points. Columns: threads of
// x take neighbouring pieces of kept points, threads of y take turns at the reduced points. Without reduced loops there are columns of
// one point each; where some buffer is contiguous along another loop than the last, a block takes tiles of these two loops, and that
// buffer's elements come through shared memory. Where rows leave partial sums of their columns (kPartialSum), kPartialSums blocks of
// several rows take turns at them, each thread at its own points of a row, of which it keeps the sums in registers.
struct CudaPlan : StagedKernel {
  bool rows = false;
  int vector_dim = 0;    // The last loop in rows, else the last kept one.
  int lanes = 1;         // Consecutive points of it that a thread takes at a time.
  int scan_points = 1;   // Of a column, that a thread scans before its neighbours are told what they come to.
  int iterations = 0;    // Of a row's loop, when it is unrolled and values stay in registers from pass to pass. 0: any number.
  bool wide = false;     // Elements are counted with 64 bits.
  int tile_dim = -1;     // The loop that makes tiles with the last one. -1: no tiles.
  int tile = kCudaTile;  // Their side.
  // Where rows of the vector loop do not all begin at multiples of 16 bytes: the buffer by whose rows pieces are cut, so that the first one
  // is shorter and the others are aligned. -1: pieces begin with the rows.
  int shift_buffer = -1;
  CudaSchedule schedule;

  // Per instruction.
  std::vector<int> pass;                      // Of effects and reductions at every point: the pass that does it. Otherwise -1.
  std::vector<bool> tiled;                    // Loads through shared memory.
  std::vector<int64_t> own_places;            // Of a scatter's buffer, that each block adds up in shared memory first; 0: none.
  std::vector<bool> cached;                   // Kept from pass to pass,
  std::vector<int> cache_pass;                // since this one:
  std::vector<int64_t> row_place;             // so many bytes into the row's shared memory, each thread its own points; -1: in registers.
  std::vector<int> online;                    // Of a maximum and the sum that comes with it (online_sums.h): the other one. Else -1.
  std::vector<bool> rough;                    // Computed by the hardware's own functions (rough_functions.h); empty: none is.
  std::vector<std::vector<bool>> pass_needs;  // [pass][instruction]: values at every point that the pass uses.

  CudaLaunch launch;

  // Of the first few instructions that say most: what its functions' names begin with.
  std::string Name() const;
  // Whether the value differs between the points that a thread takes at a time.
  bool HasLanes(int inst) const { return (deps[inst] >> vector_dim & 1) != 0; }
  // Whether neighbouring lanes read or write neighbouring elements.
  bool IsContiguous(int inst) const;
  // Whether it loads what is contiguous along loop `dim`, and not along the vector loop.
  bool IsTransposed(int inst, int dim) const;
  // Whether it adds up, where an index says, what lies next to each other for neighbouring lanes: as a vector, where the GPU can.
  bool AddsNeighbours(int inst) const;
  // Scatters that add much to few places, which have room in so many bytes: a few blocks do so in shared memory, where it takes a tenth of
  // the time, and add their sums up in order.
  void ChooseOwnPlaces(int64_t shared_bytes);
  bool HasOwnPlaces() const {
    return std::any_of(own_places.begin(), own_places.end(), [](int64_t places) { return places != 0; });
  }
  // At most so many lanes, for an access that is not: those of loads share what memory is read in with the lanes of neighbouring threads,
  // and what several threads may add up goes lane by lane.
  int64_t LanesApart(int inst) const;
  // Whether it reads whole vectors, or what stands for them.
  bool IsVectorLoad(int inst) const {
    return kernel.insts[inst].op == KOp::kLoad || (kernel.insts[inst].op == KOp::kGather && IsContiguous(inst));
  }
  // Where `lanes` do not fit rows: the buffer with the most elements, if rows are long and threads stay in one; -1: there is none.
  int BufferToShift(int64_t lanes) const;
  // Whether two of its values share a register while it is kept.
  bool IsPacked(int inst) const;
  // Whether little is done at each point, or at each point of pass `p`, so that several may be under way at once.
  bool IsLight() const { return kernel.insts.size() <= kLightInsts; }
  bool IsLight(int p) const { return static_cast<size_t>(std::count(pass_needs[p].begin(), pass_needs[p].end(), true)) <= kLightInsts; }
  bool IsCachedBefore(int inst, int p) const { return cached[inst] && cache_pass[inst] < p; }
  bool IsOnlineSum(int inst) const { return online[inst] >= 0 && kernel.insts[inst].op == KOp::kReduceSum; }
  bool IsOnlineMaximum(int inst) const { return online[inst] >= 0 && kernel.insts[inst].op == KOp::kReduceMax; }
  bool IsInRegisters(int inst) const { return cached[inst] && row_place[inst] < 0; }
  bool IsInRow(int inst) const { return cached[inst] && row_place[inst] >= 0; }
  // Whether all pieces of a row are whole vectors, wherever the row begins.
  bool HasWholePieces() const {
    const int64_t size = kernel.sizes[vector_dim];
    return shift_buffer < 0 && !kernel.symbols.IsSymbolic(size) && size % lanes == 0;
  }
  // Of loops [begin, end), and pieces of them. Symbols count as their hints.
  int64_t Points(int begin, int end) const;
  int64_t Chunks(int begin, int end) const;
  int64_t ReducedChunks() const { return Chunks(num_kept, rank); }
  // Points that the pieces of a row may have to spare.
  int Extra() const { return shift_buffer >= 0 ? lanes - 1 : 0; }
  int64_t Hint(int64_t number) const { return kernel.symbols.Hint(number); }
  int64_t SizeHint(int dim) const { return Hint(kernel.sizes[dim]); }

 private:
  // How many adds a scatter does, and to how many elements from the first to the last. None where that is not known.
  struct Adds {
    int64_t points = 0, places = 0;
  };
  Adds AddsOf(int inst) const;
};

// `kernel` must verify and have work to do. `wide`: for more elements than kNarrowElements; chosen anyway where sizes say so. `batches`:
// with a function for batches, where the kernel can have one.
CudaPlan PlanCuda(const KernelIR& kernel, bool wide, bool batches = false, const CudaSchedule& schedule = {});

// Plans what each thread of `threads` keeps from pass to pass of a kernel whose loops are planned: `iterations`, `pass_needs` and what is
// `cached` where; partial sums of columns are kept, too.
void KeepValues(CudaPlan* plan, const CudaLaunch::Phase& threads);

// Whether the kernel has any kPartialSum.
bool HasPartialSums(const KernelIR& kernel);

// Of each symbol.
std::vector<int64_t> HintsOf(const KernelIR& kernel);

// Whether numbers of elements need 64 bits, with these values of symbols.
bool NeedsWide(const KernelIR& kernel, const int64_t* symbols);

}  // namespace lazuli::codegen
