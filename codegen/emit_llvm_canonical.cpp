#include "codegen/emit_llvm_canonical.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace lazuli::codegen {
namespace {

class Canonicalizer {
 public:
  explicit Canonicalizer(const KernelIR& kernel) : kernel_(kernel), indexed_(kernel.sizes.size(), false) {
    for (const KInst& inst : kernel_.insts) {
      if (inst.op == KOp::kIndex) indexed_[inst.imm] = true;
      if (inst.op == KOp::kGather || IsScatter(inst.op)) places_.push_back(&kernel_.buffers[inst.imm]);
    }
    // Buffers in order of their say: stores, then loads.
    for (bool written : {true, false}) {
      for (const KBuffer& buffer : kernel_.buffers) {
        if (buffer.written == written) priority_.push_back(&buffer);
      }
    }
  }

  KernelIR Run() {
    const int rank = static_cast<int>(kernel_.sizes.size());
    const int num_kept = rank - kernel_.num_reduced;
    std::vector<std::vector<int>> kept = Group(0, num_kept);
    std::vector<std::vector<int>> reduced = Group(num_kept, rank);
    KernelIR result;
    result.num_scalars = kernel_.num_scalars;
    result.symbols = kernel_.symbols;
    result.checked = kernel_.checked;
    result.buffers = kernel_.buffers;
    for (KBuffer& buffer : result.buffers) buffer.strides.clear();
    std::vector<int> new_dim(rank, -1);
    for (const auto* group : {&kept, &reduced}) {
      for (const std::vector<int>& dims : *group) Append(dims, &result, &new_dim);
    }
    if (kernel_.num_reduced > 0 && reduced.empty()) AppendUnit(&result);
    if (result.sizes.empty()) AppendUnit(&result);
    result.num_reduced = kernel_.num_reduced > 0 ? std::max<int>(1, static_cast<int>(reduced.size())) : 0;
    result.insts = kernel_.insts;
    for (KInst& inst : result.insts) {
      if (inst.op != KOp::kIndex) continue;
      const int dim = new_dim[inst.imm];
      if (dim < 0) inst.op = KOp::kConst;
      inst.imm = dim < 0 ? 0 : dim;
    }
    return result;
  }

 private:
  // Whether dimension `a` should be outside `b`: -1 no, 1 yes, 0 no preference.
  int Compare(int a, int b) const {
    for (const KBuffer* buffer : priority_) {
      const int64_t sa = std::abs(kernel_.symbols.Hint(buffer->strides[a])), sb = std::abs(kernel_.symbols.Hint(buffer->strides[b]));
      if (sa == sb || sa == 0 || sb == 0) continue;
      return sa > sb ? 1 : -1;
    }
    // Where only indices say where memory is, what is contiguous there.
    for (const KBuffer* buffer : places_) {
      const int64_t sa = std::abs(buffer->strides[a]), sb = std::abs(buffer->strides[b]);
      if (sa + sb == 1) return sb == 1 ? 1 : -1;
    }
    return 0;
  }

  // Insertion sort that moves a dimension only past those it has a say against, as the relation need not be transitive.
  std::vector<std::vector<int>> Group(int begin, int end) const {
    std::vector<int> order;
    for (int d = begin; d < end; ++d) {
      if (kernel_.sizes[d] == 1) continue;
      size_t at = order.size();
      for (size_t i = order.size(); i-- > 0;) {
        const int preference = Compare(d, order[i]);
        if (preference > 0) at = i;
        if (preference < 0) break;
      }
      order.insert(order.begin() + static_cast<std::ptrdiff_t>(at), d);
    }
    std::vector<std::vector<int>> groups;
    for (int d : order) {
      if (!groups.empty() && CanMerge(groups.back().back(), d)) {
        groups.back().push_back(d);
      } else {
        groups.push_back({d});
      }
    }
    return groups;
  }

  bool CanMerge(int outer, int inner) const {
    if (indexed_[outer] || indexed_[inner]) return false;
    for (const KBuffer& buffer : kernel_.buffers) {
      if (buffer.strides[outer] != buffer.strides[inner] * kernel_.sizes[inner]) return false;
    }
    return true;
  }

