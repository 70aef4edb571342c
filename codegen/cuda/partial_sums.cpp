#include "codegen/cuda/partial_sums.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "codegen/cuda/cuda_plan.h"

namespace lazuli::codegen {
namespace {

// Fewer rows for each part are too few: parts have to be written, and read again.
constexpr int64_t kLeastRowsOfPart = 7;
// Of a row, by one thread that keeps the sums of their columns.
constexpr int kMostSummedPoints = 16;

// Whether threads can keep what the kernel adds up.
bool CanAddUpColumns(const KernelIR& kernel) {
  const CudaPlan plan = PlanCuda(kernel, /*wide=*/false);
  return plan.rows && plan.kernel.num_reduced == 1 && plan.iterations > 0 && plan.iterations * plan.lanes <= kMostSummedPoints;
}

class Joiner {
 public:
  Joiner(const LoweredGroup& rows, const LoweredGroup& columns, int first_partial)
      : columns_(columns), merged_(rows), next_partial_(first_partial) {}

  bool Run() {
    if (!MapDimensions() || !IsSumOfPoints() || !MemoryFits() || !AddPoints()) return false;
    if (!MakeCombining()) return false;
    return VerifyKernel(merged_.kernel).ok() && VerifyKernel(combining_.kernel).ok() && CanAddUpColumns(merged_.kernel);
  }

  LoweredGroup& merged() { return merged_; }
  LoweredGroup& combining() { return combining_; }
  const std::vector<int64_t>& partial_bytes() const { return partial_bytes_; }

 private:
  const KernelIR& from() const { return columns_.kernel; }
  KernelIR& into() { return merged_.kernel; }
  int rank() const { return static_cast<int>(from().sizes.size()); }
  int num_kept() const { return rank() - from().num_reduced; }
  bool IsFull(int i) const { return (stages_.deps[i] >> num_kept()) != 0; }

  // The number that `number` of the columns' kernel is in the rows'. None: a symbol that these do not have, or what would be one there.
  std::optional<int64_t> Mapped(int64_t number) const {
    if (!from().symbols.IsSymbolic(number)) {
      return merged_.kernel.symbols.IsSymbolic(number) ? std::nullopt : std::make_optional(number);
    }
    const runtime::Product product = from().symbols.Decode(number);
    const int64_t named = columns_.symbols[product.symbols[0]];
    const auto found = std::find(merged_.symbols.begin(), merged_.symbols.end(), named);
    if (product.symbols.size() != 1 || product.coefficient != 1 || found == merged_.symbols.end()) return std::nullopt;
    return merged_.kernel.symbols.prime(static_cast<int>(found - merged_.symbols.begin()));
  }

  // One number for each dimension of the rows' kernel, whose kept dimensions are the columns' reduced ones.
  template <class List>
  std::optional<c10::DimVector> Turned(const List& list) const {
    c10::DimVector turned;
    for (int d = 0; d < rank(); ++d) {
      const std::optional<int64_t> number = Mapped(list[(d + num_kept()) % rank()]);
      if (!number.has_value()) return std::nullopt;
      turned.push_back(*number);
    }
    return turned;
  }

  bool MapDimensions() {
    if (from().num_reduced == 0 || merged_.kernel.num_reduced != num_kept() || !HasReductions(merged_.kernel)) return false;
    if (Turned(from().sizes) != merged_.kernel.sizes) return false;
    int64_t rows = 1;
    for (int d = num_kept(); d < rank(); ++d) rows *= from().symbols.Hint(from().sizes[d]);
    for (int d = 0; d < num_kept(); ++d) {
      if (from().symbols.IsSymbolic(from().sizes[d])) return false;
      width_ *= from().sizes[d];
    }
    return rows >= kLeastRowsOfPart * kPartialSums;
  }

