#include "codegen/kernel_ir.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace lazuli::codegen {
namespace {

// Which types an instruction takes. The result has the operands' type unless said otherwise.
enum class Rule : uint8_t {
  kMemory,     // Whatever touches memory, and Cast: any type; checked by hand.
  kLeaf,       // Const, Scalar, Index.
  kNumber,     // Float, Double, integers; Bool where a truth table is natural (checked by hand).
  kFloating,   // Float, Double.
  kIntegral,   // Integers and Bool.
  kCompare,    // Any arithmetic type; result Bool.
  kPredicate,  // Floating; result Bool.
  kBits,       // Float; result Int.
  kSelect,
  kLogical,  // Bool.
  kRandom,   // Long; result Float.
};

struct OpTraits {
  KOp op;
  const char* name;
  int arity;
  Rule rule;
};

constexpr OpTraits kTraits[] = {
    {KOp::kLoad, "load", 0, Rule::kMemory},
    {KOp::kStore, "store", 1, Rule::kMemory},
    {KOp::kGather, "gather", 1, Rule::kMemory},
    {KOp::kCheck, "check", 1, Rule::kMemory},
    {KOp::kScatter, "scatter", 3, Rule::kMemory},
    {KOp::kScatterAdd, "scatter_add", 3, Rule::kMemory},
    {KOp::kPartialSum, "partial_sum", 1, Rule::kMemory},
    {KOp::kConst, "const", 0, Rule::kLeaf},
    {KOp::kScalar, "scalar", 0, Rule::kLeaf},
    {KOp::kIndex, "index", 0, Rule::kLeaf},
    {KOp::kSize, "size", 0, Rule::kLeaf},
    {KOp::kCast, "cast", 1, Rule::kMemory},
    {KOp::kAdd, "add", 2, Rule::kNumber},
    {KOp::kSub, "sub", 2, Rule::kNumber},
    {KOp::kMul, "mul", 2, Rule::kNumber},
    {KOp::kDiv, "div", 2, Rule::kNumber},
    {KOp::kMod, "mod", 2, Rule::kNumber},
    {KOp::kMin, "min", 2, Rule::kNumber},
    {KOp::kMax, "max", 2, Rule::kNumber},
    {KOp::kFmin, "fmin", 2, Rule::kNumber},
    {KOp::kFmax, "fmax", 2, Rule::kNumber},
    {KOp::kPow, "pow", 2, Rule::kFloating},
    {KOp::kAtan2, "atan2", 2, Rule::kFloating},
    {KOp::kHypot, "hypot", 2, Rule::kFloating},
    {KOp::kAnd, "and", 2, Rule::kIntegral},
    {KOp::kOr, "or", 2, Rule::kIntegral},
    {KOp::kXor, "xor", 2, Rule::kIntegral},
    {KOp::kShl, "shl", 2, Rule::kIntegral},
    {KOp::kShr, "shr", 2, Rule::kIntegral},
    {KOp::kEq, "eq", 2, Rule::kCompare},
    {KOp::kNe, "ne", 2, Rule::kCompare},
    {KOp::kLt, "lt", 2, Rule::kCompare},
    {KOp::kLe, "le", 2, Rule::kCompare},
    {KOp::kGt, "gt", 2, Rule::kCompare},
    {KOp::kGe, "ge", 2, Rule::kCompare},
    {KOp::kNeg, "neg", 1, Rule::kNumber},
    {KOp::kAbs, "abs", 1, Rule::kNumber},
    {KOp::kNot, "not", 1, Rule::kIntegral},
    {KOp::kSqrt, "sqrt", 1, Rule::kFloating},
    {KOp::kFloor, "floor", 1, Rule::kFloating},
    {KOp::kCeil, "ceil", 1, Rule::kFloating},
    {KOp::kTrunc, "trunc", 1, Rule::kFloating},
    {KOp::kRound, "round", 1, Rule::kFloating},
    {KOp::kExp, "exp", 1, Rule::kFloating},
    {KOp::kExpm1, "expm1", 1, Rule::kFloating},
    {KOp::kLog, "log", 1, Rule::kFloating},
    {KOp::kLog1p, "log1p", 1, Rule::kFloating},
    {KOp::kLog2, "log2", 1, Rule::kFloating},
    {KOp::kLog10, "log10", 1, Rule::kFloating},
    {KOp::kExp2, "exp2", 1, Rule::kFloating},
    {KOp::kSin, "sin", 1, Rule::kFloating},
    {KOp::kCos, "cos", 1, Rule::kFloating},
    {KOp::kTan, "tan", 1, Rule::kFloating},
    {KOp::kAsin, "asin", 1, Rule::kFloating},
    {KOp::kAcos, "acos", 1, Rule::kFloating},
    {KOp::kAtan, "atan", 1, Rule::kFloating},
    {KOp::kSinh, "sinh", 1, Rule::kFloating},
    {KOp::kCosh, "cosh", 1, Rule::kFloating},
    {KOp::kTanh, "tanh", 1, Rule::kFloating},
    {KOp::kAsinh, "asinh", 1, Rule::kFloating},
    {KOp::kAcosh, "acosh", 1, Rule::kFloating},
    {KOp::kAtanh, "atanh", 1, Rule::kFloating},
    {KOp::kErf, "erf", 1, Rule::kFloating},
    {KOp::kErfc, "erfc", 1, Rule::kFloating},
    {KOp::kErfinv, "erfinv", 1, Rule::kFloating},
    {KOp::kLgamma, "lgamma", 1, Rule::kFloating},
    {KOp::kIsNan, "isnan", 1, Rule::kPredicate},
    {KOp::kBits, "bits", 1, Rule::kBits},
    {KOp::kSelect, "select", 3, Rule::kSelect},
    {KOp::kFma, "fma", 3, Rule::kFloating},
    {KOp::kUniform, "uniform", 3, Rule::kRandom},
    {KOp::kNormal, "normal", 3, Rule::kRandom},
    {KOp::kScanSum, "scan_sum", 1, Rule::kNumber},
    {KOp::kScanProd, "scan_prod", 1, Rule::kNumber},
    {KOp::kReduceSum, "reduce_sum", 1, Rule::kNumber},
    {KOp::kReduceProd, "reduce_prod", 1, Rule::kNumber},
    {KOp::kReduceMax, "reduce_max", 1, Rule::kNumber},
    {KOp::kReduceMin, "reduce_min", 1, Rule::kNumber},
    {KOp::kReduceAny, "reduce_any", 1, Rule::kLogical},
    {KOp::kReduceAll, "reduce_all", 1, Rule::kLogical},
};
static_assert(sizeof(kTraits) / sizeof(kTraits[0]) == kNumKOps, "one row per KOp");

const OpTraits& Traits(KOp op) { return kTraits[static_cast<int>(op)]; }

bool IsFloating(c10::ScalarType type) { return type == c10::ScalarType::Float || type == c10::ScalarType::Double; }

bool IsIntegral(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Long:
    case c10::ScalarType::Int:
    case c10::ScalarType::Short:
    case c10::ScalarType::Char:
    case c10::ScalarType::Byte:
      return true;
    default:
      return false;
  }
}

