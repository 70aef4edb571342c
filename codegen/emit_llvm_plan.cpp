#include "codegen/emit_llvm_plan.h"

#include <algorithm>
#include <cmath>

#include "codegen/emit_llvm_canonical.h"

namespace lazuli::codegen {
namespace {

// Rough costs in nanoseconds. Only ratios between choices and the sizes of parallel chunks depend on them, never values.
constexpr double kNsPerVectorOp = 0.3;
constexpr double kNsPerByte = 0.03;
constexpr double kUnitNs = 500;
constexpr double kSplitNs = 8000;
constexpr double kMinSplitTotalNs = 24000;
constexpr int64_t kAnyLength = int64_t{1} << 32;  // Sums over a size that changes are prepared for long ones.
constexpr int64_t kMaxSplits = 64;
constexpr int64_t kEnoughUnits = 16;
// Units that walk down neighbouring columns one after another find the pages' addresses and the ends of lines still at hand when they
// turn back after so many rows.
constexpr int64_t kColumnRows = 256;
constexpr int64_t kNarrowRow = 128;  // Bytes. Narrower ones take less than to look whose they are.
constexpr int64_t kWideRow = 512;    // It is worth it for two threads to look whose these are, and for narrower ones for kScanThreads.
constexpr int kScanThreads = 4;
constexpr int64_t kParts = 256;       // Of what is scattered.
constexpr int64_t kMinColumns = 256;  // Of a row that is written in several pieces.
constexpr int64_t kCacheBytes = 32 * 1024;
constexpr double kCacheWorth = 12;  // Vector operations above which a value is kept rather than recomputed.

class LoopPlanner {
 public:
  LoopPlanner(const KernelIR& kernel, const IsaInfo& isa, const Schedule& schedule) : isa_(isa), schedule_(schedule) {
    plan_.kernel = CanonicalizeDomain(kernel);
    plan_.rank = static_cast<int>(plan_.kernel.sizes.size());
    plan_.num_kept = plan_.rank - plan_.kernel.num_reduced;
    for (int d = 0; d < plan_.rank; ++d) (d < plan_.num_kept ? plan_.kept_numel : plan_.reduced_numel) *= plan_.kernel.sizes[d];
  }

  LoopPlan Run() {
    plan_.FindStages();
    ChooseLanes();
    ChooseVectorDim();
    ScatterRows();
    Tile();
    ChooseUnroll();
    ChooseSplits();
    ChooseCascade();
    Splats();
    Passes();
    ChooseUnits();
    PlanMemory(&plan_, schedule_);
    PlanDivisions(&plan_, isa_);
    return std::move(plan_);
  }

 private:
  const KInst& inst(int i) const { return plan_.kernel.insts[i]; }
  int num_insts() const { return static_cast<int>(plan_.kernel.insts.size()); }
  uint64_t KeptMask() const { return (uint64_t{1} << plan_.num_kept) - 1; }

  void ChooseLanes() {
    bool four = false, eight = false;
    for (int i = 0; i < num_insts(); ++i) {
      if (!plan_.live[i]) continue;
      four |= ElementBytes(inst(i).type) == 4;
      eight |= ElementBytes(inst(i).type) == 8;
    }
    plan_.lanes = isa_.vector_bytes / (four ? 4 : eight ? 8 : 2) / (schedule_.narrow != 0 ? 2 : 1);
  }

  // Whether the instruction is evaluated (or accumulated) at every point, rather than once per kept point.
  bool AtEveryPoint(int i) const { return plan_.live[i] && (plan_.kernel.num_reduced == 0 || plan_.IsFull(i) || IsReduce(inst(i).op)); }

  // Whether the elements of a vector along `dim` go to neighbouring places.
  bool ScattersVectors(int i, int dim) const {
    const uint64_t deps = plan_.deps[inst(i).in[1]] | plan_.deps[inst(i).in[2]];
    return dim < plan_.num_kept && (deps >> dim & 1) == 0 && plan_.kernel.buffers[inst(i).imm].strides[dim] == 1;
  }