  // Whether all that comes of points are sums, which no point waits for.
  bool IsSumOfPoints() {
    if (!columns_.checks.empty() || !merged_.checks.empty()) return false;
    stages_.kernel = from();
    stages_.rank = rank();
    stages_.num_kept = num_kept();
    stages_.FindStages();
    if (stages_.num_passes != 1) return false;
    for (int i = 0; i < static_cast<int>(from().insts.size()); ++i) {
      const KInst& inst = from().insts[i];
      const bool floating = inst.type == c10::ScalarType::Float || inst.type == c10::ScalarType::Double;
      if (IsReduce(inst.op) && (inst.op != KOp::kReduceSum || !floating)) return false;
      if (IsScan(inst.op) || (HasBuffer(inst.op) && inst.op != KOp::kLoad && inst.op != KOp::kStore)) return false;
      if (IsFull(i) && (HasEffect(inst.op) || stages_.stage[i] != 0)) return false;
    }
    return true;
  }

  // Whether neither touches what the other writes, but for what the rows' kernel stores where the columns' loads it.
  bool MemoryFits() {
    for (size_t b = 0; b < columns_.buffers.size(); ++b) {
      const LoweredGroup::Buffer& own = columns_.buffers[b];
      if (own.partial_sums >= 0) return false;
      places_.push_back(-1);
      std::optional<c10::DimVector> strides = Turned(from().buffers[b].strides);
      if (!strides.has_value()) return false;
      for (size_t o = 0; o < merged_.buffers.size(); ++o) {
        const LoweredGroup::Buffer& other = merged_.buffers[o];
        if (other.memory != own.memory || other.partial_sums >= 0) continue;
        const bool same = other.offset_slot == own.offset_slot && into().buffers[o].dtype == from().buffers[b].dtype &&
                          into().buffers[o].strides == *strides;
        if (own.written || (other.written && !same)) return false;
        if (same) places_.back() = static_cast<int64_t>(o);
      }
      for (int d = 0; d < num_kept(); ++d) {
        if (from().symbols.IsSymbolic(from().buffers[b].strides[d])) return false;
      }
      strides_.push_back(*std::move(strides));
    }
    return true;
  }

  int32_t Add(const KInst& inst) {
    const auto found = HasEffect(inst.op) ? into().insts.end() : std::find(into().insts.begin(), into().insts.end(), inst);
    if (found != into().insts.end()) return static_cast<int32_t>(found - into().insts.begin());
    into().insts.push_back(inst);
    return static_cast<int32_t>(into().insts.size()) - 1;
  }

  // What is loaded from the columns' buffer `b`, be it that the rows' kernel has just stored it.
  int32_t AddLoad(size_t b) {
    if (places_[b] < 0) {
      places_[b] = static_cast<int64_t>(merged_.buffers.size());
      merged_.buffers.push_back(columns_.buffers[b]);
      merged_.buffers.back().written = false;  // The columns' kernel may store there later.
      into().buffers.push_back({from().buffers[b].dtype, strides_[b], false});
    }
    for (const KInst& inst : into().insts) {
      if (inst.op == KOp::kStore && inst.imm == places_[b]) return inst.in[0];
    }
    return Add({KOp::kLoad, from().buffers[b].dtype, {-1, -1, -1}, places_[b]});
  }

  // The imm of one that is no load in the rows' kernel.
  std::optional<int64_t> MappedImm(const KInst& inst) {
    if (inst.op == KOp::kIndex) return (inst.imm + from().num_reduced) % rank();
    if (inst.op == KOp::kSize) return Mapped(inst.imm);
    if (inst.op != KOp::kScalar) return inst.imm;
    std::vector<int32_t>& slots = merged_.scalar_slots;
    const int32_t slot = columns_.scalar_slots[inst.imm];
    const int64_t place = std::find(slots.begin(), slots.end(), slot) - slots.begin();
    if (place == static_cast<int64_t>(slots.size())) slots.push_back(slot);
    return place;
  }

