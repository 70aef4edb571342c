// The part of CudaFunctionEmitter that writes where indices say.
#include "absl/strings/str_cat.h"
#include "codegen/cuda/emit_cuda_function.h"
#include "codegen/cuda/emit_cuda_ops.h"

namespace lazuli::codegen {

void CudaFunctionEmitter::EmitScatter(int i) {
  const KInst& at = inst(i);
  const int b = static_cast<int>(at.imm);
  const int64_t stride = buffer(b).strides[plan_.vector_dim];
  const std::string along = stride != 0 ? absl::StrCat(" + v * (i64)", Number(stride)) : "";
  const std::string place = absl::StrCat(Offset(b), " + ", Operand(at.in[1], true), along);
  const std::string value = CudaToMemory(at.type, Operand(at.in[0], true));
  const std::string condition = absl::StrCat("if (", InLanes(), " && ", Operand(at.in[2], true), ") ");
  if (at.op == KOp::kScatter) return Line(absl::StrCat(condition, "b", b, "[", place, "] = ", value, ";"));
  if (plan_.own_places[i] != 0) {
    const char* add = stride == 0 ? "add_alike(" : "add_at(";  // Neighbours with strides never go to one place.
    return Line(absl::StrCat(condition, add, "o", i, " + (int)(", place, "), ", value, ");"));
  }
  const char* add = at.type == c10::ScalarType::BFloat16 ? "add_bf16" : at.type == c10::ScalarType::Half ? "add_half" : "add_at";
  Line(absl::StrCat(condition, add, "(b", b, " + ", place, ", ", value, ");"));
}

bool CudaFunctionEmitter::AddsVectors(int i) const {
  return plan_.lanes > 1 && plan_.shift_buffer < 0 && plan_.own_places[i] == 0 && plan_.AddsNeighbours(i);
}

void CudaFunctionEmitter::BeginOwnPlaces() {
  if (!plan_.HasOwnPlaces()) return;
  for (int i = 0; i < num_insts(); ++i) {
    if (plan_.own_places[i] == 0) continue;
    Line(absl::StrCat("__shared__ ", CudaType(inst(i).type), " o", i, "[", plan_.own_places[i], "];"));
    Line(absl::StrCat("for (int e = threadIdx.x; e < ", plan_.own_places[i], "; e += ", phase_.threads_x, ") o", i, "[e] = 0;"));
  }
  Line("__syncthreads();");
}

// Places that nothing was added to stay as they are.
void CudaFunctionEmitter::AddOwnPlaces() {
  if (!plan_.HasOwnPlaces()) return;
  Line("__syncthreads();");
  for (int i = 0; i < num_insts(); ++i) {
    if (plan_.own_places[i] == 0) continue;
    Open(absl::StrCat("for (int e = threadIdx.x; e < ", plan_.own_places[i], "; e += ", phase_.threads_x, ")"));
    Line(absl::StrCat("if (o", i, "[e] != 0) add_at(b", inst(i).imm, " + e, o", i, "[e]);"));
    Close();
  }
}

}  // namespace lazuli::codegen
