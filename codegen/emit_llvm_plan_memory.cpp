// Which loads and stores of a kernel are asked for ahead of time, and which stores go past the caches.
#include <algorithm>

#include "codegen/emit_llvm_plan.h"

namespace lazuli::codegen {
namespace {

constexpr int kMinStreamedVector = 16;       // Bytes.
constexpr int64_t kMinStreamedVectors = 16;  // In a row.
constexpr int64_t kMinColumn = 64;           // Rows.
constexpr int64_t kMinRowPiece = 64;         // Bytes.
constexpr int64_t kMinPrefetched = 64 * 1024;
constexpr int64_t kMaxNextRow = 16 * 1024;  // Bytes of a row that the first-level cache holds besides the one that is worked on.
constexpr int64_t kGrowth = 64;             // Sizes that change may become so many times larger than what they were at first.

class MemoryPlanner {
 public:
  explicit MemoryPlanner(LoopPlan* plan) : plan_(plan) {}

  void Run(const Schedule& schedule) {
    ChoosePrefetches();
    ChooseStreams();
    if (schedule.prefetch == 0) plan_->prefetched.assign(num_insts(), false);
    if (schedule.stream == 0) plan_->streams.assign(num_insts(), false);
  }

 private:
  const KInst& inst(int i) const { return plan_->kernel.insts[i]; }
  int num_insts() const { return static_cast<int>(plan_->kernel.insts.size()); }

  bool IsRead(int64_t buffer) const {
    return std::any_of(plan_->kernel.insts.begin(), plan_->kernel.insts.end(),
                       [&](const KInst& i) { return (i.op == KOp::kLoad || i.op == KOp::kGather) && i.imm == buffer; });
  }

  // Whether the vector loop walks along the memory of a load or store, or down its columns, and no point of it comes twice.
  bool WalksOnce(int i) const {
    const c10::DimVector& strides = plan_->kernel.buffers[inst(i).imm].strides;
    if (strides[plan_->vector_dim] != 1 || (plan_->vector_dim != plan_->rank - 1 && !plan_->WalksColumns())) return false;
    return std::none_of(strides.begin(), strides.end(), [](int64_t stride) { return stride == 0; });
  }

  // Bytes that one iteration of a walk down columns takes.
  int64_t RowPiece(int i) const { return plan_->Step(plan_->vector_dim) * ElementBytes(inst(i).type); }

  // Whether what is asked for is what the loops come to next: what comes some lines further on in memory, or rows further down.
  bool WalksOn(int i) const {
    const c10::DimVector& strides = plan_->kernel.buffers[inst(i).imm].strides;
    if (plan_->WalksColumns()) return plan_->SizeHint(plan_->rank - 1) >= kMinColumn && RowPiece(i) >= kMinRowPiece;
    if (plan_->SizeHint(plan_->vector_dim) * ElementBytes(inst(i).type) >= 16 * kPrefetchBytes) return true;
    for (int d = 0; d + 1 < plan_->rank; ++d) {
      if (strides[d] != strides[d + 1] * plan_->kernel.sizes[d + 1]) return false;
    }
    return true;
  }

  // Of all points, or where sizes change of as many as there may be.
  int64_t PointsHint() const {
    const int64_t numel = plan_->kept_numel * plan_->reduced_numel;
    return plan_->Hint(numel) * (plan_->IsSymbolic(numel) ? kGrowth : 1);
  }

  void ChoosePrefetches() {
    plan_->prefetched.assign(num_insts(), false);
    int64_t bytes = 0;
    for (int i = 0; i < num_insts(); ++i) {
      const bool load = inst(i).op == KOp::kLoad && plan_->live[i];
      plan_->prefetched[i] = (load || (inst(i).op == KOp::kStore && !IsRead(inst(i).imm))) && WalksOnce(i) && WalksOn(i);
      bytes += plan_->prefetched[i] ? ElementBytes(inst(i).type) : 0;
    }
    if (plan_->Scatters() || PointsHint() * bytes < kMinPrefetched) plan_->prefetched.assign(num_insts(), false);
    plan_->next_row_pass.assign(num_insts(), -1);
    const auto is_prefetched_load = [&](int i) { return plan_->prefetched[i] && inst(i).op == KOp::kLoad; };
    int loads = 0;
    for (int i = 0; i < num_insts(); ++i) loads += is_prefetched_load(i) ? 1 : 0;
    for (int i = 0; i < num_insts(); ++i) {
      if (loads == 1 && is_prefetched_load(i)) plan_->next_row_pass[i] = NextRowPass(i);
    }
  }

  // The first pass waits for memory, and later ones, which find their row in the cache, compute: one of these asks for the next row. Rows
  // of several loads are more than can be under way meanwhile, and were slower for it.
  int NextRowPass(int i) const {
    const int64_t bytes = plan_->Hint(plan_->reduced_numel) * ElementBytes(inst(i).type);
    if (!plan_->VectorIsReduced() || plan_->num_kept == 0 || plan_->IsSplit() || bytes < kPrefetchBytes || bytes > kMaxNextRow) return -1;
    for (int pass = 1; pass < plan_->num_passes; ++pass) {
      if (plan_->IsComputedIn(i, pass)) return pass;
    }
    return -1;
  }

  // Whether all vectors of the store are aligned when the first one is.
  bool StaysAligned(int i) const {
    const c10::DimVector& strides = plan_->kernel.buffers[inst(i).imm].strides;
    return std::all_of(strides.begin(), strides.end() - 1,
                       [&](int64_t stride) { return plan_->IsSymbolic(stride) || stride % plan_->lanes == 0; });
  }

  void ChooseStreams() {
    plan_->streams.assign(num_insts(), false);
    if (plan_->WalksColumns()) return;
    const bool aligned_units = plan_->unit_dim != plan_->vector_dim || plan_->unit_chunk % plan_->lanes == 0;
    if (!aligned_units || plan_->SizeHint(plan_->vector_dim) < kMinStreamedVectors * plan_->lanes) return;
    for (int i = 0; i < num_insts(); ++i) {
      const bool wide = plan_->lanes * ElementBytes(inst(i).type) >= kMinStreamedVector;
      plan_->streams[i] = inst(i).op == KOp::kStore && plan_->prefetched[i] && wide && StaysAligned(i);
    }
    if (PointsHint() * plan_->StreamedBytes() < kStreamBytes) plan_->streams.assign(num_insts(), false);
  }

  LoopPlan* plan_;
};

}  // namespace

void PlanMemory(LoopPlan* plan, const Schedule& schedule) { MemoryPlanner(plan).Run(schedule); }

}  // namespace lazuli::codegen