  // Vector operations per vector of points when dimension `dim` is vectorised.
  double VectorCost(int dim) const {
    double cost = 0;
    for (int i = 0; i < num_insts(); ++i) {
      if (!AtEveryPoint(i)) continue;
      cost += Weight(inst(i));
      if (IsScan(inst(i).op) && dim >= plan_.num_kept) cost += 2 * std::log2(plan_.lanes);
      if (!HasBuffer(inst(i).op)) continue;
      const int64_t stride = plan_.kernel.buffers[inst(i).imm].strides[dim];
      if (IsScatter(inst(i).op)) {
        cost += ScattersVectors(i, dim) ? 2 : 4 * plan_.lanes;
        continue;
      }
      const bool scattered = inst(i).op == KOp::kGather && (plan_.deps[inst(i).in[0]] >> dim & 1) != 0;
      const bool near = inst(i).op == KOp::kLoad && stride > 1 && stride <= kNearStride && !plan_.IsSymbolic(stride);
      if (scattered || (stride != 0 && stride != 1)) cost += near ? 2 * static_cast<double>(stride) : plan_.lanes;
    }
    return cost;
  }

  double Vectors(int64_t size) const { return std::ceil(static_cast<double>(size) / plan_.lanes); }

  void ChooseVectorDim() {
    plan_.vector_dim = plan_.rank - 1;
    if (plan_.kernel.num_reduced == 0 || plan_.num_kept == 0) return;
    int reduces = 0;
    for (int i = 0; i < num_insts(); ++i) reduces += plan_.live[i] && IsReduce(inst(i).op) ? 1 : 0;
    const int last_kept = plan_.num_kept - 1;
    const int64_t row = plan_.SizeHint(plan_.rank - 1);
    const int64_t column = plan_.SizeHint(last_kept);
    if (row == 0 || column == 0) return;
    const double per_row = 12.0 * reduces + 4;  // Collapsing a vector into one number.
    const double row_cost = static_cast<double>(column) * (Vectors(row) * VectorCost(plan_.rank - 1) + per_row);
    const double column_cost = static_cast<double>(row) * Vectors(column) * VectorCost(last_kept);
    if (column_cost < row_cost) plan_.vector_dim = last_kept;
  }

  // The one scatter of a kernel that does nothing else at every point but check; -1: it is another kernel.
  int OnlyScatter() const {
    int scatter = -1;
    for (int i = 0; i < num_insts(); ++i) {
      if (!plan_.live[i] || inst(i).op == KOp::kCheck) continue;
      if (IsScatter(inst(i).op) && scatter < 0) {
        scatter = i;
      } else if (HasEffect(inst(i).op) || IsReduce(inst(i).op) || IsScan(inst(i).op)) {
        return -1;
      }
    }
    return scatter;
  }

  int64_t RowBytes(int scatter) const { return plan_.SizeHint(plan_.vector_dim) * ElementBytes(inst(scatter).type); }

  // Rows are written one after another, rather than a block of columns of all of them.
  void ScatterRows() {
    const int scatter = OnlyScatter();
    if (scatter < 0 || plan_.VectorIsReduced() || !ScattersVectors(scatter, plan_.vector_dim) || RowBytes(scatter) < kNarrowRow) return;
    MoveColumnsInside(&plan_.kernel);
    --plan_.num_kept;
    plan_.scatters_rows = true;
    plan_.vector_dim = plan_.rank - 1;
    plan_.kept_numel = plan_.reduced_numel = 1;
    for (int d = 0; d < plan_.rank; ++d) (d < plan_.num_kept ? plan_.kept_numel : plan_.reduced_numel) *= plan_.kernel.sizes[d];
    plan_.FindStages();
  }

  // Returns whether units are parts.
  bool ChooseParts() {
    if (OnlyScatter() < 0 || !plan_.VectorIsReduced() || (!plan_.scatters_rows && plan_.Hint(plan_.kept_numel) >= kEnoughUnits))
      return false;
    plan_.num_parts = kParts;
    if (!plan_.scatters_rows || RowBytes(OnlyScatter()) < kWideRow) plan_.min_threads = kScanThreads;
    plan_.scattered_offset = inst(OnlyScatter()).in[1];
    if (plan_.scatters_rows) {
      const int64_t columns = plan_.SizeHint(plan_.vector_dim);
      plan_.column_chunk = std::max(kMinColumns, RoundUp((columns + kEnoughUnits - 1) / kEnoughUnits, plan_.lanes * plan_.unroll));
    }
    plan_.unit_dim = std::max(0, plan_.num_kept - 1);
    plan_.unit_chunk = 1;
    plan_.unit_ns = TotalNs() / static_cast<double>(std::max<int64_t>(1, plan_.UnitsHint()));
    return true;
  }

