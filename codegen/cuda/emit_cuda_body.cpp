// The part of CudaFunctionEmitter that evaluates instructions at points, and writes what they store.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "codegen/cuda/emit_cuda_function.h"
#include "codegen/cuda/emit_cuda_ops.h"
#include "codegen/emit_llvm_plan.h"

namespace lazuli::codegen {

// `in_row`: with the part along the vector loop.
std::string CudaFunctionEmitter::Offset(int b, bool in_row) const {
  std::string text;
  for (int d = 0; d < plan_.rank; ++d) {
    const int64_t stride = buffer(b).strides[d];
    if (stride == 0 || (!in_row && d == plan_.vector_dim)) continue;
    absl::StrAppend(&text, text.empty() ? "" : " + ", "i", d);
    if (stride != 1) absl::StrAppend(&text, " * ", Number(stride));
  }
  return text.empty() ? "0" : text;
}

std::string CudaFunctionEmitter::Operand(int i, bool in_lanes) const {
  return in_lanes && IsArray(i) ? absl::StrCat(Value(i), "[v]") : Value(i);
}

// Of a kIndex, in the type of coordinates.
std::string CudaFunctionEmitter::Coordinate(int i) const {
  const int64_t dim = inst(i).imm;
  return dim == plan_.vector_dim ? absl::StrCat("(i", dim, " + v)") : absl::StrCat("i", dim);
}

// By how much a sum of coordinates grows from lane to lane. None: by other than a constant, or by nobody knows what.
std::optional<int64_t> CudaFunctionEmitter::StepAlongLanes(int i) const {
  const KInst& at = inst(i);
  if (!plan_.HasLanes(i)) return 0;
  if (at.op == KOp::kIndex) return 1;
  if (at.op != KOp::kAdd && at.op != KOp::kMul) return std::nullopt;
  const std::optional<int64_t> a = StepAlongLanes(at.in[0]), b = StepAlongLanes(at.in[1]);
  if (!a.has_value() || !b.has_value()) return std::nullopt;
  if (at.op == KOp::kAdd) return *a + *b;
  const KInst& factor = inst(at.in[1]);
  if (factor.op != KOp::kConst) return std::nullopt;
  return *a * factor.imm;
}

// Whether it is a Float as BFloat16 or Half can hold it.
bool CudaFunctionEmitter::RoundsToHalf(int i) const {
  const KInst& at = inst(i);
  if (at.op != KOp::kCast || at.type != c10::ScalarType::Float) return false;
  const KInst& half = inst(at.in[0]);
  return half.op == KOp::kCast && c10::isReducedFloatingType(half.type) && inst(half.in[0]).type == c10::ScalarType::Float &&
         !plan_.cached[at.in[0]];
}

// Of an instruction that touches no memory.
std::string CudaFunctionEmitter::Expression(int i) const {
  const KInst& at = inst(i);
  const auto operand = [&](int k) { return at.in[k] < 0 ? std::string() : Operand(at.in[k], plan_.HasLanes(i)); };
  const auto operation = [&] {
    if (!plan_.rough.empty() && plan_.rough[i]) return CudaRoughOp(at.op, operand(0), operand(1));
    return CudaOp(at, inst(at.in[0]).type, operand(0), operand(1), operand(2));
  };
  switch (at.op) {
    case KOp::kConst:
      return CudaConstant(at.type, at.imm);
    case KOp::kScalar:
      if (c10::isFloatingType(at.type)) return absl::StrCat("(", CudaType(at.type), ")__longlong_as_double(x", at.imm, ")");
      return CudaCast(c10::ScalarType::Long, at.type, absl::StrCat("x", at.imm));
    case KOp::kIndex:
      return absl::StrCat("(i64)", Coordinate(i));
    case KOp::kSize:
      return CudaCast(c10::ScalarType::Long, at.type, Number(at.imm, /*wide=*/true));
    case KOp::kUniform:
    case KOp::kNormal:
      // Lanes are drawn together where they are neighbouring elements.
      return absl::StrCat(KOpName(at.op), "<", UniformVector(at.imm), ">(g", i, ", ", StepAlongLanes(at.in[0]) == 1 ? "v" : "0", ", ",
                          operand(0), ", f", i, ", x", UniformScalar(at.imm), ")");
    case KOp::kCast:
      if (RoundsToHalf(i)) {
        const char* const round = inst(at.in[0]).type == c10::ScalarType::Half ? "rh(" : "rb(";
        return absl::StrCat(round, Operand(inst(at.in[0]).in[0], plan_.HasLanes(i)), ")");
      }
      return operation();
    case KOp::kEq:
    case KOp::kNe:
      for (const int k : {0, 1}) {
        if (inst(at.in[k]).op != KOp::kIndex || inst(at.in[1 - k]).op == KOp::kIndex) continue;
        const std::string is_at = absl::StrCat("is_at(", operand(1 - k), ", ", Coordinate(at.in[k]), ")");
        const bool picks = picks_ && PickedNumber(i) >= 0;
        const std::string found = picks ? absl::StrCat("(near && ", is_at, ")") : is_at;
        return absl::StrCat(at.op == KOp::kNe ? "!" : "", found);
      }
      return operation();
    case KOp::kDiv:
      // By what is no constant: 64 bits take several times as long as 32, and are seldom needed.
      if (at.type == c10::ScalarType::Long && inst(at.in[1]).op != KOp::kConst) {
        return absl::StrCat("quotient(", operand(0), ", ", operand(1), ")");
      }
      return operation();
    default:
      return operation();
  }
}

// Loads into m%, ahead of the loop over lanes, or the value itself where all lanes have the same.
void CudaFunctionEmitter::EmitLoad(int i, int pass, bool lanes) {
  const int b = static_cast<int>(inst(i).imm);
  const char* type = CudaMemoryType(inst(i).type);
  if (!lanes || !plan_.HasLanes(i)) {
    Line(absl::StrCat("const ", CudaType(inst(i).type), " ", Value(i), " = ",
                      CudaFromMemory(inst(i).type, absl::StrCat("b", b, "[", Offset(b), "]")), ";"));
    return;
  }
  const std::string own = absl::StrCat("m", i);
  if (plan_.tiled[i]) return Line(absl::StrCat("const ", type, " ", own, "[1] = {h", i, "[threadIdx.x][j]};"));
  const bool in_registers = pass >= 0 && plan_.IsInRegisters(i), in_row = pass >= 0 && plan_.IsInRow(i);
  const std::string in_memory = absl::StrCat("(", type, "*)(row + ", plan_.row_place[i], ") + r * ", plan_.lanes);
  if (staged_ && IsStaged(i, pass)) {
    Line(absl::StrCat("auto& ", own, " = l", i, "[u];"));
  } else if (in_registers && !plan_.IsPacked(i)) {
    EmitVectorLoad(i, absl::StrCat("c", i, "[it]"));
  } else {
    Line(absl::StrCat(type, " ", own, "[", plan_.lanes, "];"));
    if (in_row && plan_.IsCachedBefore(i, pass)) {
      return Line(absl::StrCat("ld<false>(", own, ", ", in_memory, ", true, ", plan_.lanes, ");"));
    }
    EmitVectorLoad(i, own);
  }
  if (in_registers && plan_.IsPacked(i)) Line(absl::StrCat("pack(c", i, "[it], ", own, ");"));
  if (in_row) Line(absl::StrCat(plan_.has_scans ? "if (at < end) " : "", "st(", in_memory, ", ", own, ", true, ", plan_.lanes, ");"));
}

// Into an array of that name.
void CudaFunctionEmitter::EmitVectorLoad(int i, const std::string& into) {
  const int b = static_cast<int>(inst(i).imm);
  const int64_t stride = buffer(b).strides[plan_.vector_dim];
  const bool gathers = inst(i).op == KOp::kGather;
  const std::string place = absl::StrCat("b", b, " + (", Offset(b), gathers ? absl::StrCat(" + ", Operand(inst(i).in[0], false)) : "", ")");
  if (stride != 1) return Line(absl::StrCat("lds(", into, ", ", place, ", (i64)", Number(stride), ", n);"));
  // Where it gathers, each place is asked for its alignment.
  const std::string fast = plan_.lanes == 1 ? "true"
                           : gathers        ? absl::StrCat("aligned<", plan_.lanes * ElementBytes(inst(i).type), ">(", place, ")")
                                            : absl::StrCat("fast", b);
  // Threads that a row has no piece for read its first one.
  const std::string lanes = plan_.rows && plan_.iterations > 0 && plan_.HasWholePieces() ? absl::StrCat(plan_.lanes) : LaneRange();
  Line(absl::StrCat("ld<", buffer(b).written ? "false" : "true", ">(", into, ", ", place, ", ", fast, ", ", lanes, ");"));
}

// Defines t%.
void CudaFunctionEmitter::EmitValue(int i, int pass, bool in_lanes) {
  if (IsRandom(inst(i).op) && !(pass >= 0 && plan_.IsCachedBefore(i, pass))) EmitPlace(i, pass, in_lanes);
  const std::string type = CudaType(inst(i).type);
  const bool cached = pass >= 0 && plan_.IsInRegisters(i);
  const std::string kept =
      plan_.IsPacked(i) ? absl::StrCat("(", CudaMemoryType(inst(i).type), ")part(c", i, "[it], v)") : absl::StrCat("c", i, "[it][v]");
  std::string value;
  if (cached && plan_.IsCachedBefore(i, pass)) {
    value = CudaFromMemory(inst(i).type, kept);
  } else if (plan_.IsVectorLoad(i)) {
    value = CudaFromMemory(inst(i).type, cached && !plan_.IsPacked(i) ? kept : absl::StrCat("m", i, "[v]"));
  } else if (inst(i).op == KOp::kGather) {
    const int b = static_cast<int>(inst(i).imm);
    const int64_t stride = buffer(b).strides[plan_.vector_dim];
    const std::string along = in_lanes && stride != 0 ? absl::StrCat(" + v * (i64)", Number(stride)) : "";
    const std::string place = absl::StrCat("b", b, "[", Offset(b), " + ", Operand(inst(i).in[0], in_lanes), along, "]");
    value = CudaFromMemory(inst(i).type,
                           in_lanes ? absl::StrCat("(", InLanes(), " ? ", place, " : (", CudaMemoryType(inst(i).type), ")0)") : place);
  } else {
    value = IsScan(inst(i).op) ? Scanned(i, in_lanes ? "v" : "0") : Expression(i);
  }
  if (in_lanes && IsArray(i)) {
    Line(absl::StrCat(Value(i), "[v] = ", value, ";"));
  } else {
    Line(absl::StrCat("const ", type, " ", Value(i), " = ", value, ";"));
  }
  if (cached && !plan_.IsCachedBefore(i, pass) && !plan_.IsVectorLoad(i)) {
    Line(absl::StrCat(kept, " = ", CudaToMemory(inst(i).type, Value(i)), ";"));
  }
}

// Values of lanes that are drawn together need not all be numbered. Users come after what they use, so that all of them are known first.
void CudaFunctionEmitter::FindDrawn() {
  constexpr int kNobody = -1, kUnused = -2;
  drawn_by_.assign(num_insts(), kUnused);
  for (int i = num_insts(); i-- > 0;) {
    const bool stays = HasBuffer(inst(i).op) || IsReduce(inst(i).op) || plan_.cached[i] || IsArray(i) || !plan_.HasLanes(i);
    if (stays || drawn_by_[i] == kUnused) drawn_by_[i] = kNobody;
    for (int k = 0; k < KOpArity(inst(i).op); ++k) {
      const int user = IsRandom(inst(i).op) && k > 0 ? i : drawn_by_[i];
      int& operand = drawn_by_[inst(i).in[k]];
      operand = operand == kUnused || operand == user ? user : kNobody;
    }
  }
}

void CudaFunctionEmitter::EmitPlace(int i, int pass, bool in_lanes) {
  Open(absl::StrCat("const auto f", i, " = [&](i64& number, i64& sequence)"));
  for (int k = 0; k < i; ++k) {
    if (drawn_by_[k] == i) EmitValue(k, pass, in_lanes);
  }
  Line(absl::StrCat("number = ", Operand(inst(i).in[1], in_lanes), ";"));
  Line(absl::StrCat("sequence = ", Operand(inst(i).in[2], in_lanes), ";"));
  Close();
  Line(";");
}

// The GPU says it on the program's standard error; the error that the program gets later only says that something was.
std::string CudaFunctionEmitter::Check(const std::string& valid) const {
  const std::string& checked = plan_.kernel.checked;
  return absl::StrCat("check(", valid, ", \"", checked, checked.empty() ? "" : ": ", "index or value out of bounds\");");
}

void CudaFunctionEmitter::EmitLaneEffect(int i) {
  const KInst& at = inst(i);
  if (IsReduce(at.op)) return Accumulate(i);
  if (at.op == KOp::kStore || AddsVectors(i)) {
    Line(absl::StrCat("y", i, "[v] = ", CudaToMemory(at.type, Operand(at.in[0], true)), ";"));
    return;
  }
  if (at.op == KOp::kCheck) return Line(absl::StrCat("if (", InLanes(), ") ", Check(Operand(at.in[0], true))));
  if (at.op == KOp::kPartialSum) return Line(absl::StrCat("if (", InLanes(), ") p", i, "[it][v] += ", Operand(at.in[0], true), ";"));
  EmitScatter(i);
}

void CudaFunctionEmitter::EmitStores(const std::vector<bool>& effects, bool lanes) {
  for (int i = 0; lanes && i < num_insts(); ++i) {
    if (!effects[i] || (inst(i).op != KOp::kStore && !AddsVectors(i))) continue;
    const KInst& at = inst(i);
    const int b = static_cast<int>(at.imm);
    const int64_t stride = buffer(b).strides[plan_.vector_dim];
    const std::string further = at.op == KOp::kStore ? "" : absl::StrCat(" + ", Operand(at.in[1], false));
    const std::string place = absl::StrCat("b", b, " + (", Offset(b), further, "), y", i);
    if (at.op != KOp::kStore) {
      Line(absl::StrCat("if (", Operand(at.in[2], false), ") add_vector(", place, ", n);"));
    } else if (stride == 1) {
      Line(absl::StrCat("st(", place, ", ", plan_.lanes > 1 ? absl::StrCat("fast", b) : "true", ", ", LaneRange(), ");"));
    } else {
      Line(absl::StrCat("sts(", place, ", (i64)", Number(stride), ", n);"));
    }
  }
}

void CudaFunctionEmitter::EmitUniformEffect(int i) {
  const KInst& at = inst(i);
  if (at.op == KOp::kCheck) return Line(Check(Value(at.in[0])));
  Line(absl::StrCat("b", at.imm, "[", Offset(static_cast<int>(at.imm)), "] = ", CudaToMemory(at.type, Value(at.in[0])), ";"));
}

// Values that all lanes share first, then whole vectors from memory, then lane by lane.
void CudaFunctionEmitter::EmitBlock(const std::vector<bool>& chosen, const std::vector<bool>& effects, bool lanes, int pass) {
  bool any = scanned_ >= 0 && plan_.HasLanes(scanned_);
  for (int i = 0; i < num_insts(); ++i) any |= effects[i] || (chosen[i] && plan_.HasLanes(i));
  for (int i = 0; i < num_insts(); ++i) {
    if (chosen[i] && IsRandom(inst(i).op)) Line(absl::StrCat("Philox g", i, ";"));
  }
  const auto is_cached = [&](int i) { return pass >= 0 && plan_.IsCachedBefore(i, pass); };
  for (int i = 0; i < num_insts(); ++i) {
    if (!chosen[i] || (lanes && plan_.HasLanes(i))) continue;
    if (inst(i).op == KOp::kLoad) {
      EmitLoad(i, pass, lanes);
    } else {
      EmitValue(i, pass, /*in_lanes=*/false);
    }
  }
  if (!lanes) {
    for (int i = 0; i < num_insts(); ++i) {
      if (effects[i]) EmitUniformEffect(i);
    }
    return;
  }
  for (int i = 0; i < num_insts(); ++i) {
    if (!chosen[i] || !plan_.HasLanes(i)) continue;
    if (IsArray(i)) Line(absl::StrCat(CudaType(inst(i).type), " ", Value(i), "[", plan_.lanes, "];"));
    if (plan_.IsVectorLoad(i) && (!is_cached(i) || plan_.IsInRow(i))) EmitLoad(i, pass, lanes);
  }
  for (int i = 0; i < num_insts(); ++i) {
    if (effects[i] && (inst(i).op == KOp::kStore || AddsVectors(i)))
      Line(absl::StrCat(CudaMemoryType(inst(i).type), " y", i, "[", plan_.lanes, "];"));
    if (effects[i] && plan_.IsOnlineMaximum(i)) Line(absl::StrCat(CudaType(inst(i).type), " q", i, "[", plan_.lanes, "];"));
  }
  if (scanned_ >= 0 && !plan_.HasLanes(scanned_)) SetScanned(/*lanes=*/false);
  if (!any) return;
  const std::string picked = PickCondition(chosen);
  picks_ = !picked.empty();
  if (picks_) Open("const auto each = [&](const bool near)");
  Line("#pragma unroll");
  Open(absl::StrCat("for (int v = 0; v < ", plan_.lanes, "; ++v)"));
  for (int i = 0; i < num_insts(); ++i) {
    if (chosen[i] && plan_.HasLanes(i) && drawn_by_[i] < 0) EmitValue(i, pass, /*in_lanes=*/true);
    if (effects[i]) EmitLaneEffect(i);
  }
  if (scanned_ >= 0 && plan_.HasLanes(scanned_)) SetScanned(/*lanes=*/true);
  Close();
  if (std::exchange(picks_, false)) {
    Close();
    Line(";");
    Line(absl::StrCat("if (", picked, ") each(true); else each(false);"));
  }
  AccumulateOnline(effects);
  EmitStores(effects, lanes);
}

void CudaFunctionEmitter::EmitKeptStage(int stage) {
  std::vector<bool> chosen(num_insts(), false);
  const std::vector<bool> none(num_insts(), false);
  bool any = false;
  for (int i = 0; i < num_insts(); ++i) {
    chosen[i] = needs_[i] && plan_.stage[i] == stage && !plan_.IsFull(i) && !HasEffect(inst(i).op) && !IsReduce(inst(i).op);
    any |= chosen[i];
  }
  if (!any) return;
  // Where there is one block, effects come with it.
  if (!Reduces()) return;
  EmitBlock(chosen, none, /*lanes=*/!plan_.rows, -1);
}

void CudaFunctionEmitter::EmitKeptEffects() {
  std::vector<bool> chosen(num_insts(), false), effects(num_insts(), false);
  bool any = false, in_place = false;
  for (int i = 0; i < num_insts(); ++i) {
    if (!plan_.live[i]) continue;
    effects[i] = HasEffect(inst(i).op) && plan_.pass[i] < 0;
    any |= effects[i];
    if (!Reduces()) chosen[i] = !HasEffect(inst(i).op);
    if (!effects[i] || inst(i).op != KOp::kStore) continue;
    for (int j = 0; j < i; ++j) in_place |= inst(j).op == KOp::kLoad && inst(j).imm == inst(i).imm;
  }
  if (!any) return;
  if (!Reduces()) return EmitBlock(chosen, effects, /*lanes=*/true, -1);
  // Until all threads have read what is overwritten.
  if (in_place && Syncs()) Sync();
  if (in_place && !Syncs() && plan_.rows && phase_.threads_x > 1) Line("__syncwarp(mask);");
  Open(plan_.rows ? "if (threadIdx.x == 0)" : "if (threadIdx.y == 0)");
  EmitBlock(chosen, effects, /*lanes=*/!plan_.rows, -1);
  Close();
}

void CudaFunctionEmitter::EmitPass(int pass) {
  std::vector<bool> chosen = plan_.pass_needs[pass], effects(num_insts(), false);
  std::vector<int> reduces;
  for (int i = 0; i < num_insts(); ++i) {
    effects[i] = plan_.live[i] && plan_.pass[i] == pass;
    if (effects[i] && IsReduce(inst(i).op)) reduces.push_back(i);
  }
  if (std::find(effects.begin(), effects.end(), true) == effects.end()) return;  // Done by an earlier one (online_sums.h).
  for (int i = 0; i < num_insts(); ++i) {
    if (!plan_.IsInRegisters(i) || plan_.cache_pass[i] != pass) continue;
    const bool packed = plan_.IsPacked(i);
    Line(absl::StrCat(packed ? "unsigned" : CudaMemoryType(inst(i).type), " c", i, "[", plan_.iterations, "][",
                      packed ? plan_.lanes / 2 : plan_.lanes, "];"));
  }
  BeginAccumulators(pass);
  const std::vector<int> scans = ScansOf(chosen);
  if (!scans.empty()) {
    EmitScanLoop(chosen, effects, pass, scans);
    return Combine(reduces);
  }
  const std::optional<std::vector<int>> aligned = WholeVectors(chosen, effects, pass);
  const auto scheduled = [&](int turns) { return std::max(1, CudaSchedule::Shift(turns, plan_.schedule.unroll)); };
  const int unroll = scheduled(!plan_.IsLight(pass) ? 1 : plan_.lanes == 1 ? 8 : 4);
  if (aligned.has_value()) {
    // Where these are constants, no load has a condition, and those of several turns are under way at once.
    std::vector<std::string> conditions;
    for (const int b : *aligned) conditions.push_back(absl::StrCat("fast", b));
    if (!plan_.rows) conditions.push_back(absl::StrCat("n == ", plan_.lanes));
    Open(absl::StrCat("if (", absl::StrJoin(conditions, " && "), ")"));
    for (const int b : *aligned) Line(absl::StrCat("const bool fast", b, " = true;"));
    if (!plan_.rows) Line(absl::StrCat("const int n = ", plan_.lanes, ";"));
    EmitReducedLoop(chosen, effects, pass, plan_.rows ? unroll : scheduled(aligned->size() > 1 ? 4 : 8), /*staged=*/true);
    Close();
    Open("else");
  }
  // What is left to memory that begins between two vectors is rarely run, and would be half of what there is to compile.
  const bool is_rare = aligned.has_value() && std::all_of(aligned->begin(), aligned->end(), [this](int b) { return KeepsVectorsApart(b); });
  EmitReducedLoop(chosen, effects, pass, is_rare ? 1 : unroll, /*staged=*/false);
  if (aligned.has_value()) Close();
  Combine(reduces);
  if (phase_.split) StorePartials(reduces);
}

// The buffers of which a pass loads and stores vectors and nothing else; none where it does otherwise, too, and where not all pieces of a
// row are whole. Single elements need not be aligned.
std::optional<std::vector<int>> CudaFunctionEmitter::WholeVectors(const std::vector<bool>& chosen, const std::vector<bool>& effects,
                                                                  int pass) const {
  if (plan_.rows && (plan_.lanes == 1 || !plan_.HasWholePieces() || plan_.iterations > 0)) return std::nullopt;
  std::vector<int> aligned;
  for (int i = 0; i < num_insts(); ++i) {
    if (!(chosen[i] || effects[i]) || !plan_.HasLanes(i) || !HasBuffer(inst(i).op)) continue;
    if (plan_.IsInRow(i) && plan_.IsCachedBefore(i, pass)) continue;
    if (inst(i).op != KOp::kLoad && inst(i).op != KOp::kStore) return std::nullopt;
    if (plan_.lanes == 1) continue;
    const int b = static_cast<int>(inst(i).imm);
    if (buffer(b).strides[plan_.vector_dim] != 1) return std::nullopt;
    if (std::find(aligned.begin(), aligned.end(), b) == aligned.end()) aligned.push_back(b);
  }
  return plan_.rows && aligned.empty() ? std::nullopt : std::optional(aligned);
}

// A load of the whole vectors of a pass that comes ahead of what is done with it.
bool CudaFunctionEmitter::IsStaged(int i, int pass) const {
  return inst(i).op == KOp::kLoad && plan_.HasLanes(i) && !(plan_.IsInRow(i) && plan_.IsCachedBefore(i, pass));
}

// Whether warps that have nothing to do in the last turn of an unrolled loop do not take it. What costs more than that saves: loads that
// are not under way with those of other turns, where little is computed meanwhile, and what is kept of several tensors.
bool CudaFunctionEmitter::SkipsLastTurn(const std::vector<bool>& chosen, int pass) const {
  const int64_t threads = phase_.threads_x, last = plan_.launch.reduced.Count(nullptr) - (plan_.iterations - 1) * threads;
  if (!plan_.rows || plan_.iterations < 2 || threads <= 32 || 2 * last > threads) return false;
  int kept = 0;
  bool loads = false;
  for (int i = 0; i < num_insts(); ++i) {
    kept += plan_.live[i] && plan_.cached[i] && plan_.IsVectorLoad(i) ? 1 : 0;
    loads |= chosen[i] && IsLoad(inst(i).op) && plan_.HasLanes(i) && !plan_.IsCachedBefore(i, pass);
  }
  return kept <= 1 && !(loads && plan_.IsLight());
}

// A row's own number, where rows differ.
std::string CudaFunctionEmitter::ReducedPieces() const {
  return plan_.rows && plan_.shift_buffer >= 0 ? "(U)pieces" : absl::StrCat("(U)(", ChunksText(plan_.num_kept, plan_.rank), ")");
}

void CudaFunctionEmitter::EmitReducedLoop(const std::vector<bool>& chosen, const std::vector<bool>& effects, int pass, int unroll,
                                          bool staged) {
  const std::string own = plan_.rows ? "threadIdx.x" : "threadIdx.y";
  const int threads = plan_.rows ? phase_.threads_x : phase_.threads_y;
  const std::string chunks = ReducedPieces();
  std::string valid, begin = own, end = chunks;
  const auto turn = [&] {
    EmitCoordinates("(I)r", plan_.num_kept, plan_.rank);
    if (plan_.rows) EmitValidLanes(valid);
  };
  if (plan_.iterations > 0) {
    Line("#pragma unroll");
    Open(absl::StrCat("for (int it = 0; it < ", plan_.iterations, "; ++it)"));
    Line(absl::StrCat("const U at = ", own, " + it * ", threads, ";"));
    const bool exact = plan_.shift_buffer < 0 && plan_.launch.reduced.Count(nullptr) == static_cast<int64_t>(plan_.iterations) * threads;
    if (!exact) valid = absl::StrCat("at < ", chunks);
    if (!exact && SkipsLastTurn(chosen, pass)) {
      Line(absl::StrCat("if (it == ", plan_.iterations - 1, " && at >= ", chunks, ") continue;"));
    }
    Line(exact ? "const U r = at;" : absl::StrCat("const U r = ", valid, " ? at : 0;"));
    turn();
    EmitBlock(chosen, effects, /*lanes=*/true, pass);
    return Close();
  }
  Open("");
  if (phase_.split) {
    // CudaLaunch::SplitChunks.
    const int64_t turns = threads * CudaLaunch::kSplitUnroll;
    Line(absl::StrCat("U part = (", chunks, " + splits - 1) / splits;"));
    Line(absl::StrCat("if (2 * part > ", turns, ") part = (part + ", turns - 1, ") / ", turns, " * ", turns, ";"));
    begin = absl::StrCat("part * split + ", own);
    end = absl::StrCat("min(", chunks, ", part * (split + 1))");
  }
  Line(absl::StrCat("const U end = ", end, ";"));
  Line(absl::StrCat("U r = ", begin, ";"));
  if (staged && unroll > 1) EmitStagedTurns(chosen, effects, pass, unroll, threads);
  if (!staged && unroll > 1) Line(absl::StrCat("#pragma unroll ", unroll));
  Open(absl::StrCat("for (; r < end; r += ", threads, ")"));
  turn();
  EmitBlock(chosen, effects, /*lanes=*/true, pass);
  Close();
  Close();
}

// Several turns at once as long as there are so many: all that they load, and then what is done with it. A compiler that is left to itself
// waits for each load before it starts the next but one.
void CudaFunctionEmitter::EmitStagedTurns(const std::vector<bool>& chosen, const std::vector<bool>& effects, int pass, int turns,
                                          int threads) {
  Open(absl::StrCat("for (; r + ", (turns - 1) * threads, " < end; r += ", turns * threads, ")"));
  Line("const U first = r;");
  const auto open_turn = [&] {
    Line("#pragma unroll");
    Open(absl::StrCat("for (int u = 0; u < ", turns, "; ++u)"));
    Line(absl::StrCat("const U r = first + u * ", threads, ";"));
    EmitCoordinates("(I)r", plan_.num_kept, plan_.rank);
    if (plan_.rows) EmitValidLanes("");
  };
  for (int i = 0; i < num_insts(); ++i) {
    if (chosen[i] && IsStaged(i, pass)) Line(absl::StrCat(CudaMemoryType(inst(i).type), " l", i, "[", turns, "][", plan_.lanes, "];"));
  }
  open_turn();
  for (int i = 0; i < num_insts(); ++i) {
    if (chosen[i] && IsStaged(i, pass)) EmitVectorLoad(i, absl::StrCat("l", i, "[u]"));
  }
  Close();
  open_turn();
  staged_ = true;
  EmitBlock(chosen, effects, /*lanes=*/true, pass);
  staged_ = false;
  Close();
  Close();
}

}  // namespace lazuli::codegen
