// What is asked of plans, and of kernels before they have one.
#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "codegen/cuda/cuda_plan.h"
#include "codegen/emit_llvm_plan.h"

namespace lazuli::codegen {

bool CudaPlan::IsContiguous(int i) const {
  const KInst& at = kernel.insts[i];
  if (!HasBuffer(at.op) || kernel.buffers[at.imm].strides[vector_dim] != 1) return false;
  return at.op == KOp::kLoad || at.op == KOp::kStore || (at.op == KOp::kGather && !HasLanes(at.in[0]));
}

bool CudaPlan::IsTransposed(int i, int dim) const {
  const KInst& at = kernel.insts[i];
  if (!live[i] || at.op != KOp::kLoad || kernel.buffers[at.imm].strides[dim] != 1) return false;
  const int64_t along = kernel.buffers[at.imm].strides[vector_dim];
  return along != 0 && along != 1;
}

bool CudaPlan::AddsNeighbours(int i) const {
  const KInst& at = kernel.insts[i];
  return at.op == KOp::kScatterAdd && at.type == c10::ScalarType::Float && kernel.buffers[at.imm].strides[vector_dim] == 1 &&
         !HasLanes(at.in[1]) && !HasLanes(at.in[2]);
}

int64_t CudaPlan::LanesApart(int i) const {
  const KInst& at = kernel.insts[i];
  const int64_t stride = kernel.buffers[at.imm].strides[vector_dim];
  if (at.op == KOp::kScatterAdd) return AddsNeighbours(i) && own_places[i] == 0 ? kCudaVectorBytes / ElementBytes(at.type) : 1;
  if (stride == 0) return kMaxCudaLanes;
  if (at.op != KOp::kLoad || kernel.symbols.IsSymbolic(stride)) return 1;
  int64_t most = kMaxCudaLanes;
  while (most > 1 && most * std::abs(stride) * ElementBytes(at.type) > kCudaVectorBytes) most /= 2;
  return most;
}

int CudaPlan::BufferToShift(int64_t lanes) const {
  const bool one_row = rows ? kernel.num_reduced == 1 : kernel.num_reduced == 0;
  if (!one_row || SizeHint(vector_dim) < 16 * lanes) return -1;
  int chosen = -1;
  int64_t most = 0;
  for (size_t i = 0; i < kernel.insts.size(); ++i) {
    const KInst& at = kernel.insts[i];
    if (!live[i] || (at.op != KOp::kLoad && at.op != KOp::kStore) || kernel.buffers[at.imm].strides[vector_dim] != 1) continue;
    int64_t elements = 1;
    for (int d = 0; d < rank; ++d) elements *= kernel.buffers[at.imm].strides[d] != 0 ? SizeHint(d) : 1;
    if (elements <= most) continue;
    most = elements;
    chosen = static_cast<int>(at.imm);
  }
  return chosen;
}

int64_t CudaPlan::Points(int begin, int end) const {
  int64_t points = 1;
  for (int d = begin; d < end; ++d) points *= SizeHint(d);
  return points;
}

int64_t CudaPlan::Chunks(int begin, int end) const {
  if (begin == end) return 1;
  const int64_t last = SizeHint(end - 1);
  return Points(begin, end - 1) * (end - 1 == vector_dim ? CeilDiv(last + Extra(), lanes) : last);
}

bool CudaPlan::IsPacked(int i) const { return IsVectorLoad(i) && ElementBytes(kernel.insts[i].type) == 2 && lanes % 2 == 0; }

bool HasPartialSums(const KernelIR& kernel) {
  return std::any_of(kernel.insts.begin(), kernel.insts.end(), [](const KInst& inst) { return inst.op == KOp::kPartialSum; });
}

std::vector<int64_t> HintsOf(const KernelIR& kernel) {
  std::vector<int64_t> hints;
  for (int i = 0; i < kernel.symbols.size(); ++i) hints.push_back(kernel.symbols.hint(i));
  return hints;
}

bool NeedsWide(const KernelIR& kernel, const int64_t* symbols) {
  const auto value = [&](int64_t number) { return kernel.symbols.empty() ? number : kernel.symbols.Decode(number).Evaluate(symbols); };
  int64_t points = 1;
  for (const int64_t size : kernel.sizes) points *= value(size);
  if (points > kNarrowElements) return true;
  for (const KBuffer& buffer : kernel.buffers) {
    int64_t extent = 0;
    for (size_t d = 0; d < kernel.sizes.size(); ++d) extent += value(kernel.sizes[d]) * std::abs(value(buffer.strides[d]));
    if (extent > kNarrowElements) return true;
  }
  return false;
}

std::string CudaPlan::Name() const {
  std::string name = "lazuli";
  std::vector<KOp> said;
  for (size_t i = 0; i < kernel.insts.size() && said.size() < 6; ++i) {
    const KOp op = kernel.insts[i].op;
    const bool plain = op == KOp::kLoad || op == KOp::kStore || op == KOp::kCheck || (op >= KOp::kConst && op <= KOp::kCast);
    if (!live[i] || plain || std::find(said.begin(), said.end(), op) != said.end()) continue;
    said.push_back(op);
    absl::StrAppend(&name, "_", KOpName(op));
  }
  return said.empty() ? "lazuli_copy" : name;
}

}  // namespace lazuli::codegen