  void Tile() {
    plan_.packed.assign(num_insts(), false);
    if (plan_.kernel.num_reduced == 0) plan_.tiled_size = TileTransposedLoads(&plan_.kernel, plan_.lanes);
    if (plan_.tiled_size == 0) return;
    plan_.vector_dim = plan_.rank - 1;
    plan_.num_kept = ++plan_.rank;
    plan_.FindStages();
    for (int i = 0; i < num_insts(); ++i) {
      if (inst(i).op != KOp::kLoad || !plan_.live[i]) continue;
      const c10::DimVector& strides = plan_.kernel.buffers[inst(i).imm].strides;
      plan_.packed[i] = strides[plan_.rank - 1] == 1 && strides[plan_.vector_dim] != 0 && strides[plan_.vector_dim] != 1;
    }
  }

  double PointWeight() const {
    double weight = 0;
    for (int i = 0; i < num_insts(); ++i) {
      if (AtEveryPoint(i)) weight += Weight(inst(i));
    }
    return weight;
  }

  void ChooseUnroll() {
    const double weight = PointWeight();
    const bool reduction = plan_.kernel.num_reduced > 0;
    int unroll = weight <= 10 ? 4 : weight <= 24 ? 2 : 1;
    // Wider blocks of columns make longer contiguous runs out of strided rows.
    if (reduction && !plan_.VectorIsReduced()) unroll = weight <= 3 ? 16 : weight <= 6 ? 8 : weight <= 16 ? 4 : weight <= 40 ? 2 : 1;
    // So that what is accumulated waits for itself less often.
    if (reduction && plan_.VectorIsReduced() && weight <= 40) unroll = 4;
    if (schedule_.unroll > 0) unroll = schedule_.unroll;
    if (plan_.IsTiled()) unroll = 1;  // Keeps tiles small.
    while (unroll > 1 && plan_.lanes * unroll > plan_.SizeHint(plan_.vector_dim)) unroll /= 2;
    plan_.unroll = unroll;
  }

  // Estimated time of all passes over one point.
  double PointNs() const {
    double bytes = 0;
    for (int i = 0; i < num_insts(); ++i) {
      if (AtEveryPoint(i) && HasBuffer(inst(i).op) && inst(i).op != KOp::kCheck) bytes += ElementBytes(inst(i).type);
    }
    const double size = static_cast<double>(std::max<int64_t>(1, plan_.SizeHint(plan_.vector_dim)));
    const double utilisation = size / (std::ceil(size / plan_.lanes) * plan_.lanes);
    return kNsPerVectorOp * VectorCost(plan_.vector_dim) / (plan_.lanes * std::max(utilisation, 0.01)) + kNsPerByte * bytes;
  }

  double TotalNs() const {
    return PointNs() * static_cast<double>(plan_.Hint(plan_.kept_numel)) * static_cast<double>(plan_.Hint(plan_.reduced_numel));
  }

  // Whether units walk down columns, several side by side.
  bool TakesPiecesOfRows() const {
    return plan_.WalksColumns() && plan_.num_passes == 1 && plan_.SizeHint(plan_.vector_dim) > plan_.Step(plan_.vector_dim);
  }

  void ChooseSplits() {
    if (plan_.kernel.num_reduced == 0 || plan_.kept_numel == 0 || plan_.reduced_numel == 0 || plan_.Scatters() || plan_.has_scans) return;
    int64_t units = plan_.Hint(plan_.kept_numel);
    if (!plan_.VectorIsReduced()) {
      const int64_t size = plan_.SizeHint(plan_.vector_dim);
      const int64_t block = plan_.lanes * plan_.unroll;
      units = units / size * ((size + block - 1) / block);
    }
    const double total = TotalNs();
    if (total < kMinSplitTotalNs || units >= kEnoughUnits) return;
    int64_t wanted = std::min<int64_t>(kMaxSplits, static_cast<int64_t>(total / kSplitNs)) / units;
    if (TakesPiecesOfRows()) wanted = std::max(wanted, std::min(kMaxSplits, plan_.Hint(plan_.reduced_numel) / kColumnRows));
    if (wanted < 2) return;
    int best = plan_.num_kept;
    for (int d = plan_.num_kept; d < plan_.rank && plan_.SizeHint(best) < wanted; ++d) {
      if (plan_.SizeHint(d) > plan_.SizeHint(best)) best = d;
    }
    const int64_t size = plan_.SizeHint(best);
    const int64_t multiple = best == plan_.vector_dim ? plan_.lanes * plan_.unroll : 1;
    const int64_t chunk = RoundUp((size + wanted - 1) / wanted, multiple);
    const int64_t splits = (size + chunk - 1) / chunk;
    if (splits < 2) return;
    plan_.split_dim = best;
    plan_.split_multiple = multiple;
    plan_.num_splits = splits;
  }

