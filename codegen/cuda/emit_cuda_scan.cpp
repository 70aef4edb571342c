// The part of CudaFunctionEmitter that evaluates scans. The threads of a row, or of a column, take turns at its points in their order. In
// each turn every thread scans what it has, a row's piece or some of a column's points; then the threads are told what those before them
// came to, and what all turns before did.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "codegen/cuda/emit_cuda_function.h"
#include "codegen/cuda/emit_cuda_ops.h"

namespace lazuli::codegen {

std::vector<int> CudaFunctionEmitter::ScansOf(const std::vector<bool>& chosen) const {
  std::vector<int> scans;
  for (int i = 0; i < num_insts(); ++i) {
    if (chosen[i] && IsScan(inst(i).op)) scans.push_back(i);
  }
  return scans;
}

// a%: what has been scanned so far. h%: what each warp of a row, or each thread of a column came to, in one turn and in the next.
void CudaFunctionEmitter::BeginScans(const std::vector<int>& scans) {
  const int x = phase_.threads_x, y = phase_.threads_y;
  for (const int i : scans) {
    const char* type = CudaType(inst(i).type);
    const int lanes = plan_.rows ? 1 : ScanLanes(i);
    const std::vector<std::string> starts(static_cast<size_t>(lanes), CudaIdentity(inst(i).op, inst(i).type));
    Line(absl::StrCat(type, " a", i, "[", lanes, "] = {", absl::StrJoin(starts, ", "), "};"));
    if (!Syncs()) continue;
    const std::string rows = HasRowsOfWarps() ? absl::StrCat("[", y, "]") : "";
    Line(absl::StrCat("__shared__ ", type, " h", i, rows, "[2][", plan_.rows ? x / 32 : x * y * lanes, "];"));
  }
  if (Syncs()) Line("int turn = 0;");
}

std::string CudaFunctionEmitter::Scanned(int i, const std::string& lane) const { return absl::StrCat("e", i, "[u][", lane, "]"); }

// The operand of the scan, where there is a point.
void CudaFunctionEmitter::SetScanned(bool lanes) {
  const KInst& at = inst(scanned_);
  const std::string into = Scanned(scanned_, lanes ? "v" : "0"), valid = plan_.rows ? InLanes() : "at < end";
  Line(absl::StrCat(into, " = ", valid, " ? ", Operand(at.in[0], lanes), " : ", CudaIdentity(at.op, at.type), ";"));
}

void CudaFunctionEmitter::EmitOperand(int scan, const std::vector<bool>& chosen, int pass) {
  std::vector<bool> needed(static_cast<size_t>(num_insts()), false);
  needed[inst(scan).in[0]] = true;
  for (int i = scan; i-- > 0;) {
    const bool is_there = IsScan(inst(i).op) || plan_.IsCachedBefore(i, pass);
    for (int k = 0; needed[i] && !is_there && k < KOpArity(inst(i).op); ++k) needed[inst(i).in[k]] = true;
    needed[i] = needed[i] && chosen[i];
  }
  scanned_ = scan;
  EmitBlock(needed, std::vector<bool>(static_cast<size_t>(num_insts()), false), /*lanes=*/true, pass);
  scanned_ = -1;
}

void CudaFunctionEmitter::EmitScanLoop(const std::vector<bool>& chosen, const std::vector<bool>& effects, int pass,
                                       const std::vector<int>& scans) {
  const std::string own = plan_.rows ? "threadIdx.x" : "threadIdx.y";
  const int threads = plan_.rows ? phase_.threads_x : phase_.threads_y, points = plan_.scan_points;
  Open("");
  BeginScans(scans);
  Line(absl::StrCat("const U end = ", ReducedPieces(), ";"));
  Open(absl::StrCat("for (U base = 0; base < end; base += ", threads * points, ")"));
  const auto open_points = [&] {
    Line("#pragma unroll");
    Open(absl::StrCat("for (int u = 0; u < ", points, "; ++u)"));
    Line(absl::StrCat("const U at = base + ", own, " * ", points, " + u;"));
    Line(absl::StrCat("const U r = at < end ? ", plan_.from_end ? "end - 1 - at" : "at", " : 0;"));
    EmitCoordinates("(I)r", plan_.num_kept, plan_.rank);
    if (plan_.rows) EmitValidLanes("at < end");
  };
  for (int i = 0; i < num_insts(); ++i) {
    if (chosen[i] && IsStaged(i, pass)) Line(absl::StrCat(CudaMemoryType(inst(i).type), " l", i, "[", points, "][", plan_.lanes, "];"));
  }
  open_points();
  for (int i = 0; i < num_insts(); ++i) {
    if (chosen[i] && IsStaged(i, pass)) EmitVectorLoad(i, absl::StrCat("l", i, "[u]"));
  }
  Close();
  staged_ = true;
  for (const int i : scans) {
    Line(absl::StrCat(CudaType(inst(i).type), " e", i, "[", points, "][", ScanLanes(i), "];"));
    open_points();
    EmitOperand(i, chosen, pass);
    Close();
    const std::string shared = Syncs() ? absl::StrCat("h", i, HasRowsOfWarps() ? "[threadIdx.y]" : "", "[turn]")
                                       : absl::StrCat("(", CudaType(inst(i).type), "*)0");
    const std::string combine = CudaCombiner(inst(i).op);
    if (plan_.rows) {
      Line(absl::StrCat("scan<", threads, ", ", plan_.from_end ? "true" : "false", ">(e", i, "[0], a", i, "[0], ", shared, ", ", combine,
                        ", ", threads > 1 ? "mask" : "0u", ", [] { ", Syncs() ? Barrier() : "", " });"));
    } else {
      Line(absl::StrCat("scan_columns<", phase_.threads_x, ", ", threads, ">(e", i, ", a", i, ", ", shared, ", ", combine, ");"));
    }
  }
  open_points();
  if (!plan_.rows) Line("if (at >= end) continue;");
  EmitBlock(chosen, effects, /*lanes=*/true, pass);
  Close();
  staged_ = false;
  if (Syncs()) Line("turn ^= 1;");
  Close();
  Close();
}

}  // namespace lazuli::codegen
