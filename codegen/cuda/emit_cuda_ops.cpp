#include "codegen/cuda/emit_cuda_ops.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace lazuli::codegen {
namespace {

using c10::ScalarType;

bool IsFloating(ScalarType type) { return type == ScalarType::Float || type == ScalarType::Double; }
bool IsReduced(ScalarType type) { return type == ScalarType::BFloat16 || type == ScalarType::Half; }

// CUDA's name of a function of floats is that of doubles and an f.
std::string Call(const char* name, ScalarType type, const std::string& a, const std::string& b = "", const std::string& c = "") {
  return absl::StrCat(name, type == ScalarType::Float ? "f(" : "(", a, b.empty() ? "" : ", ", b, c.empty() ? "" : ", ", c, ")");
}

std::string Infix(const char* op, const std::string& a, const std::string& b) { return absl::StrCat("(", a, " ", op, " ", b, ")"); }

// Small integers are promoted.
std::string As(ScalarType type, const std::string& value) { return absl::StrCat("(", CudaType(type), ")", value); }

std::string FloatText(ScalarType type, double value) {
  if (type == ScalarType::Float) {
    const auto narrow = static_cast<float>(value);
    if (!std::isfinite(narrow)) {
      uint32_t bits;
      std::memcpy(&bits, &narrow, sizeof(bits));
      return absl::StrFormat("__uint_as_float(0x%08xu)", bits);
    }
    std::string text = absl::StrFormat("%.9g", narrow);
    if (text.find_first_of(".e") == std::string::npos) text += ".0";
    return text[0] == '-' ? absl::StrCat("(", text, "f)") : text + "f";
  }
  if (!std::isfinite(value)) {
    uint64_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    return absl::StrFormat("__longlong_as_double(0x%016xll)", bits);
  }
  std::string text = absl::StrFormat("%.17g", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text[0] == '-' ? absl::StrCat("(", text, ")") : text;
}

std::string Floating(const KInst& inst, ScalarType type, const std::string& a, const std::string& b, const std::string& c) {
  switch (inst.op) {
    case KOp::kAdd:
      return Infix("+", a, b);
    case KOp::kSub:
      return Infix("-", a, b);
    case KOp::kMul:
      return Infix("*", a, b);
    case KOp::kDiv:
      return Infix("/", a, b);
    case KOp::kMod:
      return Call("fmod", type, a, b);
    case KOp::kFmin:
      return Call("fmin", type, a, b);
    case KOp::kFmax:
      return Call("fmax", type, a, b);
    case KOp::kPow:
      return Call("pow", type, a, b);
    case KOp::kAtan2:
    case KOp::kHypot:
      return Call(KOpName(inst.op), type, a, b);
    case KOp::kFma:
      return Call("fma", type, a, b, c);
    case KOp::kNeg:
      return absl::StrCat("(-", a, ")");
    case KOp::kAbs:
      return Call("fabs", type, a);
    case KOp::kRound:
      return Call("rint", type, a);
    default:
      return Call(KOpName(inst.op), type, a);
  }
}

std::string Integral(KOp op, ScalarType type, const std::string& a, const std::string& b) {
  const bool is_bool = type == ScalarType::Bool;
  const auto call = [&](const char* name) { return absl::StrCat(name, "<", CudaType(type), ">(", a, ", ", b, ")"); };
  switch (op) {
    case KOp::kAdd:
      return is_bool ? Infix("||", a, b) : call("wadd");
    case KOp::kSub:
      return call("wsub");
    case KOp::kMul:
      return is_bool ? Infix("&&", a, b) : call("wmul");
    case KOp::kDiv:
      return As(type, Infix("/", a, b));
    case KOp::kMod:
      return As(type, Infix("%", a, b));
    case KOp::kFmin:
      return absl::StrCat("(", a, " < ", b, " ? ", a, " : ", b, ")");
    case KOp::kFmax:
      return absl::StrCat("(", a, " > ", b, " ? ", a, " : ", b, ")");
    case KOp::kAnd:
      return As(type, Infix("&", a, b));
    case KOp::kOr:
      return As(type, Infix("|", a, b));
    case KOp::kXor:
      return As(type, Infix("^", a, b));
    case KOp::kShl:
    case KOp::kShr: {
      const char* name = op == KOp::kShl ? "shl" : "shr";
      return absl::StrCat(name, "(", As(type, a), ", ", As(type, b), ")");
    }
    case KOp::kNeg:
      return absl::StrCat("wneg<", CudaType(type), ">(", a, ")");
    case KOp::kAbs:
      if (type == ScalarType::Byte) return a;
      return absl::StrCat("(", a, " < 0 ? wneg<", CudaType(type), ">(", a, ") : ", a, ")");
    default:
      return is_bool ? absl::StrCat("!", a) : As(type, absl::StrCat("~", a));
  }
}

std::string Compare(KOp op, const std::string& a, const std::string& b) {
  static constexpr const char* kNames[] = {"==", "!=", "<", "<=", ">", ">="};
  return Infix(kNames[static_cast<int>(op) - static_cast<int>(KOp::kEq)], a, b);
}

}  // namespace

const char* CudaType(ScalarType type) {
  switch (type) {
    case ScalarType::Float:
      return "float";
    case ScalarType::Double:
      return "double";
    case ScalarType::Long:
      return "i64";
    case ScalarType::Int:
      return "int";
    case ScalarType::Short:
      return "short";
    case ScalarType::Char:
      return "signed char";
    case ScalarType::Byte:
      return "u8";
    case ScalarType::Bool:
      return "bool";
    default:
      return "u16";
  }
}

const char* CudaMemoryType(ScalarType type) { return type == ScalarType::Bool ? "u8" : CudaType(type); }

std::string CudaToMemory(ScalarType type, const std::string& a) { return type == ScalarType::Bool ? absl::StrCat("(u8)", a) : a; }
std::string CudaFromMemory(ScalarType type, const std::string& a) { return type == ScalarType::Bool ? absl::StrCat("(", a, " != 0)") : a; }

std::string CudaConstant(ScalarType type, int64_t bits) {
  if (IsFloating(type)) {
    double value;
    std::memcpy(&value, &bits, sizeof(value));
    return FloatText(type, value);
  }
  if (type == ScalarType::Bool) return bits != 0 ? "true" : "false";
  // The smallest number has no literal.
  if (bits == std::numeric_limits<int64_t>::min()) return As(type, "0x8000000000000000ull");
  return As(type, absl::StrCat("(", bits, type == ScalarType::Long ? "ll)" : ")"));
}

std::string CudaCast(ScalarType from, ScalarType to, const std::string& a) {
  if (from == to) return a;
  if (from == ScalarType::BFloat16) return CudaCast(ScalarType::Float, to, absl::StrCat("b2f(", a, ")"));
  if (from == ScalarType::Half) return CudaCast(ScalarType::Float, to, absl::StrCat("h2f(", a, ")"));
  if (IsReduced(to)) {
    return absl::StrCat(to == ScalarType::Half ? "f2h(" : "f2b(", CudaCast(from, ScalarType::Float, a), ")");
  }
  if (to == ScalarType::Bool) return Infix("!=", a, IsFloating(from) ? CudaConstant(from, 0) : "0");
  // As ATen's CUDA kernels do.
  if (IsFloating(from) && to == ScalarType::Byte) return As(to, absl::StrCat("(i64)", a));
  return As(to, a);
}

std::string CudaOp(const KInst& inst, ScalarType in_type, const std::string& a, const std::string& b, const std::string& c) {
  switch (inst.op) {
    case KOp::kCast:
      return CudaCast(in_type, inst.type, a);
    case KOp::kSelect:
      return absl::StrCat("(", a, " ? ", b, " : ", c, ")");
    case KOp::kMin:
    case KOp::kMax:
      return absl::StrCat(inst.op == KOp::kMin ? "nmin(" : "nmax(", a, ", ", b, ")");
    case KOp::kEq:
    case KOp::kNe:
    case KOp::kLt:
    case KOp::kLe:
    case KOp::kGt:
    case KOp::kGe:
      return Compare(inst.op, a, b);
    case KOp::kIsNan:
      return Infix("!=", a, a);
    case KOp::kBits:
      return absl::StrCat("__float_as_int(", a, ")");
    default:
      return IsFloating(in_type) ? Floating(inst, in_type, a, b, c) : Integral(inst.op, in_type, a, b);
  }
}

std::string CudaRoughOp(KOp op, const std::string& a, const std::string& b) {
  return op == KOp::kDiv ? absl::StrCat("rough_div(", a, ", ", b, ")") : absl::StrCat("rough_", KOpName(op), "(", a, ")");
}

std::string CudaCombiner(KOp reduce) {
  switch (reduce) {
    case KOp::kReduceSum:
    case KOp::kScanSum:
      return "Sum()";
    case KOp::kReduceProd:
    case KOp::kScanProd:
      return "Prod()";
    case KOp::kReduceMax:
      return "Max()";
    case KOp::kReduceMin:
      return "Min()";
    case KOp::kReduceAny:
      return "Any()";
    default:
      return "All()";
  }
}

std::string CudaIdentity(KOp reduce, ScalarType type) {
  const double infinity = std::numeric_limits<double>::infinity();
  const int bits = 8 * static_cast<int>(c10::elementSize(type));
  const bool is_unsigned = type == ScalarType::Byte || type == ScalarType::Bool;
  switch (reduce) {
    case KOp::kReduceSum:
    case KOp::kScanSum:
    case KOp::kReduceAny:
      return IsFloating(type) ? FloatText(type, 0) : CudaConstant(type, 0);
    case KOp::kReduceProd:
    case KOp::kScanProd:
      return IsFloating(type) ? FloatText(type, 1) : CudaConstant(type, 1);
    case KOp::kReduceAll:
      return "true";
    case KOp::kReduceMax:
      if (IsFloating(type)) return FloatText(type, -infinity);
      return CudaConstant(type, is_unsigned ? 0 : static_cast<int64_t>(~uint64_t{0} << (bits - 1)));
    default:
      if (IsFloating(type)) return FloatText(type, infinity);
      if (type == ScalarType::Bool) return "true";
      return CudaConstant(type, static_cast<int64_t>((uint64_t{1} << (is_unsigned ? bits : bits - 1)) - 1));
  }
}

}  // namespace lazuli::codegen