  void ChooseCascade() {
    bool has_sum = false;
    for (int i = 0; i < num_insts(); ++i) has_sum |= plan_.live[i] && inst(i).op == KOp::kReduceSum && c10::isFloatingType(inst(i).type);
    if (!has_sum) return;
    int64_t iterations = 1;
    for (int d = plan_.rank - 1; d >= plan_.num_kept; --d) {
      const int64_t step = plan_.Step(d);
      int64_t size = plan_.IsSymbolic(plan_.kernel.sizes[d]) ? kAnyLength : plan_.kernel.sizes[d];
      if (d == plan_.split_dim) size = RoundUp((size + plan_.num_splits - 1) / plan_.num_splits, plan_.split_multiple);
      const int64_t here = (size + step - 1) / step;
      if (iterations * here > kCascadeBlock) {
        plan_.cascade_dim = d;
        plan_.cascade_block = std::max<int64_t>(1, kCascadeBlock / iterations);
        return;
      }
      iterations *= here;
    }
  }

  static int64_t PowerOfTwoUpTo(int64_t value) {
    int64_t power = 1;
    while (power * 2 <= value) power *= 2;
    return power;
  }

  static int64_t RoundUp(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

  void Splats() {
    plan_.needs_splat.assign(num_insts(), false);
    for (int i = 0; i < num_insts(); ++i) {
      if (!plan_.live[i]) continue;
      const bool vector_use = !plan_.IsUniform(i) || (IsReduce(inst(i).op) && plan_.VectorIsReduced());
      for (int k = 0; vector_use && k < KOpArity(inst(i).op); ++k) {
        if (plan_.IsUniform(inst(i).in[k])) plan_.needs_splat[inst(i).in[k]] = true;
      }
    }
  }

  // Elements of the row cache that one value takes.
  int64_t CacheElements() const {
    int64_t elements = 1;
    for (int d = plan_.num_kept; d < plan_.rank; ++d) {
      const int64_t size = plan_.SizeHint(d);
      elements *= d == plan_.vector_dim ? RoundUp(size, plan_.lanes) : size;
      if (elements > kCacheBytes) return elements;
    }
    return plan_.VectorIsReduced() ? elements : elements * plan_.lanes * plan_.unroll;
  }

  bool TryCache(int i, int pass, const std::vector<double>& slice_cost) {
    const uint64_t reduced = ((uint64_t{1} << plan_.rank) - 1) & ~KeptMask();
    if (plan_.IsSplit() || slice_cost[i] < kCacheWorth) return false;
    if ((plan_.deps[i] & reduced) != reduced || plan_.IsUniform(i)) return false;
    if (!plan_.cached[i]) {
      const int64_t bytes = RoundUp(CacheElements() * ElementBytes(inst(i).type), 64);
      if (cache_bytes_ + bytes > kCacheBytes) return false;
      plan_.cached[i] = true;
      cache_bytes_ += bytes;
      plan_.cache_pass[i] = pass;
    }
    return true;
  }

  void Passes() {
    plan_.cached.assign(num_insts(), false);
    plan_.cache_pass.assign(num_insts(), -1);
    std::vector<double> slice_cost(num_insts(), 0);
    std::vector<int> first_pass(num_insts(), -1);
    for (int i = 0; i < num_insts(); ++i) {
      if (!plan_.IsFull(i)) continue;
      slice_cost[i] = Weight(inst(i));
      for (int k = 0; k < KOpArity(inst(i).op); ++k) slice_cost[i] = std::min(1e6, slice_cost[i] + slice_cost[inst(i).in[k]]);
    }
    for (int pass = 0; pass < plan_.num_passes; ++pass) {
      std::vector<bool> needs(num_insts(), false);
      for (int i = num_insts() - 1; i >= 0; --i) {
        const bool is_root = plan_.live[i] && (plan_.store_pass[i] == pass || (IsReduce(inst(i).op) && plan_.stage[i] == pass + 1));
        if (!is_root && !needs[i]) continue;
        if (needs[i] && first_pass[i] >= 0 && TryCache(i, first_pass[i], slice_cost)) continue;
        if (first_pass[i] < 0) first_pass[i] = pass;
        for (int k = 0; k < KOpArity(inst(i).op); ++k) {
          if (plan_.IsFull(inst(i).in[k])) needs[inst(i).in[k]] = true;
        }
      }
      plan_.pass_needs.push_back(std::move(needs));
    }
  }

  void ChooseUnits() {
    const int64_t vector_block = plan_.lanes * plan_.unroll;
    if (ChooseParts()) return;
    if (plan_.num_kept == 0) {
      plan_.unit_ns = TotalNs() / static_cast<double>(plan_.num_splits);
      return;
    }
    const double point_ns = PointNs() * static_cast<double>(plan_.Hint(plan_.reduced_numel)) / static_cast<double>(plan_.num_splits);
    double inner_ns = std::max(point_ns, 1e-3);
    plan_.unit_dim = 0;
    plan_.unit_chunk = std::max<int64_t>(plan_.SizeHint(0), 1);
    // Kept loops inside the vector loop stay whole.
    const int innermost = std::min(plan_.num_kept - 1, plan_.vector_dim);
    for (int d = plan_.num_kept - 1; d > innermost; --d) inner_ns *= static_cast<double>(plan_.SizeHint(d));
    for (int d = innermost; d >= 0; --d) {
      const int64_t size = plan_.SizeHint(d);
      if (plan_.IsSplit() || inner_ns * static_cast<double>(size) >= kUnitNs) {
        int64_t chunk = plan_.IsSplit() ? 1 : std::max<int64_t>(1, static_cast<int64_t>(std::ceil(kUnitNs / inner_ns)));
        if (d == plan_.vector_dim) chunk = RoundUp(chunk, vector_block);
        plan_.unit_chunk = PowerOfTwoUpTo(chunk);  // So that units end where blocks of a matrix's rows do.
        plan_.unit_dim = d;
        break;
      }
      if (d > 0) inner_ns *= static_cast<double>(size);
    }
    plan_.unit_ns = inner_ns * static_cast<double>(std::min(plan_.unit_chunk, plan_.SizeHint(plan_.unit_dim)));
  }

  IsaInfo isa_;
  Schedule schedule_;
  LoopPlan plan_;
  int64_t cache_bytes_ = 0;
};

}  // namespace

int LoopPlan::Depth(int inst) const {
  int depth = 0;
  for (uint64_t bits = deps[inst]; bits != 0; bits >>= 1) ++depth;
  return depth;
}

UnitCount LoopPlan::Units() const {
  UnitCount units;
  if (IsParted()) {
    units.outer = kernel.symbols.Decode(kept_numel * num_parts);
    if (scatters_rows) units.size = kernel.symbols.Decode(kernel.sizes[vector_dim]);
    units.chunk = column_chunk;
    return units;
  }
  if (num_kept == 0) return units;
  int64_t outer = 1;
  for (int d = 0; d < unit_dim; ++d) outer *= kernel.sizes[d];
  units.outer = kernel.symbols.Decode(outer);
  units.size = kernel.symbols.Decode(kernel.sizes[unit_dim]);
  units.chunk = unit_chunk;
  return units;
}

int64_t UnitCount::CountHint(const runtime::SymbolTable& symbols) const {
  std::vector<int64_t> hints;
  for (int i = 0; i < symbols.size(); ++i) hints.push_back(symbols.hint(i));
  return Count(hints.data());
}

int64_t LoopPlan::UnitsHint() const { return Units().CountHint(kernel.symbols); }

bool LoopPlan::Scatters() const {
  return std::any_of(kernel.insts.begin(), kernel.insts.end(), [](const KInst& inst) { return IsScatter(inst.op); });
}

int64_t LoopPlan::StreamedBytes() const {
  int64_t bytes = 0;
  for (size_t i = 0; i < streams.size(); ++i) bytes += streams[i] ? ElementBytes(kernel.insts[i].type) : 0;
  return bytes;
}

LoopPlan PlanLoops(const KernelIR& kernel, const IsaInfo& isa, const Schedule& schedule) {
  return LoopPlanner(kernel, isa, schedule).Run();
}

int ElementBytes(c10::ScalarType type) { return static_cast<int>(c10::elementSize(type)); }

}  // namespace lazuli::codegen
