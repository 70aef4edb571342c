// What threads that go through rows keep from pass to pass: in registers, or in shared memory.
#include <algorithm>

#include "codegen/cuda/cuda_plan.h"
#include "codegen/cuda/online_sums.h"
#include "codegen/emit_llvm_plan.h"
#include "codegen/kernel_weight.h"

namespace lazuli::codegen {
namespace {

constexpr int kCacheWords = 64;          // Registers of a thread that keep values between passes,
constexpr int kCacheWordsOfMany = 32;    // in blocks of more than 512 threads.
constexpr int kCacheWordsWithSums = 80;  // where they keep sums of columns, too: what 256 threads twice on a multiprocessor have.
constexpr double kWorkSpared = 4;        // By keeping what is computed of several values instead of these, as Weight counts it.
constexpr int kFewIterations = 4;        // where shared memory holds the row, too, which leaves room for more blocks.
constexpr double kKeptWeight = 8;        // Weight of instructions that are rather kept than evaluated again.

class ValueKeeper {
 public:
  ValueKeeper(CudaPlan* plan, const CudaLaunch::Phase& threads)
      : plan_(*plan), threads_(threads), sums_columns_(HasPartialSums(plan->kernel)) {}

  void Run() {
    plan_.cached.assign(num_insts(), false);
    plan_.cache_pass.assign(num_insts(), -1);
    plan_.row_place.assign(num_insts(), -1);
    plan_.iterations = (plan_.num_passes > 1 || sums_columns_) && !plan_.has_scans ? KnownIterations() : 0;
    if (plan_.iterations > kFewIterations && !sums_columns_ && HasRoomForRows()) plan_.iterations = 0;
    // What is kept must change no bit of a result, so this is for rows that are never kept.
    ChooseOnlineSums(&plan_);
    cache_words_ = SummingWords();
    FindNeeds();
    if (cache_words_ != 0) return;
    plan_.iterations = 0;
    FindNeeds();
  }

 private:
  const KInst& inst(int i) const { return plan_.kernel.insts[i]; }
  int num_insts() const { return static_cast<int>(plan_.kernel.insts.size()); }

  // Whether threads go through whole rows, of a length that is known.
  bool HasKnownRows() const {
    bool known = plan_.rows && !plan_.launch.split;
    for (int d = plan_.num_kept; d < plan_.rank; ++d) known = known && !plan_.kernel.symbols.IsSymbolic(plan_.kernel.sizes[d]);
    return known;
  }

  // Iterations of a row's loop when their number is known and small.
  int KnownIterations() const {
    if (!HasKnownRows()) return 0;
    const int64_t iterations = CeilDiv(plan_.ReducedChunks(), threads_.threads_x);
    return iterations <= kMaxIterations ? static_cast<int>(iterations) : 0;
  }

  // Bytes of shared memory that a row of what is loaded takes; 0: none can be there.
  int64_t BytesOfRow(int i) const {
    const bool has_row = HasKnownRows() && threads_.threads_y == 1 && plan_.lanes > 1 && plan_.HasWholePieces();
    if (!has_row || !plan_.IsVectorLoad(i) || !plan_.HasLanes(i)) return 0;
    const int64_t bytes = plan_.ReducedChunks() * plan_.lanes * ElementBytes(inst(i).type);
    return bytes % kCudaVectorBytes == 0 ? bytes : 0;
  }

  // Whether shared memory has room for all that is loaded along a row.
  bool HasRoomForRows() const {
    int64_t all = 0;
    for (int i = 0; i < num_insts(); ++i) {
      if (!plan_.live[i] || !IsLoad(inst(i).op) || !plan_.IsFull(i)) continue;
      const int64_t bytes = BytesOfRow(i);
      if (bytes == 0) return false;
      all += bytes;
    }
    return all <= kRowBytes;
  }

  // Rows that registers do not hold: what is loaded, while there is room.
  bool TryRow(int i, int first_pass) {
    const int64_t bytes = BytesOfRow(i);
    if (bytes == 0 || plan_.launch.row_bytes + bytes > kRowBytes) return false;
    plan_.row_place[i] = plan_.launch.row_bytes;
    plan_.launch.row_bytes += bytes;
    plan_.cached[i] = true;
    plan_.cache_pass[i] = first_pass;
    return true;
  }

  // What a pass would rather have kept than load or compute again.
  bool IsWorthKeeping(int i) const { return IsLoad(inst(i).op) || Weight(inst(i)) >= kKeptWeight; }

