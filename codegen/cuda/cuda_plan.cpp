#include "codegen/cuda/cuda_plan.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "codegen/cuda/batch_table.h"
#include "codegen/cuda/cuda_turns.h"
#include "codegen/emit_llvm_canonical.h"
#include "codegen/emit_llvm_plan.h"

namespace lazuli::codegen {
namespace {

constexpr int kBlockThreads = 256;
constexpr int kMaxRowThreads = 1024;      // Of a row, where few registers do;
constexpr int kMaxHeavyRowThreads = 512;  // elsewhere, unless rows are too long for shared memory.
constexpr int kWarp = 32;
constexpr int kSharedBytes = 40960;       // Of a block.
constexpr int64_t kSplitIterations = 16;  // Of a thread, from which on splitting pays.
constexpr int kCombinedPieces = 8;        // Of columns, by a block of so many threads; fewer leave gaps between what they read.
constexpr int kMaxCombiningThreads = 512;
constexpr double kIdleShare = 0.2;
constexpr int64_t kFewScans = 32;        // Of which each gets a block, though others' elements are next to its own.
constexpr int64_t kMaxScanThreads = 32;  // Of one column.
constexpr int kMaxScanPoints = 8;
constexpr int64_t kSmallTurns = 8;  // Of each of so many threads.
constexpr int64_t kPiecesOfThread = 4, kShortRow = 8;
constexpr int64_t kFewWords = 32;  // Registers that are left for what is kept of a row where much is computed, or taken by that.
constexpr int64_t kMostWords = 255, kMultiprocessorWords = 65536;  // Registers of a thread, and of all that run at once.

int64_t PowerOfTwoFrom(int64_t value) {
  int64_t power = 1;
  while (power < value) power *= 2;
  return power;
}

class CudaPlanner {
 public:
  CudaPlanner(const KernelIR& kernel, bool wide, bool batches, const CudaSchedule& schedule) : batches_(batches) {
    plan_.schedule = schedule;
    plan_.kernel = CanonicalizeDomain(WithoutNeedlessReduction(kernel));
    plan_.rank = static_cast<int>(plan_.kernel.sizes.size());
    turns_ = RowsTakeTurns(plan_.kernel);
    if (turns_) plan_.kernel = WithRowsAsTurns(std::move(plan_.kernel));
    sums_columns_ = HasPartialSums(plan_.kernel);
    plan_.num_kept = plan_.rank - plan_.kernel.num_reduced;
    plan_.wide = wide || (kernel.symbols.empty() && NeedsWide(kernel, nullptr));
  }

  CudaPlan Run() {
    Stages();
    ChooseDirection();
    ChooseTiles();
    plan_.ChooseOwnPlaces(kSharedBytes);
    ChooseLanes();
    ChooseThreads();
    ChooseSplit();
    KeepValues(&plan_, threads_);
    Describe();
    return std::move(plan_);
  }

 private:
  const KInst& inst(int i) const { return plan_.kernel.insts[i]; }
  int num_insts() const { return static_cast<int>(plan_.kernel.insts.size()); }
  const KBuffer& buffer(int i) const { return plan_.kernel.buffers[inst(i).imm]; }
  bool Reduces() const { return plan_.kernel.num_reduced > 0; }

  void Stages() {
    plan_.FindStages();
    plan_.pass = plan_.store_pass;
    for (int i = 0; i < num_insts(); ++i) {
      if (plan_.live[i] && IsReduce(inst(i).op)) plan_.pass[i] = plan_.stage[i] - 1;
    }
  }

  // Bytes of memory that neighbouring threads move for each point, when they lie along `dim`.
  int64_t Traffic(int dim) const {
    int64_t bytes = 0;
    for (int i = 0; i < num_insts(); ++i) {
      if (!plan_.live[i] || !HasBuffer(inst(i).op) || !plan_.IsFull(i)) continue;
      bytes += std::min<int64_t>(32, std::abs(plan_.Hint(buffer(i).strides[dim])) * ElementBytes(inst(i).type));
    }
    return bytes;
  }

