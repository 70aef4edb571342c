#include "codegen/passes/sum_parts.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "codegen/ir/graph.h"
#include "codegen/lower_index.h"
#include "codegen/lower_pieces.h"
#include "codegen/passes/trace_editor.h"
#include "codegen/passes/trace_uses.h"

namespace lazuli::codegen {
namespace {

constexpr size_t kMaxParts = 8;
// Of a part, in elements: a kernel more for each takes longer than to read less.
constexpr int64_t kLeastPart = int64_t{1} << 18;

class PartSummer {
 public:
  explicit PartSummer(const Trace& trace) : trace_(trace), uses_(trace), editor_(trace) {}

  std::optional<Trace> Run() {
    for (size_t i = 0; i < trace_.ops.size(); ++i) {
      if (const auto sum = FindSum(i); sum.has_value()) Replace(i, *sum);
    }
    return changed_ ? std::optional(editor_.Finish()) : std::nullopt;
  }

 private:
  // Of what operator `maker` puts together along dimension `dim` of its result.
  struct SumOfParts {
    int maker = -1;
    size_t dim = 0;
    std::vector<size_t> kept;  // Dimensions of that result, in the order in which they lie in the sum.
  };

  std::optional<SumOfParts> FindSum(size_t i) const {
    const TraceOp& op = trace_.ops[i];
    if (op.info->name != "aten::sum.dim_IntList" || !op.results[0].defined() || !op.results[0].is_contiguous()) return std::nullopt;
    const TensorRef& summed = op.args[0].tensors[0];
    SumOfParts sum;
    sum.maker = uses_.makers[static_cast<size_t>(summed.storage)];
    if (sum.maker < 0 || !IsPutTogether(sum.maker) || !IsThere(sum.maker, static_cast<int>(i))) return std::nullopt;
    const TraceOp& maker = trace_.ops[static_cast<size_t>(sum.maker)];
    const TensorRef& whole = maker.results[0];
    for (const c10::DimVector& numbers : {summed.sizes, summed.strides, whole.sizes, whole.strides}) {
      if (trace_.symbols.HasSymbol(numbers)) return std::nullopt;
    }
    if (summed.offset_slot != -1 || summed.dtype != whole.dtype || summed.numel() != whole.numel() || !IsDense(summed) || !IsDense(whole))
      return std::nullopt;
    sum.dim = static_cast<size_t>(DimArg(maker, 1, whole));
    return AssignDims(op, whole, &sum) ? std::optional(std::move(sum)) : std::nullopt;
  }

  bool IsPutTogether(int maker) const {
    const TraceOp& op = trace_.ops[static_cast<size_t>(maker)];
    if (!PutsTogether(op)) return false;
    const std::vector<TensorRef>& parts = op.args[0].tensors;
    return parts.size() >= 2 && parts.size() <= kMaxParts && std::all_of(parts.begin(), parts.end(), [&](const TensorRef& part) {
             return part.dtype == op.results[0].dtype && !trace_.symbols.HasSymbol(part.sizes) && part.numel() >= kLeastPart;
           });
  }

  // Whether the parts, and what they are put together in, are the same before operator `i`.
  bool IsThere(int maker, int i) const {
    const TraceOp& op = trace_.ops[static_cast<size_t>(maker)];
    const auto is_written = [&](const TensorRef& ref) { return IsWrittenBetween(trace_, ref.storage, maker, i); };
    return !is_written(op.results[0]) && std::none_of(op.args[0].tensors.begin(), op.args[0].tensors.end(), is_written);
  }