  // Registers of a thread that keep a value from pass to pass.
  int WordsKept(int i) const {
    const int bytes = plan_.IsPacked(i) && threads_.threads_x <= 512 ? 2 : std::max(4, ElementBytes(inst(i).type));
    return plan_.iterations * plan_.lanes * bytes / 4;
  }

  // Whether the value takes no more registers than what it would be computed of again, which nothing else keeps, and spares some work.
  bool StandsForMore(int i) const {
    std::vector<int> made = {i};
    std::vector<bool> seen(num_insts(), false);
    double work = 0;
    int words = 0;
    for (size_t next = 0; next < made.size(); ++next) {
      const int at = made[next];
      work += Weight(inst(at));
      for (int k = 0; k < KOpArity(inst(at).op); ++k) {
        const int operand = inst(at).in[k];
        if (seen[operand] || !plan_.IsFull(operand) || plan_.cached[operand] || !plan_.HasLanes(operand)) continue;
        seen[operand] = true;
        if (IsWorthKeeping(operand)) {
          words += WordsKept(operand);
        } else {
          made.push_back(operand);
        }
      }
    }
    return WordsKept(i) <= words && work >= kWorkSpared;
  }

  bool TryCache(int i, int first_pass) {
    if (plan_.cached[i] || plan_.schedule.keep < 0) return plan_.cached[i];
    if (plan_.iterations == 0) return TryRow(i, first_pass);
    const bool worth = IsWorthKeeping(i) || StandsForMore(i);
    if (!worth || !plan_.HasLanes(i)) return false;
    // What is the same for all rows is at hand anyway.
    if (sums_columns_ && (plan_.deps[i] >> plan_.num_kept << plan_.num_kept) == plan_.deps[i]) return false;
    const int words = WordsKept(i);
    const int most = threads_.threads_x > 512 ? kCacheWordsOfMany : sums_columns_ ? kCacheWordsWithSums : kCacheWords;
    if (cache_words_ + words > most) return false;
    cache_words_ += words;
    plan_.cached[i] = true;
    plan_.cache_pass[i] = first_pass;
    return true;
  }

  // Few rows are under way at a time where columns are summed: the first pass loads what later ones need, too.
  std::vector<bool> LoadedAtOnce() {
    std::vector<bool> loaded(num_insts(), false);
    const bool helps = sums_columns_ && plan_.iterations > 0 && plan_.num_passes > 1;
    for (int i = 0; helps && i < num_insts(); ++i) {
      loaded[i] = plan_.live[i] && inst(i).op == KOp::kLoad && plan_.IsFull(i) && TryCache(i, 0);
    }
    return loaded;
  }

  // Registers of a thread that keep sums of columns.
  int SummingWords() const {
    int words = 0;
    for (const KInst& inst : plan_.kernel.insts) {
      if (inst.op == KOp::kPartialSum) words += plan_.iterations * plan_.lanes * ElementBytes(inst.type) / 4;
    }
    return words;
  }

  void FindNeeds() {
    plan_.pass_needs.clear();
    std::vector<int> first_pass(num_insts());
    const std::vector<bool> none(num_insts(), false), at_once = LoadedAtOnce();
    for (int i = 0; i < num_insts(); ++i) first_pass[i] = at_once[i] ? 0 : -1;
    for (int pass = 0; pass < plan_.num_passes; ++pass) {
      std::vector<bool> needs = pass == 0 ? at_once : none;
      for (int i = num_insts() - 1; i >= 0; --i) {
        if (!needs[i] && !(plan_.live[i] && plan_.pass[i] == pass)) continue;
        if (needs[i] && first_pass[i] >= 0 && TryCache(i, first_pass[i])) continue;
        if (needs[i] && first_pass[i] < 0) first_pass[i] = pass;
        for (int k = 0; k < KOpArity(inst(i).op); ++k) {
          const int operand = plan_.IsOnlineSum(i) ? inst(plan_.online[i]).in[0] : inst(i).in[k];
          if (plan_.IsFull(operand)) needs[operand] = true;
        }
      }
      plan_.pass_needs.push_back(std::move(needs));
    }
  }

  CudaPlan& plan_;
  const CudaLaunch::Phase& threads_;
  const bool sums_columns_;
  int cache_words_ = 0;
};

}  // namespace

void KeepValues(CudaPlan* plan, const CudaLaunch::Phase& threads) { ValueKeeper(plan, threads).Run(); }

}  // namespace lazuli::codegen