  void ChooseDirection() {
    plan_.rows = Reduces() && (plan_.num_kept == 0 || Traffic(plan_.rank - 1) <= Traffic(plan_.num_kept - 1) || HasFewScans());
    plan_.vector_dim = plan_.rows ? plan_.rank - 1 : plan_.num_kept - 1;
  }

  // A block for each scan goes on with more threads than one for all of them.
  bool HasFewScans() const { return plan_.has_scans && Points(0, plan_.num_kept) <= kFewScans; }

  // The loop that most transposed loads are contiguous along.
  void ChooseTiles() {
    plan_.tiled.assign(num_insts(), false);
    if (Reduces() || plan_.SizeHint(plan_.vector_dim) < kCudaTile / 2) return;
    int64_t most = 0;
    for (int d = 0; d < plan_.vector_dim; ++d) {
      int64_t bytes = 0;
      for (int i = 0; i < num_insts(); ++i) bytes += plan_.IsTransposed(i, d) ? ElementBytes(inst(i).type) : 0;
      if (bytes <= most || plan_.SizeHint(d) < kCudaTile / 2) continue;
      most = bytes;
      plan_.tile_dim = d;
    }
    if (plan_.tile_dim < 0) return;
    plan_.tile = std::min(plan_.SizeHint(plan_.vector_dim), plan_.SizeHint(plan_.tile_dim)) < kWideCudaTile ? kCudaTile : kWideCudaTile;
    for (int i = 0; i < num_insts(); ++i) {
      if (plan_.IsTransposed(i, plan_.tile_dim) && ElementBytes(inst(i).type) > 2) plan_.tile = kCudaTile;
    }
    int64_t shared = 0;
    for (int i = 0; i < num_insts(); ++i) {
      if (!plan_.IsTransposed(i, plan_.tile_dim)) continue;
      shared += plan_.tile * (plan_.tile + 1) * ElementBytes(inst(i).type);
      plan_.tiled[i] = shared <= kSharedBytes;
    }
  }

  // Whether the buffer's elements at multiples of `lanes` along the vector loop are as far apart as vectors of that many.
  bool FitsLanes(const KBuffer& buffer, int64_t lanes) const {
    for (int d = 0; d < plan_.rank; ++d) {
      if (d != plan_.vector_dim && plan_.Hint(buffer.strides[d]) % lanes != 0) return false;
    }
    return true;
  }

  int64_t Points(int begin, int end) const { return plan_.Points(begin, end); }

  void ChooseLanes() {
    const uint64_t all = (uint64_t{1} << plan_.rank) - 1;
    int64_t least = kCudaVectorBytes, most = 1, most_at_points = 1, allowed = plan_.tile_dim >= 0 ? 1 : kMaxCudaLanes;
    bool contiguous = false, apart = false;
    for (int i = 0; i < num_insts(); ++i) {
      if (!plan_.live[i] || !HasBuffer(inst(i).op) || !plan_.HasLanes(i) || inst(i).op == KOp::kPartialSum) continue;
      if (!plan_.IsContiguous(i)) {
        allowed = std::min(allowed, plan_.LanesApart(i));
        apart |= buffer(i).strides[plan_.vector_dim] != 0;
        continue;
      }
      contiguous = true;
      least = std::min<int64_t>(least, ElementBytes(inst(i).type));
      most = std::max<int64_t>(most, ElementBytes(inst(i).type));
      if (plan_.deps[i] == all) most_at_points = std::max<int64_t>(most_at_points, ElementBytes(inst(i).type));
    }
    int64_t lanes = contiguous ? std::min(allowed, kCudaVectorBytes / least) : 1;
    // What takes two accesses leaves gaps between those of neighbouring threads, so that the same sectors are asked for twice.
    while (lanes > 1 && (lanes * most_at_points > kCudaVectorBytes || lanes * most > 2 * kCudaVectorBytes)) lanes /= 2;
    if (lanes > 1 && !apart && !AllFit(lanes) && !sums_columns_) plan_.shift_buffer = plan_.BufferToShift(lanes);
    while (lanes > 1 && plan_.shift_buffer < 0 && !AllFit(lanes)) lanes /= 2;
    while (lanes > 1 && IsTooMuch(lanes)) lanes /= 2;
    if (plan_.schedule.lanes < 0 && lanes > 1 && !sums_columns_) lanes /= 2;
    plan_.lanes = static_cast<int>(lanes);
    if (lanes == 1) plan_.shift_buffer = -1;
  }

