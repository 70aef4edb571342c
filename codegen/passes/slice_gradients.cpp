#include "codegen/passes/slice_gradients.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "codegen/lower_pieces.h"
#include "codegen/passes/trace_editor.h"
#include "codegen/passes/trace_uses.h"

namespace lazuli::codegen {
namespace {

// A slice's place along the dimension, and the operators that make its gradients, in the order in which they are added up.
struct Slice {
  int64_t begin, end;
  std::vector<int> ops;
};

// A sum of such gradients, and perhaps of something else, as far as it has been seen.
struct Chain {
  TensorRef sum;  // Of the first of them, and where the sum is now.
  int64_t dim = -1;
  std::vector<Slice> slices;  // In their order along the dimension.
  std::vector<int> adds;      // The operators that add them up.
  bool on_top = false;        // Of what was there before.
};

class SliceJoiner {
 public:
  explicit SliceJoiner(const Trace& trace) : trace_(trace), uses_(trace), editor_(trace) {}

  std::optional<Trace> Run() {
    for (size_t i = 0; i < trace_.ops.size(); ++i) {
      const TraceOp& op = trace_.ops[i];
      if (TryAdd(static_cast<int>(i))) continue;
      for (const TraceArg& arg : op.args) {
        for (const TensorRef& ref : arg.tensors) {
          if (ref.defined()) Close(ref.storage);
        }
      }
      Open(static_cast<int>(i));
    }
    while (!open_.empty()) Close(open_.begin()->first);
    return changed_ ? std::optional(editor_.Finish()) : std::nullopt;
  }

 private:
  void Open(int i) {
    const TraceOp& op = trace_.ops[static_cast<size_t>(i)];
    const std::optional<SlicePlace> place = PlaceOfSlice(trace_, op);
    // ATen multiplies complex numbers that it adds by one, of which infinities come out as NaN.
    const c10::ScalarType type = op.results.empty() ? c10::ScalarType::Undefined : op.results[0].dtype;
    if (!place.has_value() || op.args[0].tensors[0].dtype != type || c10::isComplexType(type)) return;
    Chain& chain = open_[op.results[0].storage];
    chain.sum = op.results[0];
    chain.dim = place->dim;
    chain.slices = {{place->begin, place->end, {i}}};
  }

  // Whether operator `i` adds the gradient of a slice to a sum that may be a chain's, or now is.
  bool TryAdd(int i) {
    const TraceOp& op = trace_.ops[static_cast<size_t>(i)];
    const bool in_place = op.info->name == "aten::add_.Tensor";
    if ((!in_place && op.info->name != "aten::add.Tensor") || op.args[0].tensors.empty() || op.args[1].tensors.empty()) return false;
    const TraceArg& alpha = op.args[2];
    if (alpha.kind != TraceArg::Kind::kConst || !alpha.value.isInt() || alpha.value.toInt() != 1) return false;
    const TensorRef &to = op.args[0].tensors[0], &added = op.args[1].tensors[0];
    const auto other = open_.find(added.storage);
    if (other == open_.end() || to.storage == added.storage || !IsAllOf(added, other->second.sum) || !IsAllOf(to, other->second.sum) ||
        other->second.on_top || !IsForNobodyElse(added.storage)) {
      return false;
    }
    const auto found = open_.find(to.storage);
    const bool on_top = found == open_.end();  // Of what the chain is not: only where that stays in its place.
    if (!in_place && (on_top || !IsAllOf(op.results[0], found->second.sum) || !IsForNobodyElse(to.storage))) return false;
    if (!on_top && (found->second.dim != other->second.dim || Meet(found->second, other->second))) return false;
    if (on_top && HasSumOfOne(other->second)) return false;
    Chain chain, more = std::move(other->second);
    if (on_top) {
      chain.sum = to;
      chain.dim = more.dim;
      chain.on_top = true;
    } else {
      chain = std::move(found->second);
    }
    AddSlices(std::move(more.slices), &chain.slices);
    chain.adds.insert(chain.adds.end(), more.adds.begin(), more.adds.end());
    chain.adds.push_back(i);
    open_.erase(added.storage);
    open_.erase(to.storage);
    if (!in_place) chain.sum.storage = op.results[0].storage;
    open_[chain.sum.storage] = std::move(chain);
    return true;
  }

