#include "codegen/passes/pad_products.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "codegen/lower_pieces.h"
#include "codegen/passes/slice_gradients.h"
#include "codegen/passes/trace_editor.h"
#include "codegen/passes/trace_uses.h"

namespace lazuli::codegen {
namespace {

constexpr int64_t kRowBytes = 16;
// Rough times on an H100, in ns: what a multiplication takes longer where rows are not whole, a byte that is copied, and a launch.
constexpr double kNsPerMultiplication = 1e-5;
constexpr double kNsPerByte = 0.8e-3;
constexpr double kNsPerLaunch = 2000;

// The dimensions of a product of `rows` x `inner` and `inner` x `columns` numbers.
enum Dim : uint8_t { kRows, kInner, kColumns };

class ProductPadder {
 public:
  ProductPadder(const Trace& trace, const PadProductsOptions& options) : trace_(trace), options_(options), uses_(trace), editor_(trace) {}

  std::optional<Trace> Run() {
    for (size_t i = 0; i < trace_.ops.size(); ++i) {
      TryProduct(i);
      const TraceOp& op = trace_.ops[i];
      for (size_t a = 0; a < op.args.size(); ++a) {
        for (const TensorRef& ref : op.args[a].tensors) {
          if ((op.info->mutated_args >> a & 1) != 0 && ref.defined()) padded_.erase(ref.storage);
        }
      }
    }
    return changed_ ? std::optional(editor_.Finish()) : std::nullopt;
  }

 private:
  // A matrix, and which dimensions of the product are its own.
  struct Operand {
    TensorRef ref;
    std::array<Dim, 2> dims;

    bool is_transposed() const { return ref.strides[1] != 1 || (ref.sizes[1] == 1 && ref.strides[0] == 1); }
    // The one whose elements are neighbours.
    Dim innermost() const { return dims[is_transposed() ? 0 : 1]; }
    bool is_matrix() const {
      if (ref.sizes.size() != 2) return false;
      const int in = is_transposed() ? 0 : 1;
      return ref.strides[in] == 1 && ref.strides[1 - in] >= ref.sizes[in];
    }
  };
  using Pads = std::array<int64_t, 3>;  // By Dim.

  // Rows as they are padded by so many more, each of them by so many numbers.
  struct Padded {
    TensorRef rows;
    int64_t below, behind;
    TensorRef ref;
  };

  bool IsOf(c10::ScalarType type) const {
    return type == c10::kFloat ? options_.floats : options_.halves && c10::isReducedFloatingType(type);
  }

  void TryProduct(size_t i) {
    const TraceOp& op = trace_.ops[i];
    const bool adds = op.info->name == "aten::addmm";
    if ((!adds && op.info->name != "aten::mm") || !op.device.is_cuda() || op.results.size() != 1 || !IsOf(op.results[0].dtype)) return;
    const size_t first = adds ? 1 : 0;
    const Operand a = {op.args[first].tensors[0], {kRows, kInner}}, b = {op.args[first + 1].tensors[0], {kInner, kColumns}};
    const TensorRef& result = op.results[0];
    if (!a.is_matrix() || !b.is_matrix() || !result.is_contiguous() || a.ref.dtype != result.dtype || b.ref.dtype != result.dtype) return;
    const std::array<int64_t, 3> sizes = {a.ref.sizes[0], a.ref.sizes[1], b.ref.sizes[1]};
    const int64_t multiple = kRowBytes / static_cast<int64_t>(c10::elementSize(result.dtype));
    Pads pads = {0, 0, 0};
    for (const Dim dim : {a.innermost(), b.innermost(), kColumns}) {
      if (trace_.symbols.IsSymbolic(sizes[dim])) return;
      pads[dim] = (multiple - sizes[dim] % multiple) % multiple;
      if (trace_.symbols.IsSymbolic(sizes[dim] + pads[dim])) return;  // No number of the trace reads as one of them.
    }
    if (pads == Pads{0, 0, 0} || !Pays(op, a, b, pads)) return;
    TraceOp padded = op;
    if (adds && !PadBias(&padded, pads, i)) return;
    SetRef(&padded, static_cast<int>(first), Pad(a, pads, i));
    SetRef(&padded, static_cast<int>(first) + 1, Pad(b, pads, i));
    changed_ = true;
    editor_.Drop(i);
    if (pads[kRows] == 0 && pads[kColumns] == 0) return editor_.Insert(std::move(padded), i);
    padded.results[0] = editor_.NewTensor(result, {sizes[kRows] + pads[kRows], sizes[kColumns] + pads[kColumns]});
    TensorRef window = padded.results[0];
    window.sizes = result.sizes;
    editor_.Insert(std::move(padded), i);
    TraceOp cut = CallOf("aten::clone", result);
    SetRef(&cut, 0, window);
    editor_.Insert(std::move(cut), i);
  }

  int64_t Elements(const TensorRef& ref) const { return trace_.symbols.Hint(ref.numel()); }
  double Bytes(const TensorRef& ref) const { return static_cast<double>(Elements(ref)) * static_cast<double>(c10::elementSize(ref.dtype)); }