  bool AllFit(int64_t lanes) const {
    for (int i = 0; i < num_insts(); ++i) {
      const bool plain = inst(i).op == KOp::kLoad || inst(i).op == KOp::kStore;
      if (plan_.live[i] && plain && buffer(i).strides[plan_.vector_dim] == 1 && !FitsLanes(buffer(i), lanes)) return false;
    }
    return true;
  }

  // Whether threads would be too few, or have nothing to do.
  bool IsTooMuch(int64_t lanes) const {
    if (plan_.SizeHint(plan_.vector_dim) < lanes) return true;
    if (!Reduces()) return Points(0, plan_.rank) / lanes < kPlannedMultiprocessors * 2 * kBlockThreads;
    if (plan_.has_scans && !plan_.rows && Points(0, plan_.num_kept) / lanes < kPlannedMultiprocessors * kWarp) return true;
    return !plan_.rows && (plan_.SizeHint(plan_.vector_dim) < kWarp / 4 * lanes || IsMuchAtFewPoints());
  }

  int64_t KeptChunks() const { return plan_.Chunks(0, plan_.num_kept); }
  int64_t ReducedChunks() const { return plan_.ReducedChunks(); }

  void ChooseThreads() {
    CudaLaunch::Phase& launch = threads_;
    if (plan_.tile_dim >= 0) {
      launch.threads_x = plan_.tile;
      launch.threads_y = Scheduled(kBlockThreads) / plan_.tile;
    } else if (!Reduces()) {
      launch.threads_x = Scheduled(plan_.HasOwnPlaces() ? kAddingThreads : kBlockThreads);
    } else if (sums_columns_) {
      launch.threads_x = static_cast<int>(std::min<int64_t>(kBlockThreads, PowerOfTwoFrom(CeilDiv(ReducedChunks(), 4))));
      launch.threads_y = kBlockThreads / launch.threads_x;
    } else if (plan_.rows) {
      const bool is_long = Points(plan_.num_kept, plan_.rank) * WidestElement() > kRowBytes;
      const int64_t most = plan_.IsLight() || is_long ? kMaxRowThreads : kMaxHeavyRowThreads;
      int64_t threads = std::min<int64_t>(most, PowerOfTwoFrom(CeilDiv(ReducedChunks(), PiecesOfThread())));
      // So many that the GPU is full.
      while (threads < most && threads < ReducedChunks() && KeptChunks() * threads < kPlannedMultiprocessors * 512) threads *= 2;
      threads = Scheduled(static_cast<int>(threads));
      launch.threads_x = static_cast<int>(NoneIdle(threads));
      launch.threads_y = static_cast<int>(threads <= kWarp ? kBlockThreads / 2 / threads : 1);
    } else {
      const int64_t neighbours = HasManyShortColumns() ? kBlockThreads : kWarp;
      launch.threads_x = static_cast<int>(std::min<int64_t>(neighbours, PowerOfTwoFrom(KeptChunks())));
      while (launch.threads_x > kWarp / 2 && IdleShare(launch.threads_x) > kIdleShare) launch.threads_x /= 2;
      const int64_t most = (plan_.lanes == 1 && plan_.num_passes == 1 ? 2 : 1) * kBlockThreads / launch.threads_x;
      launch.threads_y = static_cast<int>(std::min<int64_t>(std::max<int64_t>(most, 1), PowerOfTwoFrom(CeilDiv(ReducedChunks(), 4))));
      launch.threads_y = std::min(Scheduled(launch.threads_y), kMaxRowThreads / launch.threads_x);
      if (HasManyShortColumns()) launch.threads_y = 1;
      if (plan_.has_scans) plan_.scan_points = kMaxScanPoints;
      if (plan_.has_scans && !HasManyShortColumns()) {
        ChooseScanPoints(&launch);
      } else if (IsMuchAtFewPoints()) {
        while (launch.threads_x > kCombinedPieces && KeptChunks() / launch.threads_x < kPlannedMultiprocessors) launch.threads_x /= 2;
        launch.threads_y = static_cast<int>(std::min<int64_t>(kMaxCombiningThreads / launch.threads_x, PowerOfTwoFrom(ReducedChunks())));
      } else if (IsSmallSum()) {
        launch.threads_x = kCombinedPieces;
        launch.threads_y = kMaxCombiningThreads / kCombinedPieces;
      }
      while (launch.threads_y > 1 && SharedBytes(launch) > kSharedBytes) launch.threads_y /= 2;
    }
    launch.kept_per_block = plan_.tile_dim >= 0 ? 1 : plan_.rows ? launch.threads_y : launch.threads_x;
    plan_.launch.reduced_threads = plan_.rows ? launch.threads_x : launch.threads_y;
  }