  void Append(const std::vector<int>& dims, KernelIR* result, std::vector<int>* new_dim) const {
    int64_t size = 1;
    for (int d : dims) size *= kernel_.sizes[d];
    if (dims.size() == 1) (*new_dim)[dims[0]] = static_cast<int>(result->sizes.size());
    result->sizes.push_back(size);
    for (size_t b = 0; b < kernel_.buffers.size(); ++b) result->buffers[b].strides.push_back(kernel_.buffers[b].strides[dims.back()]);
  }

  static void AppendUnit(KernelIR* result) {
    result->sizes.push_back(1);
    for (KBuffer& buffer : result->buffers) buffer.strides.push_back(0);
  }

  const KernelIR& kernel_;
  std::vector<bool> indexed_;  // Dimensions read by Index: kept apart.
  std::vector<const KBuffer*> priority_;
  std::vector<const KBuffer*> places_;  // Of what is read or written where indices say.
};

constexpr int64_t kMinTile = 8;
constexpr int64_t kMinWholeTile = 32;
constexpr int64_t kMaxTile = 64;

// The largest divisor of `size` that makes a tile, or a tile of which the last one is cut short; 0 where `size` is too small.
int64_t TileOf(int64_t size) {
  for (int64_t tile = kMaxTile; tile >= std::min(size, kMinWholeTile) && tile >= kMinTile; --tile) {
    if (size % tile == 0) return tile;
  }
  return size > kMaxTile ? kMaxTile : 0;
}

// A dimension that some buffer is contiguous in but not along the last dimension; -1 when there is none.
int TransposedDim(const KernelIR& kernel) {
  const int last = static_cast<int>(kernel.sizes.size()) - 1;
  for (const KBuffer& buffer : kernel.buffers) {
    if (buffer.strides[last] == 0 || buffer.strides[last] == 1) continue;
    for (int d = 0; d < last; ++d) {
      if (buffer.strides[d] == 1) return d;
    }
  }
  return -1;
}

void MoveDim(c10::DimVector* values, int dim, int64_t outer, int64_t inner) {
  values->erase(values->begin() + dim);
  values->insert(values->end() - 1, outer);
  values->push_back(inner);
}

}  // namespace

int64_t TileTransposedLoads(KernelIR* kernel, int lanes) {
  const int dim = TransposedDim(*kernel);
  if (dim < 0 || kernel->symbols.Hint(kernel->sizes.back()) < lanes || kernel->symbols.IsSymbolic(kernel->sizes[dim])) return 0;
  for (const KInst& inst : kernel->insts) {
    if (inst.op == KOp::kIndex) return 0;
  }
  const int64_t size = kernel->sizes[dim], tile = TileOf(size);
  if (tile == 0) return 0;
  MoveDim(&kernel->sizes, dim, (size + tile - 1) / tile, tile);
  for (KBuffer& buffer : kernel->buffers) MoveDim(&buffer.strides, dim, buffer.strides[dim] * tile, buffer.strides[dim]);
  return size;
}

KernelIR CanonicalizeDomain(const KernelIR& kernel) { return Canonicalizer(kernel).Run(); }

void MoveColumnsInside(KernelIR* kernel) {
  const auto columns = static_cast<std::ptrdiff_t>(kernel->sizes.size()) - kernel->num_reduced - 1;
  const auto to_end = [&](c10::DimVector* numbers) {
    std::rotate(numbers->begin() + columns, numbers->begin() + columns + 1, numbers->end());
  };
  to_end(&kernel->sizes);
  for (KBuffer& buffer : kernel->buffers) to_end(&buffer.strides);
  ++kernel->num_reduced;
  for (KInst& inst : kernel->insts) {
    if (inst.op != KOp::kIndex || inst.imm < columns) continue;
    inst.imm = inst.imm == columns ? static_cast<int64_t>(kernel->sizes.size()) - 1 : inst.imm - 1;
  }
}

}  // namespace lazuli::codegen
