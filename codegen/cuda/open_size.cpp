#include "codegen/cuda/open_size.h"

#include <algorithm>
#include <utility>

#include "codegen/cuda/cuda_plan.h"
#include "codegen/emit_llvm_canonical.h"

namespace lazuli::codegen {
namespace {

// Plans are made for so many points: enough that threads take whole vectors.
constexpr int64_t kPlannedPoints = int64_t{1} << 22;

// Whether it computes each element of dense memory from those in the same place, and numbers.
bool IsFlat(const KernelIR& kernel) {
  if (kernel.sizes.size() != 1 || kernel.num_reduced != 0) return false;
  const auto touches_places = [](const KInst& inst) { return inst.op == KOp::kGather || inst.op == KOp::kCheck || IsScatter(inst.op); };
  const auto walks = [](const KBuffer& buffer) { return buffer.strides[0] == 1 || (buffer.strides[0] == 0 && !buffer.written); };
  return std::none_of(kernel.insts.begin(), kernel.insts.end(), touches_places) &&
         std::all_of(kernel.buffers.begin(), kernel.buffers.end(), walks);
}

}  // namespace

bool OpenSize(KernelIR* kernel, std::vector<int64_t>* symbols) {
  KernelIR flat = CanonicalizeDomain(*kernel);
  if (!IsFlat(flat)) return false;
  int64_t& size = flat.sizes[0];
  const runtime::Product product = flat.symbols.Decode(size);
  if (product.coefficient == 1 && product.symbols.size() == 1) {
    flat.symbols.SetHint(product.symbols[0], kPlannedPoints);
  } else if (flat.symbols.empty() && size >= 2 && size <= kNarrowElements) {
    flat.symbols = runtime::SymbolTable::Make({kPlannedPoints}, {});
    symbols->push_back(size);
    size = flat.symbols.prime(0);
  } else {
    return false;
  }
  *kernel = std::move(flat);
  return true;
}

}  // namespace lazuli::codegen