  // Whether the storage, which an operator of the trace makes, is used once.
  bool IsForNobodyElse(StorageId storage) const {
    const auto s = static_cast<size_t>(storage);
    return uses_.makers[s] >= 0 && uses_.uses[s] == Touches(storage) && !trace_.storages[s].live_out;
  }

  // How often the chain of `storage` itself uses it, and once more.
  int Touches(StorageId storage) const {
    int touches = 1;
    const auto found = open_.find(storage);
    if (found == open_.end()) return touches;
    for (const int add : found->second.adds) touches += trace_.ops[static_cast<size_t>(add)].args[0].tensors[0].storage == storage ? 1 : 0;
    return touches;
  }

  static bool IsBefore(const Slice& a, const Slice& b) { return a.begin < b.begin; }

  // Whether a slice of `added` meets one of `chain` but for being the same, with one gradient. Both are in order. What is there before a
  // chain is added to the gradients of a slice one after another: there may be one only.
  static bool Meet(const Chain& chain, const Chain& added) {
    const std::vector<Slice>& slices = chain.slices;
    return std::any_of(added.slices.begin(), added.slices.end(), [&](const Slice& slice) {
      const auto next = std::lower_bound(slices.begin(), slices.end(), slice, &IsBefore);
      if (next != slices.end() && next->begin == slice.begin && next->end == slice.end) return chain.on_top || slice.ops.size() != 1;
      if (chain.on_top && slice.ops.size() != 1) return true;
      return (next != slices.end() && next->begin < slice.end) || (next != slices.begin() && (next - 1)->end > slice.begin);
    });
  }

  // Whether some slice has several gradients.
  static bool HasSumOfOne(const Chain& chain) {
    return std::any_of(chain.slices.begin(), chain.slices.end(), [](const Slice& slice) { return slice.ops.size() != 1; });
  }

  static void AddSlices(std::vector<Slice> added, std::vector<Slice>* slices) {
    for (Slice& slice : added) {
      const auto next = std::lower_bound(slices->begin(), slices->end(), slice, &IsBefore);
      if (next != slices->end() && next->begin == slice.begin) {
        next->ops.push_back(slice.ops[0]);
      } else {
        slices->insert(next, std::move(slice));
      }
    }
  }

  // The chain of `storage`, if there is one, ends: somebody else looks at it.
  void Close(StorageId storage) {
    const auto found = open_.find(storage);
    if (found == open_.end()) return;
    const Chain chain = std::move(found->second);
    open_.erase(found);
    if (chain.slices.size() < 2 || HasNewSymbol(chain)) return;
    changed_ = true;
    Join(chain);
  }

  // Whether the number of zeros between slices reads as a symbol, which no number of the trace does.
  bool HasNewSymbol(const Chain& chain) const {
    int64_t end = 0;
    bool found = false;
    for (const Slice& slice : chain.slices) {
      found = found || trace_.symbols.IsSymbolic(slice.begin - end);
      end = slice.end;
    }
    return found || trace_.symbols.IsSymbolic(chain.sum.sizes[chain.dim] - end);
  }

  void Join(const Chain& chain) {
    for (const int add : chain.adds) editor_.Drop(static_cast<size_t>(add));
    const auto last = static_cast<size_t>(*std::max_element(chain.adds.begin(), chain.adds.end()));
    std::vector<TensorRef> pieces;
    int64_t end = 0;
    for (const Slice& slice : chain.slices) {
      if (slice.begin > end) pieces.push_back(Zeros(chain, slice.begin - end, slice.ops[0], last));
      pieces.push_back(Together(chain, slice));
      end = slice.end;
    }
    const int64_t rest = chain.sum.sizes[chain.dim] - end;
    if (rest > 0) pieces.push_back(Zeros(chain, rest, chain.slices[0].ops[0], last));
    TensorRef all = chain.sum;
    if (chain.on_top) all = editor_.NewTensor(chain.sum, chain.sum.sizes);
    editor_.Insert(Cat(std::move(pieces), chain.dim, all), last);
    if (!chain.on_top) return;
    TraceOp add = trace_.ops[last];
    SetRef(&add, 0, chain.sum);
    SetRef(&add, 1, all);
    editor_.Insert(std::move(add), last);
  }