  // Which dimensions of `whole` are reduced by `op`, which looks at the same memory as a tensor of other dimensions. False: parts are added
  // to one another, or some dimension of the one is no part of one of the other.
  static bool AssignDims(const TraceOp& op, const TensorRef& whole, SumOfParts* sum) {
    const TensorRef& summed = op.args[0].tensors[0];
    const auto rank = static_cast<int64_t>(summed.sizes.size());
    std::vector<bool> is_reduced(summed.sizes.size(), false);
    if (!op.args[1].value.isIntList()) return false;
    for (const int64_t dim : op.args[1].value.toIntVector()) is_reduced[static_cast<size_t>((dim + rank) % rank)] = true;
    std::vector<size_t> by_stride(whole.sizes.size());
    std::iota(by_stride.begin(), by_stride.end(), size_t{0});
    std::stable_sort(by_stride.begin(), by_stride.end(), [&](size_t a, size_t b) { return whole.strides[a] > whole.strides[b]; });
    size_t reduced = 0;
    for (size_t s = 0; s < summed.sizes.size(); ++s) {
      for (const size_t d : by_stride) {
        const bool is_in = whole.sizes[d] != 1 && summed.sizes[s] != 1 && whole.strides[d] % summed.strides[s] == 0 &&
                           whole.strides[d] * whole.sizes[d] <= summed.strides[s] * summed.sizes[s];
        if (is_in && is_reduced[s]) ++reduced;
        if (is_in && !is_reduced[s]) sum->kept.push_back(d);
      }
    }
    const auto all = static_cast<size_t>(std::count_if(whole.sizes.begin(), whole.sizes.end(), [](int64_t size) { return size != 1; }));
    return sum->kept.size() + reduced == all && reduced > 0 && std::count(sum->kept.begin(), sum->kept.end(), sum->dim) == 1;
  }

  void Replace(size_t i, const SumOfParts& sum) {
    const TraceOp& op = trace_.ops[i];
    const TraceOp& maker = trace_.ops[static_cast<size_t>(sum.maker)];
    const TensorRef& whole = maker.results[0];
    TensorRef all = op.results[0];
    all.sizes.clear();
    for (const size_t d : sum.kept) all.sizes.push_back(whole.sizes[d]);
    all.strides = ContiguousStrides(all.sizes);
    std::vector<TensorRef> sums;
    for (const TensorRef& part : maker.args[0].tensors) sums.push_back(SumOf(part, sum, i));
    const int64_t dim = std::find(sum.kept.begin(), sum.kept.end(), sum.dim) - sum.kept.begin();
    editor_.Insert(Cat(std::move(sums), dim, all), i);
    editor_.Drop(i);
    changed_ = true;
  }

  // The part's share of operator `i`, its dimensions in the order of the sum's; with one more where parts are stacked.
  TensorRef SumOf(const TensorRef& part, const SumOfParts& sum, size_t i) {
    const TraceOp& op = trace_.ops[i];
    const bool stacks = part.sizes.size() + 1 == trace_.ops[static_cast<size_t>(sum.maker)].results[0].sizes.size();
    const auto is_new = [&](size_t d) { return stacks && d == sum.dim; };
    const auto in_part = [&](size_t d) { return d - (stacks && d > sum.dim ? 1 : 0); };
    std::vector<bool> keeps(part.sizes.size(), false);
    for (const size_t d : sum.kept) {
      if (!is_new(d)) keeps[in_part(d)] = true;
    }
    std::vector<int64_t> reduced;
    std::vector<size_t> place(part.sizes.size());  // Of a dimension that is kept, among the result's.
    c10::DimVector sizes;
    for (size_t d = 0; d < part.sizes.size(); ++d) {
      place[d] = sizes.size();
      if (keeps[d]) sizes.push_back(part.sizes[d]);
      if (!keeps[d]) reduced.push_back(static_cast<int64_t>(d));
    }
    const TensorRef made = editor_.NewTensor(op.results[0], sizes);
    TraceOp share = op;
    SetRef(&share, 0, part);
    share.args[1].value = std::move(reduced);
    share.args[2].value = false;
    share.results = {made};
    editor_.Insert(std::move(share), i);
    TensorRef ordered = made;
    ordered.sizes.clear();
    ordered.strides.clear();
    for (const size_t d : sum.kept) {
      ordered.sizes.push_back(is_new(d) ? 1 : made.sizes[place[in_part(d)]]);
      ordered.strides.push_back(is_new(d) ? 0 : made.strides[place[in_part(d)]]);
    }
    return ordered;
  }

  const Trace& trace_;
  const TraceUses uses_;
  TraceEditor editor_;
  bool changed_ = false;
};

}  // namespace

std::optional<Trace> SumInParts(const Trace& trace) { return PartSummer(trace).Run(); }

}  // namespace lazuli::codegen
