// The part of CudaFunctionEmitter that combines what threads and blocks have accumulated.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "codegen/cuda/emit_cuda_function.h"
#include "codegen/cuda/emit_cuda_ops.h"
#include "codegen/emit_llvm_plan.h"

namespace lazuli::codegen {

// Rows: lanes are added up apart. Columns: each lane has its own result, if lanes differ at all.
int CudaFunctionEmitter::AccumulatorLanes(int reduce) const {
  if (plan_.IsOnlineMaximum(reduce)) return 1;
  return plan_.rows || plan_.HasLanes(reduce) ? plan_.lanes : 1;
}

void CudaFunctionEmitter::BeginAccumulators(int pass) {
  for (int i = 0; i < num_insts(); ++i) {
    if (!plan_.live[i] || !IsReduce(inst(i).op) || plan_.pass[i] != pass) continue;
    const std::string identity = CudaIdentity(inst(i).op, inst(i).type);
    std::string list = identity;
    for (int v = 1; v < AccumulatorLanes(i); ++v) absl::StrAppend(&list, ", ", identity);
    Line(absl::StrCat(CudaType(inst(i).type), " a", i, "[", AccumulatorLanes(i), "] = {", list, "};"));
  }
}

void CudaFunctionEmitter::Accumulate(int i) {
  if (plan_.IsOnlineSum(i)) return;
  if (plan_.IsOnlineMaximum(i)) {
    const std::string none = CudaIdentity(inst(i).op, inst(i).type);
    return Line(absl::StrCat("q", i, "[v] = ", InLanes(), " ? ", Operand(inst(i).in[0], true), " : ", none, ";"));
  }
  const std::string combine = CudaCombiner(inst(i).op), value = Operand(inst(i).in[0], true);
  const int lanes = AccumulatorLanes(i);
  if (plan_.rows) {
    const char* const near = SumsPicked(i) ? "near && " : "";
    Line(absl::StrCat("if (", near, InLanes(), ") a", i, "[v] = ", combine, "(", value, ", a", i, "[v]);"));
  } else if (lanes > 1 || plan_.lanes == 1) {
    Line(absl::StrCat("a", i, "[", lanes > 1 ? "v" : "0", "] = ", combine, "(", value, ", a", i, "[", lanes > 1 ? "v" : "0", "]);"));
  } else {
    Line(absl::StrCat("if (v == 0) a", i, "[0] = ", combine, "(", value, ", a", i, "[0]);"));
  }
}

// The lanes of maxima and of sums below them, all at once.
void CudaFunctionEmitter::AccumulateOnline(const std::vector<bool>& effects) {
  for (int i = 0; i < num_insts(); ++i) {
    if (!effects[i] || !plan_.IsOnlineSum(i)) continue;
    const int exp = inst(i).in[0], maximum = plan_.online[i];
    const bool rough = !plan_.rough.empty() && plan_.rough[exp];
    const std::string term = rough ? CudaRoughOp(KOp::kExp, "x", "") : CudaOp(inst(exp), inst(exp).type, "x", "", "");
    const char* const type = CudaType(inst(i).type);
    Line(absl::StrCat("online(q", maximum, ", a", maximum, "[0], a", i, ", [](", type, " x) { return ", term, "; });"));
  }
}

void CudaFunctionEmitter::Combine(const std::vector<int>& reduces) {
  if (!plan_.rows) return CombineInColumn(reduces);
  std::vector<int> first, online;
  for (const int i : reduces) (plan_.IsOnlineSum(i) ? online : first).push_back(i);
  CombineInRow(first);
  CombineInRow(online);
}

void CudaFunctionEmitter::CombineInRow(const std::vector<int>& reduces) {
  const int threads = phase_.threads_x, warps = threads / 32;
  int together = 1;  // A power of two.
  while (together < warps) together *= 2;
  const std::string rows = HasRowsOfWarps() ? absl::StrCat("[", phase_.threads_y, "]") : "", row = HasRowsOfWarps() ? "[threadIdx.y]" : "";
  for (const int i : reduces) {
    const std::string combine = CudaCombiner(inst(i).op);
    std::string own = absl::StrCat("lanes<", CudaType(inst(i).type), ">(a", i, ", ", combine, ")");
    // This thread's terms are below its own maximum.
    if (plan_.IsOnlineSum(i)) absl::StrAppend(&own, " * down(a", plan_.online[i], "[0], ", Value(plan_.online[i]), ")");
    const std::string all = threads > 1 ? absl::StrCat("warps<", std::min(threads, 32), ">(", own, ", ", combine, ", mask)") : own;
    Line(absl::StrCat(warps > 1 ? "" : "const ", CudaType(inst(i).type), " ", Value(i), " = ", all, ";"));
    if (warps <= 1) continue;
    Line(absl::StrCat("__shared__ ", CudaType(inst(i).type), " h", i, rows, "[", warps, "];"));
    Line(absl::StrCat("if (threadIdx.x % 32 == 0) h", i, row, "[threadIdx.x / 32] = ", Value(i), ";"));
  }
  if (warps <= 1 || reduces.empty()) return;
  Sync();
  for (const int i : reduces) {
    const std::string own = absl::StrCat("threadIdx.x % ", together), held = absl::StrCat("h", i, row, "[", own, "]");
    const std::string value =
        together == warps ? held : absl::StrCat(own, " < ", warps, " ? ", held, " : ", CudaIdentity(inst(i).op, inst(i).type));
    Line(absl::StrCat(Value(i), " = warps<", together, ">(", value, ", ", CudaCombiner(inst(i).op), ", mask);"));
  }
}

void CudaFunctionEmitter::CombineInColumn(const std::vector<int>& reduces) {
  const int x = phase_.threads_x, y = phase_.threads_y;
  for (const int i : reduces) {
    if (y == 1) continue;
    const int lanes = AccumulatorLanes(i);
    Line(absl::StrCat("__shared__ ", CudaType(inst(i).type), " h", i, "[", lanes, "][", y, "][", x, "];"));
    for (int v = 0; v < lanes; ++v) Line(absl::StrCat("h", i, "[", v, "][threadIdx.y][threadIdx.x] = a", i, "[", v, "];"));
  }
  if (y > 1 && !reduces.empty()) EmitTree(reduces);
  for (const int i : reduces) {
    const int lanes = AccumulatorLanes(i);
    const bool array = IsArray(i);
    Line(absl::StrCat(CudaType(inst(i).type), " ", Value(i), array ? absl::StrCat("[", lanes, "]") : "", ";"));
    for (int v = 0; v < lanes; ++v) {
      const std::string into = array ? absl::StrCat(Value(i), "[", v, "]") : Value(i);
      if (y == 1) {
        Line(absl::StrCat(into, " = a", i, "[", v, "];"));
        continue;
      }
      Line(absl::StrCat(into, " = h", i, "[", v, "][0][threadIdx.x];"));
    }
  }
}

// Halves of the block's rows of threads, what each of them holds is in shared memory, until one row is left.
void CudaFunctionEmitter::EmitTree(const std::vector<int>& reduces) {
  Line("__syncthreads();");
  Line("#pragma unroll");
  Open(absl::StrCat("for (int s = ", phase_.threads_y / 2, "; s > 0; s /= 2)"));
  Open("if (threadIdx.y < s)");
  for (const int i : reduces) {
    for (int v = 0; v < AccumulatorLanes(i); ++v) {
      const std::string column = absl::StrCat("h", i, "[", v, "]");
      Line(absl::StrCat(column, "[threadIdx.y][threadIdx.x] = ", CudaCombiner(inst(i).op), "(", column, "[threadIdx.y][threadIdx.x], ",
                        column, "[threadIdx.y + s][threadIdx.x]);"));
    }
  }
  Close();
  Line("__syncthreads();");
  Close();
}

void CudaFunctionEmitter::BeginPartialSums() {
  for (int i = 0; i < num_insts(); ++i) {
    if (inst(i).op != KOp::kPartialSum) continue;
    Line(absl::StrCat(CudaType(inst(i).type), " p", i, "[", plan_.iterations, "][", plan_.lanes, "] = {};"));
  }
}

// Each row of threads holds sums for all columns: those of a block are added up through shared memory.
void CudaFunctionEmitter::StorePartialSums() {
  const int x = phase_.threads_x, y = phase_.threads_y, columns = plan_.iterations * x * plan_.lanes;
  int64_t bytes = 0;
  for (const KInst& at : plan_.kernel.insts) {
    if (at.op == KOp::kPartialSum) bytes = std::max<int64_t>(bytes, ElementBytes(at.type));
  }
  if (bytes == 0) return;
  CatchUpSyncs();
  const std::string size = Number(plan_.kernel.sizes[plan_.vector_dim]);
  Line(absl::StrCat("__shared__ __align__(16) unsigned char sums[", bytes * y * columns, "];"));
  for (int i = 0; i < num_insts(); ++i) {
    if (inst(i).op != KOp::kPartialSum) continue;
    const char* type = CudaType(inst(i).type);
    Open("");
    Line(absl::StrCat(type, "(* const all)[", columns, "] = (", type, "(*)[", columns, "])sums;"));
    Line("__syncthreads();");
    Line("#pragma unroll");
    Line(absl::StrCat("for (int it = 0; it < ", plan_.iterations, "; ++it)"));
    Line("#pragma unroll");
    Line(absl::StrCat("  for (int v = 0; v < ", plan_.lanes, "; ++v) all[threadIdx.y][(it * ", x, " + threadIdx.x) * ", plan_.lanes,
                      " + v] = p", i, "[it][v];"));
    Line("__syncthreads();");
    Open(absl::StrCat("for (int c = threadIdx.y * ", x, " + threadIdx.x; c < ", size, "; c += ", x * y, ")"));
    Line(absl::StrCat(type, " sum = all[0][c];"));
    Line("#pragma unroll");
    Line(absl::StrCat("for (int r = 1; r < ", y, "; ++r) sum += all[r][c];"));
    Line(absl::StrCat("b", inst(i).imm, "[(i64)blockIdx.x * ", size, " + c] = sum;"));
    Close();
    Close();
  }
}

// The number of the kept point of a lane.
std::string CudaFunctionEmitter::KeptPoint(const std::string& lane) const {
  if (plan_.num_kept == 0) return "0";
  std::string text;
  for (int d = 0; d < plan_.num_kept; ++d) {
    text = d == 0 ? absl::StrCat("(i64)i", d) : absl::StrCat("(", text, " * ", Number(plan_.kernel.sizes[d]), " + i", d, ")");
  }
  return lane.empty() ? text : absl::StrCat(text, " + ", lane);
}

void CudaFunctionEmitter::StorePartials(const std::vector<int>& reduces) {
  if (reduces.empty()) return;
  Open(plan_.rows ? "if (threadIdx.x == 0)" : "if (threadIdx.y == 0)");
  const std::string split = absl::StrCat("(i64)split * ", ProductText(plan_.launch.kept_points, true), " + ");
  for (const int i : reduces) {
    if (plan_.rows) {
      Line(absl::StrCat("w", i, "[", split, KeptPoint(""), "] = ", CudaToMemory(inst(i).type, Value(i)), ";"));
      continue;
    }
    Line(absl::StrCat("for (int v = 0; v < n; ++v) w", i, "[", split, KeptPoint("v"),
                      "] = ", CudaToMemory(inst(i).type, IsArray(i) ? Value(i) + "[v]" : Value(i)), ";"));
  }
  Close();
}

// Threads take turns at the parts as they do at points. `guarded`: not all lanes are points, as in few threads.
void CudaFunctionEmitter::EmitPartialsLoop(const std::vector<int>& reduces, bool guarded) {
  const std::string own = plan_.rows ? "threadIdx.x" : "threadIdx.y";
  const int threads = plan_.rows ? phase_.threads_x : phase_.threads_y;
  Line(guarded ? "#pragma unroll 1" : "#pragma unroll 4");
  Open(absl::StrCat("for (int p = ", own, "; p < splits; p += ", threads, ")"));
  const std::string split = absl::StrCat("(i64)p * ", ProductText(plan_.launch.kept_points, true), " + ");
  for (const int i : reduces) {
    const std::string combine = CudaCombiner(inst(i).op);
    const int lanes = plan_.rows ? 1 : AccumulatorLanes(i);
    if (lanes > 1) Line("#pragma unroll");
    const std::string v = lanes > 1 ? "v" : "0";
    std::string head = lanes > 1 ? absl::StrCat("for (int v = 0; v < ", lanes, "; ++v) ") : "";
    if (guarded) absl::StrAppend(&head, lanes > 1 ? "if (v < n) " : "if (n > 0) ");
    const std::string part = CudaFromMemory(inst(i).type, absl::StrCat("w", i, "[", split, KeptPoint(lanes > 1 ? "v" : ""), "]"));
    Line(absl::StrCat(head, "a", i, "[", v, "] = ", combine, "(", part, ", a", i, "[", v, "]);"));
  }
  Close();
}

// Reductions that earlier functions have left in parts. Without a condition at every part, several are loaded at once.
void CudaFunctionEmitter::LoadPartials(int stage) {
  std::vector<int> reduces;
  for (int i = 0; i < num_insts(); ++i) {
    if (IsReduce(inst(i).op) && needs_[i] && plan_.stage[i] == stage && stage <= begin_) reduces.push_back(i);
  }
  if (reduces.empty()) return;
  BeginAccumulators(stage - 1);
  if (plan_.rows) {
    EmitPartialsLoop(reduces, /*guarded=*/false);
  } else {
    Open(absl::StrCat("if (n == ", plan_.lanes, ")"));
    EmitPartialsLoop(reduces, /*guarded=*/false);
    Close();
    Open("else");
    EmitPartialsLoop(reduces, /*guarded=*/true);
    Close();
  }
  Combine(reduces);
}

}  // namespace lazuli::codegen