  bool Pays(const TraceOp& op, const Operand& a, const Operand& b, const Pads& pads) const {
    const double gain =
        kNsPerMultiplication * static_cast<double>(Elements(op.results[0])) * static_cast<double>(trace_.symbols.Hint(a.ref.sizes[1]));
    double loss = 0;
    for (const Operand* operand : {&a, &b}) {
      if (pads[operand->dims[0]] == 0 && pads[operand->dims[1]] == 0) continue;
      const int maker = uses_.makers[static_cast<size_t>(operand->ref.storage)];
      const bool by_kernel = maker >= 0 && FindRow(trace_.ops[static_cast<size_t>(maker)]) != nullptr;
      loss += kNsPerLaunch + (by_kernel ? 0 : kNsPerByte * Bytes(operand->ref));
    }
    if (pads[kRows] != 0 || pads[kColumns] != 0)
      loss += kNsPerLaunch + kNsPerByte * Bytes(op.results[0]) / 2;  // As if it were every other.
    return gain > 2 * loss;
  }

  // What an addmm adds, where that is a number for each column or the same for all. Says whether it is.
  bool PadBias(TraceOp* op, const Pads& pads, size_t at) {
    const TensorRef bias = op->args[0].tensors[0];
    if (bias.sizes.size() > 1) return false;
    if (pads[kColumns] == 0 || bias.numel() == 1) return true;
    SetRef(op, 0, PadTensor(bias, {0, pads[kColumns]}, at));
    return true;
  }

  TensorRef Pad(const Operand& operand, const Pads& pads, size_t at) {
    const bool transposed = operand.is_transposed();
    const auto transpose = [&](TensorRef* ref) {
      if (!transposed) return;
      std::swap(ref->sizes[0], ref->sizes[1]);
      std::swap(ref->strides[0], ref->strides[1]);
    };
    TensorRef rows = operand.ref;
    transpose(&rows);
    const int64_t below = pads[operand.dims[transposed ? 1 : 0]], behind = pads[operand.dims[transposed ? 0 : 1]];
    if (below == 0 && behind == 0) return operand.ref;
    std::vector<Padded>& known = padded_[rows.storage];
    const auto same = [&](const Padded& padded) { return padded.rows == rows && padded.below == below && padded.behind == behind; };
    const auto found = std::find_if(known.begin(), known.end(), same);
    TensorRef ref = found != known.end() ? found->ref : PadRows(rows, below, behind, at);
    if (found == known.end()) known.push_back({rows, below, behind, ref});
    transpose(&ref);
    return ref;
  }

  // The gradient of a slice is padded itself: both at once then.
  TensorRef PadRows(const TensorRef& rows, int64_t below, int64_t behind, size_t at) {
    const int maker = uses_.makers[static_cast<size_t>(rows.storage)];
    if (maker >= 0 && below == 0 && rows.is_contiguous() && rows.offset_slot == -1) {
      const TraceOp& op = trace_.ops[static_cast<size_t>(maker)];
      const TensorRef& made = op.results.empty() ? rows : op.results[0];
      const std::optional<SlicePlace> place = PlaceOfSlice(trace_, op);
      const bool fits = place.has_value() && op.args[0].tensors[0].sizes.size() == made.sizes.size() && made.numel() == rows.numel() &&
                        made.sizes.back() == rows.sizes[1] && !trace_.symbols.IsSymbolic(made.sizes[place->dim] - place->end);
      if (fits && !IsWrittenBetween(trace_, rows.storage, maker, static_cast<int>(at))) {
        std::vector<int64_t> pads(2 * made.sizes.size(), 0);
        const size_t around = 2 * (made.sizes.size() - 1 - static_cast<size_t>(place->dim));
        pads[around] = place->begin;
        pads[around + 1] = made.sizes[place->dim] - place->end;
        pads[1] += behind;
        TensorRef ref = PadTensor(op.args[0].tensors[0], std::move(pads), static_cast<size_t>(maker));
        ref.sizes = {rows.sizes[0], rows.sizes[1] + behind};
        ref.strides = ContiguousStrides(ref.sizes);
        return ref;
      }
    }
    return PadTensor(rows, {0, behind, 0, below}, at);
  }

  // `ref`, before operator `at`, with zeros around it as constant_pad_nd counts them.
  TensorRef PadTensor(const TensorRef& ref, std::vector<int64_t> pads, size_t at) {
    c10::DimVector sizes = ref.sizes;
    for (size_t i = 0; i < pads.size(); i += 2) sizes[sizes.size() - 1 - i / 2] += pads[i] + pads[i + 1];
    const TensorRef padded = editor_.NewTensor(ref, sizes);
    TraceOp op = CallOf("aten::constant_pad_nd", padded);
    SetRef(&op, 0, ref);
    op.args[1].value = std::move(pads);
    op.args[2].value = int64_t{0};
    editor_.Insert(std::move(op), at);
    return padded;
  }

  const Trace& trace_;
  const PadProductsOptions options_;
  const TraceUses uses_;
  TraceEditor editor_;
  absl::flat_hash_map<StorageId, std::vector<Padded>> padded_;  // By the rows' storage, while that is as it was.
  bool changed_ = false;
};

}  // namespace

std::optional<Trace> PadProducts(const Trace& trace, const PadProductsOptions& options) {
  if (!options.halves && !options.floats) return std::nullopt;
  return ProductPadder(trace, options).Run();
}

}  // namespace lazuli::codegen