bool IsBool(c10::ScalarType type) { return type == c10::ScalarType::Bool; }
bool IsArithmetic(c10::ScalarType type) { return IsFloating(type) || IsIntegral(type) || IsBool(type); }
bool IsStorable(c10::ScalarType type) { return IsArithmetic(type) || type == c10::ScalarType::BFloat16 || type == c10::ScalarType::Half; }

// Instructions of rule kNumber that also make sense on Bool.
bool AllowsBool(KOp op) {
  switch (op) {
    case KOp::kAdd:
    case KOp::kMul:
    case KOp::kMin:
    case KOp::kMax:
    case KOp::kFmin:
    case KOp::kFmax:
    case KOp::kReduceMax:
    case KOp::kReduceMin:
      return true;
    default:
      return false;
  }
}

class Verifier {
 public:
  explicit Verifier(const KernelIR& kernel) : kernel_(kernel) {}

  absl::Status Run() {
    if (absl::Status status = CheckDomain(); !status.ok()) return status;
    stored_.assign(kernel_.buffers.size(), false);
    full_.reserve(kernel_.insts.size());
    for (size_t i = 0; i < kernel_.insts.size(); ++i) {
      if (absl::Status status = CheckInst(static_cast<int>(i)); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

 private:
  static absl::Status Fail(const std::string& message) { return absl::InvalidArgumentError(message); }

  absl::Status FailAt(int index, const std::string& message) const {
    return Fail(absl::StrCat("kernel instruction %", index, " (", KOpName(kernel_.insts[index].op), "): ", message));
  }

  int rank() const { return static_cast<int>(kernel_.sizes.size()); }
  int num_kept() const { return rank() - kernel_.num_reduced; }

  absl::Status CheckDomain() const {
    if (kernel_.num_reduced < 0 || kernel_.num_reduced > rank()) return Fail("kernel: num_reduced exceeds the rank");
    if (rank() > 60) return Fail("kernel: more than 60 dimensions");
    if (kernel_.num_scalars < 0) return Fail("kernel: negative number of scalars");
    for (int64_t size : kernel_.sizes) {
      if (size < 0) return Fail("kernel: negative size");
    }
    for (size_t b = 0; b < kernel_.buffers.size(); ++b) {
      const KBuffer& buffer = kernel_.buffers[b];
      if (buffer.strides.size() != kernel_.sizes.size()) return Fail(absl::StrCat("kernel buffer ", b, ": wrong number of strides"));
      if (!IsStorable(buffer.dtype)) return Fail(absl::StrCat("kernel buffer ", b, ": unsupported dtype ", c10::toString(buffer.dtype)));
    }
    return absl::OkStatus();
  }

  // Whether the buffer's address varies over the reduced dimensions.
  bool VariesInReduction(const KBuffer& buffer) const {
    for (int d = num_kept(); d < rank(); ++d) {
      if (buffer.strides[d] != 0 && kernel_.sizes[d] > 1) return true;
    }
    return false;
  }

  bool ReductionIsTrivial() const {
    for (int d = num_kept(); d < rank(); ++d) {
      if (kernel_.sizes[d] != 1) return false;
    }
    return true;
  }

  absl::Status CheckOperands(int index) const {
    const KInst& inst = kernel_.insts[index];
    for (int k = 0; k < 3; ++k) {
      if (k >= KOpArity(inst.op)) {
        if (inst.in[k] != -1) return FailAt(index, "too many operands");
        continue;
      }
      if (inst.in[k] < 0 || inst.in[k] >= index) return FailAt(index, absl::StrCat("operand ", k, " is not an earlier instruction"));
      if (HasEffect(kernel_.insts[inst.in[k]].op)) return FailAt(index, absl::StrCat("operand ", k, " has no value"));
    }
    return absl::OkStatus();
  }

  absl::Status CheckInst(int index) {
    const KInst& inst = kernel_.insts[index];
    if (static_cast<int>(inst.op) >= kNumKOps) return Fail(absl::StrCat("kernel instruction %", index, ": unknown op"));
    if (absl::Status status = CheckOperands(index); !status.ok()) return status;
    if (absl::Status status = CheckTypes(index); !status.ok()) return status;
    bool full = false;
    for (int k = 0; k < KOpArity(inst.op); ++k) full |= full_[inst.in[k]];
    if (inst.op == KOp::kLoad || inst.op == KOp::kGather) full |= VariesInReduction(kernel_.buffers[inst.imm]);
    if (inst.op == KOp::kIndex) full = inst.imm >= num_kept() && kernel_.sizes[inst.imm] != 1;
    if (IsReduce(inst.op)) {
      if (kernel_.num_reduced == 0) return FailAt(index, "reduction in a kernel without reduced dimensions");
      full = false;
    }
    if (IsScan(inst.op)) {
      if (absl::Status status = CheckScan(index); !status.ok()) return status;
      full = true;
    }
    full_.push_back(full);
    if (IsScatter(inst.op)) return CheckScatter(index);
    return inst.op == KOp::kStore ? CheckStore(index) : absl::OkStatus();
  }

  absl::Status CheckScan(int index) const {
    const KInst& inst = kernel_.insts[index];
    if (kernel_.num_reduced != 1 || ReductionIsTrivial())
      return FailAt(index, "scan of other than one reduced dimension of several points");
    if (inst.imm != 0 && inst.imm != kFromEnd) return FailAt(index, "no such direction");
    const auto differs = [&](const KInst& other) { return IsScan(other.op) && other.imm != inst.imm; };
    return std::any_of(kernel_.insts.begin(), kernel_.insts.end(), differs) ? FailAt(index, "scans differ in direction") : absl::OkStatus();
  }

  absl::Status CheckStore(int index) {
    const KInst& inst = kernel_.insts[index];
    const KBuffer& buffer = kernel_.buffers[inst.imm];
    if (!buffer.written) return FailAt(index, "the buffer is not marked written");
    if (stored_[inst.imm]) return FailAt(index, "the buffer is stored twice");
    stored_[inst.imm] = true;
    const bool varies = VariesInReduction(buffer);
    if (full_[index] && !varies && !ReductionIsTrivial()) {
      return FailAt(index, "a full-level value is stored to a kept-level buffer");
    }
    for (int64_t size : kernel_.sizes) {
      if (size == 0) return absl::OkStatus();
    }
    for (int d = 0; d < (varies ? rank() : num_kept()); ++d) {
      if (buffer.strides[d] == 0 && kernel_.sizes[d] > 1) return FailAt(index, absl::StrCat("stride 0 in dimension ", d));
    }
    return absl::OkStatus();
  }

  // Every other access to the buffer would have to be ordered with it.
  absl::Status CheckScatter(int index) {
    const KInst& inst = kernel_.insts[index];
    if (!kernel_.buffers[inst.imm].written) return FailAt(index, "the buffer is not marked written");
    const auto touches = [&](const KInst& other) { return HasBuffer(other.op) && other.imm == inst.imm; };
    if (std::count_if(kernel_.insts.begin(), kernel_.insts.end(), touches) > 1) return FailAt(index, "something else touches the buffer");
    if (VariesInReduction(kernel_.buffers[inst.imm])) return FailAt(index, "the buffer varies over the reduced dimensions");
    return absl::OkStatus();
  }

  absl::Status CheckTypes(int index) const {
    const KInst& inst = kernel_.insts[index];
    const Rule rule = Traits(inst.op).rule;
    if (rule == Rule::kMemory) return CheckMemory(index);
    if (!IsArithmetic(inst.type)) return FailAt(index, absl::StrCat("no arithmetic on ", c10::toString(inst.type)));
    if (rule == Rule::kLeaf) return CheckLeaf(index);
    const c10::ScalarType type = kernel_.insts[inst.in[0]].type;
    if (rule == Rule::kSelect) {
      if (!IsBool(type)) return FailAt(index, "the condition is not Bool");
      if (kernel_.insts[inst.in[1]].type != inst.type || kernel_.insts[inst.in[2]].type != inst.type) {
        return FailAt(index, "operands differ in type from the result");
      }
      return absl::OkStatus();
    }
    for (int k = 1; k < KOpArity(inst.op); ++k) {
      if (kernel_.insts[inst.in[k]].type != type) return FailAt(index, "operands differ in type");
    }
    if (rule == Rule::kRandom && !IsUniformImm(inst.imm)) return FailAt(index, "no such scalar, or a vector of another size");
    const bool to_bool = rule == Rule::kCompare || rule == Rule::kPredicate;
    const c10::ScalarType result = to_bool                 ? c10::ScalarType::Bool
                                   : rule == Rule::kRandom ? c10::ScalarType::Float
                                   : rule == Rule::kBits   ? c10::ScalarType::Int
                                                           : type;
    if (inst.type != result) return FailAt(index, "wrong result type");
    const bool allowed = rule == Rule::kNumber     ? IsFloating(type) || IsIntegral(type) || AllowsBool(inst.op)
                         : rule == Rule::kIntegral ? IsIntegral(type) || (IsBool(type) && inst.op != KOp::kShl && inst.op != KOp::kShr)
                         : rule == Rule::kCompare  ? IsArithmetic(type)
                         : rule == Rule::kLogical  ? IsBool(type)
                         : rule == Rule::kRandom   ? type == c10::ScalarType::Long
                         : rule == Rule::kBits     ? type == c10::ScalarType::Float
                                                   : IsFloating(type);
    if (!allowed) return FailAt(index, absl::StrCat("not defined on ", c10::toString(type)));
    return absl::OkStatus();
  }

  bool IsUniformImm(int64_t imm) const {
    const int64_t vector = UniformVector(imm);
    return imm >= 0 && UniformScalar(imm) < kernel_.num_scalars && (vector == 1 || vector == 2 || vector == 4 || vector == 8);
  }

  absl::Status CheckLeaf(int index) const {
    const KInst& inst = kernel_.insts[index];
    if (inst.op == KOp::kScalar && (inst.imm < 0 || inst.imm >= kernel_.num_scalars)) return FailAt(index, "no such scalar");
    if (inst.op == KOp::kSize && !kernel_.symbols.IsSymbolic(inst.imm)) return FailAt(index, "not a symbol");
    if (inst.op != KOp::kIndex) return absl::OkStatus();
    if (inst.imm < 0 || inst.imm >= rank()) return FailAt(index, "no such dimension");
    if (inst.type != c10::ScalarType::Long) return FailAt(index, "an index is Long");
    return absl::OkStatus();
  }

  absl::Status CheckMemory(int index) const {
    const KInst& inst = kernel_.insts[index];
    if (!IsStorable(inst.type)) return FailAt(index, absl::StrCat("unsupported type ", c10::toString(inst.type)));
    if (inst.op == KOp::kCast) return absl::OkStatus();
    if (inst.imm < 0 || inst.imm >= static_cast<int64_t>(kernel_.buffers.size())) return FailAt(index, "no such buffer");
    if (kernel_.buffers[inst.imm].dtype != inst.type) return FailAt(index, "type differs from the buffer's");
    if (inst.op == KOp::kLoad || inst.op == KOp::kGather) {
      if (inst.op == KOp::kGather && kernel_.insts[inst.in[0]].type != c10::ScalarType::Long)
        return FailAt(index, "the offset is not Long");
      return stored_[inst.imm] ? FailAt(index, "the buffer is loaded after it is stored") : absl::OkStatus();
    }
    if (inst.op == KOp::kCheck) return CheckFlag(index);
    if (inst.op == KOp::kPartialSum) return CheckPartialSum(index);
    if (IsScatter(inst.op) && kernel_.insts[inst.in[1]].type != c10::ScalarType::Long) return FailAt(index, "the offset is not Long");
    if (IsScatter(inst.op) && !IsBool(kernel_.insts[inst.in[2]].type)) return FailAt(index, "the condition is not Bool");
    if (inst.op == KOp::kScatterAdd && !IsFloating(inst.type) && !IsIntegral(inst.type)) return FailAt(index, "no addition of its type");
    return kernel_.insts[inst.in[0]].type == inst.type ? absl::OkStatus() : FailAt(index, "the value's type differs from the buffer's");
  }

  absl::Status CheckFlag(int index) const {
    const KInst& inst = kernel_.insts[index];
    const KBuffer& buffer = kernel_.buffers[inst.imm];
    const bool one_place = std::all_of(buffer.strides.begin(), buffer.strides.end(), [](int64_t stride) { return stride == 0; });
    if (!IsBool(inst.type) || !IsBool(kernel_.insts[inst.in[0]].type)) return FailAt(index, "not Bool");
    return buffer.written && one_place ? absl::OkStatus() : FailAt(index, "the buffer is not one place to write to");
  }

  absl::Status CheckPartialSum(int index) const {
    const KInst& inst = kernel_.insts[index];
    const KBuffer& buffer = kernel_.buffers[inst.imm];
    if (!IsFloating(inst.type) || kernel_.insts[inst.in[0]].type != inst.type) return FailAt(index, "not of floating type");
    const auto touches = [&](const KInst& other) { return HasBuffer(other.op) && other.imm == inst.imm; };
    if (std::count_if(kernel_.insts.begin(), kernel_.insts.end(), touches) > 1) return FailAt(index, "something else touches the buffer");
    // Dense, so that parts follow each other.
    int64_t dense = 1;
    bool fits = buffer.written && kernel_.num_reduced > 0;
    for (int d = rank() - 1; d >= 0; --d) {
      const int64_t expected = d < num_kept() ? 0 : dense;
      fits = fits && (buffer.strides[d] == expected || kernel_.sizes[d] == 1);
      if (d >= num_kept()) dense *= kernel_.sizes[d];
    }
    return fits ? absl::OkStatus() : FailAt(index, "the buffer does not hold a sum for each reduced point");
  }

  const KernelIR& kernel_;
  std::vector<bool> full_;    // Per instruction: varies over the reduced dimensions.
  std::vector<bool> stored_;  // Per buffer.
};

}  // namespace

const char* KOpName(KOp op) { return static_cast<int>(op) < kNumKOps ? Traits(op).name : "?"; }
int KOpArity(KOp op) { return Traits(op).arity; }

bool HasReductions(const KernelIR& kernel) {
  return std::any_of(kernel.insts.begin(), kernel.insts.end(), [](const KInst& inst) { return IsReduce(inst.op); });
}

bool HasScans(const KernelIR& kernel) {
  return std::any_of(kernel.insts.begin(), kernel.insts.end(), [](const KInst& inst) { return IsScan(inst.op); });
}

bool ScansFromEnd(const KernelIR& kernel) {
  return std::any_of(kernel.insts.begin(), kernel.insts.end(), [](const KInst& inst) { return IsScan(inst.op) && inst.imm == kFromEnd; });
}

bool IsBitExact(const KernelIR& kernel) {
  return std::all_of(kernel.insts.begin(), kernel.insts.end(), [](const KInst& inst) {
    if (!c10::isFloatingType(inst.type)) return true;
    const bool extremum = inst.op == KOp::kMin || inst.op == KOp::kMax || inst.op == KOp::kFmin || inst.op == KOp::kFmax;
    const bool function = (inst.op >= KOp::kExp && inst.op <= KOp::kLgamma) || inst.op == KOp::kSqrt || inst.op == KOp::kPow ||
                          inst.op == KOp::kAtan2 || inst.op == KOp::kHypot;
    return !extremum && !function && !IsReduce(inst.op) && !IsScan(inst.op) && inst.op != KOp::kScatterAdd && inst.op != KOp::kPartialSum;
  });
}

absl::Status VerifyKernel(const KernelIR& kernel) { return Verifier(kernel).Run(); }

}  // namespace lazuli::codegen