  // As many points of a column for each thread as it has registers for.
  void ChooseScanPoints(CudaLaunch::Phase* launch) {
    for (;; plan_.scan_points /= 2) {
      const int64_t turns = CeilDiv(ReducedChunks(), plan_.scan_points);
      launch->threads_y = static_cast<int>(std::min<int64_t>(kMaxScanThreads, PowerOfTwoFrom(turns)));
      const int64_t registers = std::min<int64_t>(kMostWords, kMultiprocessorWords / (launch->threads_x * launch->threads_y));
      if (plan_.scan_points == 1 || kFewWords + plan_.scan_points * WordsOfScannedPoint() <= registers) return;
    }
  }

  // What a thread holds of a point of a column: what it has read, and what it scans.
  int64_t WordsOfScannedPoint() const {
    int64_t bytes = 0;
    for (int i = 0; i < num_insts(); ++i) {
      const bool reads = inst(i).op == KOp::kLoad && plan_.HasLanes(i);
      if (plan_.live[i] && (reads || IsScan(inst(i).op))) bytes += ElementBytes(inst(i).type) * plan_.lanes;
    }
    return CeilDiv(bytes, 4);
  }

  // Fewer than `threads` where a row of known length, which is gone through several times, then takes as many turns, and each of them is
  // whole.
  int64_t NoneIdle(int64_t threads) const {
    if (threads <= kWarp || plan_.num_passes == 1 || plan_.has_scans || plan_.kernel.symbols.HasSymbol(plan_.kernel.sizes)) return threads;
    const int64_t chunks = ReducedChunks(), turns = CeilDiv(chunks, threads);
    return turns <= kMaxIterations && chunks % (turns * kWarp) == 0 ? chunks / turns : threads;
  }

  // Of a row: as many as a thread has registers for, and the whole row where it is short and there are many.
  int64_t PiecesOfThread() const {
    const bool once = plan_.num_passes == 1, many = KeptChunks() >= kPlannedMultiprocessors * 8 * kBlockThreads;
    if (many && once && ReducedChunks() <= kShortRow) return kShortRow;
    int64_t pieces = kPiecesOfThread;
    while (!once && !plan_.IsLight() && pieces > 1 && pieces * WordsOfPiece() > kFewWords) pieces /= 2;
    return pieces;
  }

  // Registers that keep what is loaded for a piece of a row.
  int64_t WordsOfPiece() const {
    int64_t bytes = 0;
    for (int i = 0; i < num_insts(); ++i) {
      if (!plan_.live[i] || !IsLoad(inst(i).op) || !plan_.IsFull(i) || !plan_.HasLanes(i)) continue;
      const int element = ElementBytes(inst(i).type);
      bytes += plan_.lanes * (element == 2 ? 2 : std::max(4, element));
    }
    return bytes / 4;
  }