  // The gradients of one slice, added up.
  TensorRef Together(const Chain& chain, const Slice& slice) {
    TensorRef sum = Alone(chain, slice, slice.ops[0]);
    int at = slice.ops[0];
    for (size_t i = 1; i < slice.ops.size(); ++i) {
      const TensorRef before = sum, added = Alone(chain, slice, slice.ops[i]);
      at = std::max(at, slice.ops[i]);
      sum = NewTensor(chain, slice.end - slice.begin);
      editor_.Insert(Sum(before, added, sum), static_cast<size_t>(at));
    }
    return sum;
  }

  // The slice's own gradient that operator `op` makes, plus zero, in place of one that is as large as the sum.
  TensorRef Alone(const Chain& chain, const Slice& slice, int op) {
    const auto at = static_cast<size_t>(op);
    editor_.Drop(at);
    TensorRef grad = trace_.ops[at].args[0].tensors[0];
    grad.wrapped_number = false;
    if (grad.sizes.size() < chain.sum.sizes.size()) {
      grad.sizes.insert(grad.sizes.begin() + chain.dim, 1);
      grad.strides.insert(grad.strides.begin() + chain.dim, 0);
    }
    const int64_t size = slice.end - slice.begin;
    const TensorRef zeros = Zeros(chain, size, op, at), alone = NewTensor(chain, size);
    editor_.Insert(Sum(grad, zeros, alone), at);
    return alone;
  }

  // Like the operand of operator `like`, at `at`, which comes no earlier.
  TensorRef Zeros(const Chain& chain, int64_t size, int like, size_t at) {
    const TensorRef zeros = NewTensor(chain, size);
    editor_.Insert(NewZeros(trace_.ops[static_cast<size_t>(like)].args[0].tensors[0], zeros), at);
    return zeros;
  }

  // Like the chain's sum, but of `size` along its dimension.
  TensorRef NewTensor(const Chain& chain, int64_t size) {
    c10::DimVector sizes = chain.sum.sizes;
    sizes[chain.dim] = size;
    return editor_.NewTensor(chain.sum, sizes);
  }

  const Trace& trace_;
  const TraceUses uses_;
  absl::flat_hash_map<StorageId, Chain> open_;  // By the storage that holds the sum.
  TraceEditor editor_;
  bool changed_ = false;
};

}  // namespace

std::optional<SlicePlace> PlaceOfSlice(const Trace& trace, const TraceOp& op) {
  const bool select = op.info->name == "aten::select_backward";
  if (!select && op.info->name != "aten::slice_backward") return std::nullopt;
  for (size_t a = 2; a < op.args.size(); ++a) {
    if (op.args[a].kind != TraceArg::Kind::kConst || !op.args[a].value.isInt()) return std::nullopt;
  }
  const TensorRef &grad = op.args[0].tensors[0], &result = op.results[0];
  const auto rank = static_cast<int64_t>(result.sizes.size());
  const int64_t dim = (op.args[2].value.toInt() + rank) % rank, size = result.sizes[dim], count = select ? 1 : grad.sizes[dim];
  int64_t begin = op.args[3].value.toInt();
  for (const int64_t number : {size, count, begin}) {
    if (trace.symbols.IsSymbolic(number)) return std::nullopt;
  }
  if (!select && op.args[5].value.toInt() != 1) return std::nullopt;
  if (begin < 0) begin = std::max<int64_t>(begin + size, 0);
  if (!result.is_contiguous() || count == 0 || begin + count > size) return std::nullopt;
  return SlicePlace{dim, begin, begin + count};
}

std::optional<Trace> JoinSliceGradients(const Trace& trace) { return SliceJoiner(trace).Run(); }

}  // namespace lazuli::codegen
