// The part of CudaFunctionEmitter that evaluates scans. A row's threads take its pieces in turns; of each turn, every thread scans the lanes
// of its piece, then the threads scan what these came to, and what came before the turn is put in front of all of it. A thread that has
// columns to itself goes through them one point after another.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "codegen/cuda/emit_cuda_function.h"
#include "codegen/cuda/emit_cuda_ops.h"

namespace lazuli::codegen {

bool CudaFunctionEmitter::HasScans(const std::vector<bool>& chosen, int pass) const {
  for (int i = 0; i < num_insts(); ++i) {
    if (chosen[i] && ScansIn(i, pass)) return true;
  }
  return false;
}

// a%: what has been scanned so far. h%: what each warp of a row came to, in one turn and in the next.
void CudaFunctionEmitter::BeginScans(const std::vector<bool>& chosen, int pass) {
  const int warps = phase_.threads_x / 32;
  const std::string rows = HasRowsOfWarps() ? absl::StrCat("[", phase_.threads_y, "]") : "";
  bool takes_turns = false;
  for (int i = 0; i < num_insts(); ++i) {
    if (!chosen[i] || !ScansIn(i, pass)) continue;
    const char* type = CudaType(inst(i).type);
    const int lanes = !plan_.rows && plan_.HasLanes(i) ? plan_.lanes : 1;
    const std::vector<std::string> starts(static_cast<size_t>(lanes), CudaIdentity(inst(i).op, inst(i).type));
    Line(absl::StrCat(type, " a", i, "[", lanes, "] = {", absl::StrJoin(starts, ", "), "};"));
    if (!plan_.rows || warps <= 1) continue;
    Line(absl::StrCat("__shared__ ", type, " h", i, rows, "[2][", warps, "];"));
    takes_turns = true;
  }
  if (takes_turns) Line("int turn = 0;");
}

void CudaFunctionEmitter::EmitScans(const std::vector<bool>& chosen, int pass) {
  const int threads = phase_.threads_x, warps = threads / 32;
  for (int i = 0; i < num_insts(); ++i) {
    if (!chosen[i] || !ScansIn(i, pass)) continue;
    std::vector<bool> needed(static_cast<size_t>(num_insts()), false);
    needed[inst(i).in[0]] = true;
    for (int k = i; k-- > 0;) {
      const bool goes_on = needed[k] && !ScansIn(k, pass) && !(IsScan(inst(k).op) || plan_.IsCachedBefore(k, pass));
      for (int operand = 0; goes_on && operand < KOpArity(inst(k).op); ++operand) needed[inst(k).in[operand]] = true;
    }
    Line(absl::StrCat(CudaType(inst(i).type), " e", i, "[", plan_.lanes, "];"));
    Line("#pragma unroll");
    Open(absl::StrCat("for (int v = 0; v < ", plan_.lanes, "; ++v)"));
    for (int k = 0; k < i; ++k) {
      if (needed[k] && chosen[k] && plan_.HasLanes(k) && drawn_by_[k] < 0) EmitValue(k, pass, /*in_lanes=*/true);
    }
    Line(absl::StrCat("e", i, "[v] = ", InLanes(), " ? ", Operand(inst(i).in[0], true), " : ", CudaIdentity(inst(i).op, inst(i).type), ";"));
    Close();
    const std::string shared = warps <= 1 ? absl::StrCat("(", CudaType(inst(i).type), "*)0")
                                          : absl::StrCat("h", i, HasRowsOfWarps() ? "[threadIdx.y]" : "", "[turn]");
    Line(absl::StrCat("scan<", threads, ", ", plan_.from_end ? "true" : "false", ">(e", i, ", a", i, "[0], ", shared, ", ",
                      CudaCombiner(inst(i).op), ", ", threads > 1 ? "mask" : "0u", ", [] { ", warps > 1 ? Barrier() : "", " });"));
  }
  if (warps > 1 && HasScans(chosen, pass)) Line("turn ^= 1;");
}

std::string CudaFunctionEmitter::ScanText(int i, bool in_lanes) {
  if (plan_.rows) return absl::StrCat("e", i, "[v]");
  const std::string scanned = absl::StrCat("a", i, "[", in_lanes && plan_.HasLanes(i) ? "v" : "0", "]");
  return absl::StrCat(scanned, " = ", CudaCombiner(inst(i).op), "(", Operand(inst(i).in[0], in_lanes), ", ", scanned, ")");
}

}  // namespace lazuli::codegen