  // So many columns that each thread can have some to itself: nothing has to be put together.
  bool HasManyShortColumns() const {
    return plan_.num_passes == 1 && KeptChunks() >= kPlannedMultiprocessors * 4 * kBlockThreads && ReducedChunks() <= kBlockThreads;
  }

  // Of blocks of `threads` pieces of columns, how much is past the last column.
  double IdleShare(int64_t threads) const {
    const double pieces = static_cast<double>(KeptChunks());
    return static_cast<double>(CeilDiv(KeptChunks(), threads) * threads) / pieces - 1;
  }

  // Few columns of a moderate length: many threads for each of them, in one launch.
  bool IsSmallSum() const {
    const int64_t most = kMaxCombiningThreads / kCombinedPieces;
    return KeptChunks() < kPlannedMultiprocessors * kCombinedPieces && ReducedChunks() >= most && ReducedChunks() <= most * kSmallTurns;
  }

  // Columns that leave a GPU's threads idle, while much is computed at each point: one for each thread is best.
  bool IsMuchAtFewPoints() const {
    return !plan_.rows && !plan_.has_scans && !sums_columns_ && !plan_.IsLight() &&
           Points(0, plan_.rank) < kPlannedMultiprocessors * 8 * kBlockThreads;
  }

  int Scheduled(int threads) const { return std::clamp(CudaSchedule::Shift(threads, plan_.schedule.threads), 1, kMaxRowThreads); }

  int64_t SharedBytes(const CudaLaunch::Phase& threads) const {
    int64_t bytes = 0;
    for (int i = 0; i < num_insts(); ++i) {
      if (!plan_.live[i] || !(IsReduce(inst(i).op) || IsScan(inst(i).op))) continue;
      bytes += (IsScan(inst(i).op) ? 2 : 1) * ElementBytes(inst(i).type) * plan_.lanes * threads.threads_x;
    }
    return bytes * threads.threads_y;
  }

  // Few kept points with much to reduce.
  void ChooseSplit() {
    CudaLaunch& launch = plan_.launch;
    if (turns_) launch.split = true;
    if (!Reduces() || !HasReductions(plan_.kernel) || plan_.has_scans || sums_columns_ || (!plan_.rows && IsSmallSum())) return;
    int64_t threads = launch.reduced_threads;
    if (plan_.rows) threads = std::min<int64_t>(threads, kBlockThreads);
    const int64_t blocks = CeilDiv(KeptChunks(), threads_.kept_per_block);
    if (blocks >= kPlannedMultiprocessors || ReducedChunks() < kSplitIterations * threads) return;
    launch.split = true;
    launch.reduced_threads = threads;
    if (plan_.rows) threads_.threads_x = static_cast<int>(threads);
  }

  // Bytes of the widest type that is loaded along rows.
  int64_t WidestElement() const {
    int64_t bytes = 0;
    for (int i = 0; i < num_insts(); ++i) {
      if (plan_.live[i] && IsLoad(inst(i).op) && plan_.IsFull(i)) bytes = std::max<int64_t>(bytes, ElementBytes(inst(i).type));
    }
    return bytes;
  }

  ChunkCount CountOf(int begin, int end) const {
    ChunkCount count;
    if (begin == end) return count;
    int64_t outer = 1;
    for (int d = begin; d < end - 1; ++d) outer *= d == plan_.tile_dim ? 1 : plan_.kernel.sizes[d];
    count.outer = plan_.kernel.symbols.Decode(outer);
    count.last = plan_.kernel.symbols.Decode(plan_.kernel.sizes[end - 1]);
    if (end - 1 == plan_.vector_dim) count.step = plan_.tile_dim >= 0 ? plan_.tile : plan_.lanes;
    if (end - 1 == plan_.vector_dim) count.extra = plan_.Extra();
    if (plan_.tile_dim >= 0) {
      count.tiled = plan_.kernel.symbols.Decode(plan_.kernel.sizes[plan_.tile_dim]);
      count.tile_step = plan_.tile;
    }
    return count;
  }