  // What is summed, and its sums.
  bool AddPoints() {
    const int count = static_cast<int>(from().insts.size());
    std::vector<bool> needed(count, false);
    for (int i = count; i-- > 0;) {
      if (!needed[i] && !(stages_.live[i] && IsReduce(from().insts[i].op))) continue;
      for (int k = 0; k < KOpArity(from().insts[i].op); ++k) needed[from().insts[i].in[k]] = true;
    }
    std::vector<int32_t> number(count, -1);
    partial_of_.assign(count, -1);
    for (int i = 0; i < count; ++i) {
      KInst inst = from().insts[i];
      if (IsReduce(inst.op) && stages_.live[i]) AddPartialSum(i, number[inst.in[0]]);
      if (!needed[i]) continue;
      if (IsRandom(inst.op)) return false;
      if (inst.op == KOp::kLoad) {
        number[i] = AddLoad(static_cast<size_t>(inst.imm));
        continue;
      }
      for (int k = 0; k < KOpArity(inst.op); ++k) inst.in[k] = number[inst.in[k]];
      const std::optional<int64_t> imm = MappedImm(inst);
      if (!imm.has_value()) return false;
      inst.imm = *imm;
      number[i] = Add(inst);
    }
    into().num_scalars = static_cast<int>(merged_.scalar_slots.size());
    return true;
  }

  // Dense sums of the kept points of the columns' kernel, as strides over the dimensions [begin, begin + num_kept()) of `rank`.
  c10::DimVector Dense(int begin, int rank) const {
    c10::DimVector strides(rank, 0);
    int64_t stride = 1;
    for (int d = num_kept(); d-- > 0; stride *= from().sizes[d]) strides[begin + d] = stride;
    return strides;
  }

  void AddPartialSum(int reduce, int32_t operand) {
    const c10::ScalarType type = from().insts[reduce].type;
    const auto bytes = static_cast<int32_t>(c10::elementSize(type));
    partial_of_[reduce] = next_partial_ + static_cast<int>(partial_bytes_.size());
    partial_bytes_.push_back(kPartialSums * width_ * bytes);
    into().insts.push_back({KOp::kPartialSum, type, {operand, -1, -1}, static_cast<int64_t>(merged_.buffers.size())});
    into().buffers.push_back({type, Dense(from().num_reduced, rank()), true});
    merged_.buffers.push_back({kNoValue, -1, bytes, true, partial_of_[reduce]});
  }

  // The columns' kernel with the parts in place of the rows.
  bool MakeCombining() {
    combining_ = columns_;
    KernelIR& kernel = combining_.kernel;
    const int kept = num_kept();
    kernel.sizes.resize(kept);
    kernel.sizes.push_back(kPartialSums);
    kernel.num_reduced = 1;
    for (KBuffer& buffer : kernel.buffers) {
      buffer.strides.resize(kept);
      buffer.strides.push_back(0);
    }
    kernel.insts.clear();
    std::vector<int32_t> number(from().insts.size(), -1);
    for (int i = 0; i < static_cast<int>(from().insts.size()); ++i) {
      KInst inst = from().insts[i];
      if (IsFull(i)) continue;
      for (int k = 0; !IsReduce(inst.op) && k < KOpArity(inst.op); ++k) inst.in[k] = number[inst.in[k]];
      if (IsReduce(inst.op)) inst.in[0] = LoadPart(i);
      number[i] = static_cast<int32_t>(kernel.insts.size());
      kernel.insts.push_back(inst);
    }
    DropDeadInstructions(&combining_);  // What only points needed.
    return FitsSymbols();
  }

