#include "codegen/cuda/open_size.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "codegen/cuda/cuda_plan.h"
#include "codegen/emit_llvm_canonical.h"
#include "codegen/kernel_stages.h"

namespace lazuli::codegen {
namespace {

// Plans are made for so many points: enough that threads take whole vectors.
constexpr int64_t kPlannedPoints = int64_t{1} << 22;

int PassesOf(const KernelIR& kernel) {
  StagedKernel staged;
  staged.kernel = kernel;
  staged.rank = static_cast<int>(kernel.sizes.size());
  staged.num_kept = staged.rank - kernel.num_reduced;
  staged.FindStages();
  return staged.num_passes;
}

// Whether it computes each element of dense memory from those in the same place, and numbers; or numbers from all elements, once through.
bool IsFlat(const KernelIR& kernel) {
  if (kernel.sizes.size() != 1) return false;
  const bool reduces = kernel.num_reduced != 0;
  const auto touches_places = [](const KInst& inst) { return inst.op == KOp::kGather || inst.op == KOp::kCheck || IsScatter(inst.op); };
  const auto walks = [&](const KBuffer& buffer) { return buffer.strides[0] == (buffer.written && reduces ? 0 : 1); };
  const auto fits = [&](const KBuffer& buffer) { return walks(buffer) || (buffer.strides[0] == 0 && !buffer.written); };
  return std::none_of(kernel.insts.begin(), kernel.insts.end(), touches_places) &&
         std::all_of(kernel.buffers.begin(), kernel.buffers.end(), fits) && (!reduces || PassesOf(kernel) == 1);
}

struct Opened {
  KernelIR kernel;
  std::vector<int64_t> symbols;
};

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

void OpenSizes(absl::Span<const SizedKernel> kernels) {
  std::vector<Opened> opened;
  std::vector<std::string> texts;
  absl::flat_hash_map<std::string, int> counts;
  for (const SizedKernel& sized : kernels) {
    opened.push_back({*sized.kernel, *sized.symbols});
    const bool opens = OpenSize(&opened.back().kernel, &opened.back().symbols);
    texts.push_back(opens ? PrintKernel(opened.back().kernel) : "");
    if (opens) ++counts[texts.back()];
  }
  for (size_t i = 0; i < kernels.size(); ++i) {
    if (texts[i].empty() || (opened[i].kernel.num_reduced != 0 && counts[texts[i]] == 1)) continue;
    *kernels[i].kernel = std::move(opened[i].kernel);
    *kernels[i].symbols = std::move(opened[i].symbols);
  }
}

}  // namespace lazuli::codegen