  void Describe() {
    CudaLaunch& launch = plan_.launch;
    launch.more_splits = plan_.schedule.splits;
    launch.fixed_blocks = sums_columns_ ? kPartialSums : 0;
    launch.kept = CountOf(0, plan_.num_kept);
    launch.reduced = CountOf(plan_.num_kept, plan_.rank);
    int64_t kept = 1;
    for (int d = 0; d < plan_.num_kept; ++d) kept *= plan_.kernel.sizes[d];
    launch.kept_points = plan_.kernel.symbols.Decode(kept);
    bool kept_effects = false;
    for (int i = 0; i < num_insts(); ++i) {
      if (launch.split && plan_.live[i] && IsReduce(inst(i).op)) launch.partial_bytes.push_back(ElementBytes(inst(i).type));
      kept_effects |= HasEffect(inst(i).op) && plan_.pass[i] < 0;
    }
    const std::string name = plan_.Name();
    const auto phase = [](CudaLaunch::Phase threads, std::string function, bool split) {
      threads.function = std::move(function);
      threads.split = split;
      return threads;
    };
    if (!launch.split) launch.phases = {phase(threads_, name, false)};
    for (int pass = 0; launch.split && pass < plan_.num_passes; ++pass)
      launch.phases.push_back(phase(threads_, absl::StrCat(name, "_", pass), true));
    if (launch.split && kept_effects) launch.phases.push_back(phase(CombiningThreads(), absl::StrCat(name, "_", plan_.num_passes), false));
    ChooseBatch();
  }

  // Of the function that puts the parts of columns together, one at a time (EmitCuda): few blocks for what may be hundreds of parts, so
  // many threads for each column.
  CudaLaunch::Phase CombiningThreads() const {
    CudaLaunch::Phase threads = threads_;
    if (plan_.rows) return threads;
    threads.threads_x = std::max(kCombinedPieces, plan_.lanes);
    threads.kept_per_block = threads.threads_x / plan_.lanes;
    threads.threads_y = kMaxCombiningThreads / threads.threads_x;
    while (threads.threads_y > 1 && SharedBytes(threads) / plan_.lanes > kSharedBytes) threads.threads_y /= 2;
    return threads;
  }

  // Of those that serve all sizes, and those of one element, which serve each optimizer's count of steps.
  void ChooseBatch() {
    CudaLaunch& launch = plan_.launch;
    if (!batches_ || plan_.HasOwnPlaces() || (Reduces() && !(launch.split && !turns_ && plan_.num_passes == 1)) || plan_.rank != 1 ||
        plan_.wide)
      return;
    const int64_t size = plan_.kernel.sizes[0];
    if (size != 1 && !plan_.kernel.symbols.IsSymbolic(size)) return;
    const int given = static_cast<int>(plan_.kernel.buffers.size()) + plan_.kernel.num_scalars + plan_.kernel.symbols.size();
    const int entries = BatchTable::Entries(given + launch.OwnArguments());
    if (entries < 2) return;
    launch.batch = launch.phases;
    for (CudaLaunch::Phase& phase : launch.batch) phase.function += "_batch";
    launch.batch_entries = entries;
  }

  CudaPlan plan_;
  CudaLaunch::Phase threads_;  // Of every function but one that only combines.
  const bool batches_;
  bool turns_ = false;  // The reduced loops are rows of a kernel that reduces nothing.
  bool sums_columns_ = false;
};

}  // namespace

CudaPlan PlanCuda(const KernelIR& kernel, bool wide, bool batches, const CudaSchedule& schedule) {
  return CudaPlanner(kernel, wide, batches, schedule).Run();
}

}  // namespace lazuli::codegen