  // Whether the number of parts is not taken for a symbol. Mostly there is none left.
  bool FitsSymbols() {
    KernelIR& kernel = combining_.kernel;
    const auto is_symbolic = [&](int64_t number) { return kernel.symbols.IsSymbolic(number); };
    const auto has_symbols = [&](const KBuffer& buffer) { return std::any_of(buffer.strides.begin(), buffer.strides.end(), is_symbolic); };
    const auto is_size = [](const KInst& inst) { return inst.op == KOp::kSize; };
    if (std::any_of(kernel.insts.begin(), kernel.insts.end(), is_size)) {
      return std::none_of(kernel.sizes.begin(), kernel.sizes.end(), is_symbolic) &&
             std::none_of(kernel.buffers.begin(), kernel.buffers.end(), has_symbols);
    }
    kernel.symbols = {};
    combining_.symbols.clear();
    return true;
  }

  int32_t LoadPart(int reduce) {
    KernelIR& kernel = combining_.kernel;
    const c10::ScalarType type = from().insts[reduce].type;
    c10::DimVector strides = Dense(0, num_kept() + 1);
    strides.back() = width_;
    kernel.insts.push_back({KOp::kLoad, type, {-1, -1, -1}, static_cast<int64_t>(kernel.buffers.size())});
    kernel.buffers.push_back({type, std::move(strides), false});
    combining_.buffers.push_back({kNoValue, -1, static_cast<int32_t>(c10::elementSize(type)), false, partial_of_[reduce]});
    return static_cast<int32_t>(kernel.insts.size()) - 1;
  }

  const LoweredGroup& columns_;
  LoweredGroup merged_;     // The rows' kernel and what the columns' does at points.
  LoweredGroup combining_;  // What is left of the columns' kernel.
  const int next_partial_;
  std::vector<int64_t> partial_bytes_;
  StagedKernel stages_;                  // Of the columns' kernel,
  int64_t width_ = 1;                    // whose kept points are so many.
  std::vector<c10::DimVector> strides_;  // By buffer of the columns' kernel: over the rows' dimensions,
  std::vector<int64_t> places_;          // and which of the rows' it is. -1: none.
  std::vector<int32_t> partial_of_;      // By instruction of the columns' kernel: the number of a reduction's partial sums.
};

}  // namespace

bool JoinColumnSums(LoweredGroup* rows, LoweredGroup* columns, std::vector<int64_t>* partial_sums) {
  Joiner joiner(*rows, *columns, static_cast<int>(partial_sums->size()));
  if (!joiner.Run()) return false;
  *rows = std::move(joiner.merged());
  *columns = std::move(joiner.combining());
  partial_sums->insert(partial_sums->end(), joiner.partial_bytes().begin(), joiner.partial_bytes().end());
  return true;
}

bool JoinCombining(LoweredGroup* others, LoweredGroup* sums) {
  KernelIR &into = others->kernel, &from = sums->kernel;
  if (from.sizes != into.sizes || from.num_reduced != into.num_reduced || !from.symbols.empty() || !into.symbols.empty()) return false;
  for (const LoweredGroup::Buffer& own : sums->buffers) {
    for (const LoweredGroup::Buffer& other : others->buffers) {
      if (own.memory != kNoValue && own.memory == other.memory && (own.written || other.written)) return false;
    }
  }
  const auto first = static_cast<int32_t>(into.insts.size());
  const auto buffers = static_cast<int64_t>(into.buffers.size()), scalars = static_cast<int64_t>(into.num_scalars);
  for (KInst inst : from.insts) {
    for (int k = 0; k < KOpArity(inst.op); ++k) inst.in[k] += first;
    if (HasBuffer(inst.op)) inst.imm += buffers;
    if (inst.op == KOp::kScalar) inst.imm += scalars;
    into.insts.push_back(inst);
  }
  into.num_scalars += from.num_scalars;
  into.buffers.insert(into.buffers.end(), from.buffers.begin(), from.buffers.end());
  others->buffers.insert(others->buffers.end(), sums->buffers.begin(), sums->buffers.end());
  others->scalar_slots.insert(others->scalar_slots.end(), sums->scalar_slots.begin(), sums->scalar_slots.end());
  *sums = LoweredGroup();
  return true;
}

}  // namespace lazuli::codegen
