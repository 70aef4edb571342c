#include "codegen/emit_llvm_math.h"

#include <ATen/Version.h>
#include <ATen/native/Math.h>
#include <c10/util/Half.h>
#include <dlfcn.h>
#include <llvm/IR/Module.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "codegen/emit_llvm_poly.h"
#include "codegen/emit_llvm_vector_math.h"
#include "codegen/thread_scratch.h"

namespace lazuli::codegen {
namespace {

using llvm::FixedVectorType;
using llvm::Type;
using llvm::Value;

uint16_t HalfFromFloat(float value) { return c10::detail::fp16_ieee_from_fp32_value(value); }
float FloatFromHalf(uint16_t bits) { return c10::detail::fp16_ieee_to_fp32_value(bits); }
float ErfinvFloat(float x) { return calc_erfinv(x); }
double ErfinvDouble(double x) { return calc_erfinv(x); }

// Code that runs on many threads at once cannot report that there is no memory: the process ends.
void* RowCache(int64_t bytes) noexcept { return ScratchOfThread<struct CachedRows>().Reserve(bytes); }

struct Helper {
  const char* name;
  void* address;
};

// Own functions, and those of libm whose names are overloaded in C++ or inlined away by the compiler.
const Helper kHelpers[] = {
    {kRowCacheFunction, reinterpret_cast<void*>(&RowCache)},
    {"lazuli_half_from_float", reinterpret_cast<void*>(&HalfFromFloat)},
    {"lazuli_float_from_half", reinterpret_cast<void*>(&FloatFromHalf)},
    {"lazuli_erfinvf", reinterpret_cast<void*>(&ErfinvFloat)},
    {"lazuli_erfinv", reinterpret_cast<void*>(&ErfinvDouble)},
};

struct MathName {
  KOp op;
  const char* name;         // libm's for double; float appends "f".
  const char* sleef_float;  // Accuracy suffix that ATen uses; null: SLEEF has none.
  const char* sleef_double;
};

constexpr MathName kMathNames[] = {
    {KOp::kMod, "fmod", "", ""},
    {KOp::kPow, "pow", "_u10", "_u10"},
    {KOp::kAtan2, "atan2", "_u10", "_u10"},
    {KOp::kHypot, "hypot", "_u05", "_u05"},
    {KOp::kExp, "exp", "_u10", "_u10"},
    {KOp::kExpm1, "expm1", "_u10", "_u10"},
    {KOp::kLog, "log", "_u10", "_u10"},
    {KOp::kLog1p, "log1p", "_u10", "_u10"},
    {KOp::kLog2, "log2", "_u10", "_u10"},
    {KOp::kLog10, "log10", "_u10", "_u10"},
    {KOp::kExp2, "exp2", "_u10", "_u10"},
    {KOp::kSin, "sin", "_u35", "_u10"},
    {KOp::kCos, "cos", "_u35", "_u10"},
    {KOp::kTan, "tan", "_u10", "_u10"},
    {KOp::kAsin, "asin", "_u10", "_u10"},
    {KOp::kAcos, "acos", "_u10", "_u10"},
    {KOp::kAtan, "atan", "_u10", "_u10"},
    {KOp::kSinh, "sinh", "_u10", "_u10"},
    {KOp::kCosh, "cosh", "_u10", "_u10"},
    {KOp::kTanh, "tanh", "_u10", "_u10"},
    {KOp::kAsinh, "asinh", nullptr, nullptr},  // SLEEF overflows early, and ATen calls libm here.
    {KOp::kAcosh, "acosh", "_u10", "_u10"},
    {KOp::kAtanh, "atanh", "_u10", "_u10"},
    {KOp::kErf, "erf", "_u10", "_u10"},
    {KOp::kErfc, "erfc", "_u15", "_u15"},
    {KOp::kErfinv, "lazuli_erfinv", nullptr, nullptr},
    {KOp::kLgamma, "lgamma", "_u10", "_u10"},
};

struct VmlName {
  KOp op;
  const char* name;
};

// The unary operators for which ATen calls Intel's VML.
constexpr VmlName kVmlNames[] = {
    {KOp::kSqrt, "Sqrt"}, {KOp::kExp, "Exp"},   {KOp::kLog, "Ln"},  {KOp::kLog2, "Log2"}, {KOp::kLog10, "Log10"},
    {KOp::kSin, "Sin"},   {KOp::kCos, "Cos"},   {KOp::kTan, "Tan"}, {KOp::kAsin, "Asin"}, {KOp::kAcos, "Acos"},
    {KOp::kAtan, "Atan"}, {KOp::kTanh, "Tanh"}, {KOp::kErf, "Erf"}, {KOp::kErfc, "Erfc"}, {KOp::kErfinv, "ErfInv"},
};
// High accuracy, denormals kept, errors ignored: what ATen passes.
constexpr int64_t kVmlMode = 0x2 | 0x140000 | 0x100;

const char* VmlNameOf(KOp op) {
  for (const VmlName& row : kVmlNames) {
    if (row.op == op) return row.name;
  }
  return nullptr;
}

const MathName& NameOf(KOp op) {
  for (const MathName& row : kMathNames) {
    if (row.op == op) return row;
  }
  return kMathNames[0];
}

// dlsym through libtorch_cpu's own handle: its symbols may have been loaded with RTLD_LOCAL.
void* FindInTorch(const char* name) {
  static void* const handle = [] {
    Dl_info info;
    if (dladdr(reinterpret_cast<void*>(&at::get_cpu_capability), &info) == 0) return static_cast<void*>(nullptr);
    return dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  }();
  return handle != nullptr ? dlsym(handle, name) : nullptr;
}

}  // namespace

void* ResolveKernelSymbol(const std::string& name) {
  for (const Helper& helper : kHelpers) {
    if (name == helper.name) return helper.address;
  }
  if (void* address = FindInTorch(name.c_str())) return address;
  return dlsym(RTLD_DEFAULT, name.c_str());
}

Value* MathEmitter::Emit(KOp op, c10::ScalarType type, Value* a, Value* b, bool composite) {
  const bool is_float = type == c10::ScalarType::Float;
  // For erfinv VML is also the only accurate implementation at hand.
  if (((precision_ == "strict" && !composite) || op == KOp::kErfinv) && VmlNameOf(op) != nullptr) {
    const std::string vml = absl::StrCat("vm", is_float ? "s" : "d", VmlNameOf(op));
    if (ResolveKernelSymbol(vml) != nullptr) return EmitVml(vml.c_str(), is_float, a);
  }
  if (op == KOp::kSqrt) return builder_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, a);
  if (precision_ != "strict" && isa_.vector_bytes >= 32) {
    const auto call = [this](llvm::IRBuilder<>& builder, const char* name, Value* x) {
      return MathEmitter(builder, module_, isa_, precision_).CallPerLane(name, builder.getDoubleTy(), x, nullptr);
    };
    if (Value* value = EmitPolynomial(builder_, isa_, op, a, b, call)) return value;
  }
  const MathName& row = NameOf(op);
  const char* suffix = is_float ? row.sleef_float : row.sleef_double;
  const int native = isa_.vector_bytes / (is_float ? 4 : 8);
  std::string sleef;
  if (suffix != nullptr && isa_.vector_bytes >= 32) {
    sleef = absl::StrCat("Sleef_", row.name, is_float ? "f" : "d", native, suffix);
    if (ResolveKernelSymbol(sleef) == nullptr) sleef.clear();
  }
  if (sleef.empty()) return EmitPerLane(row.name, is_float, a, b);

  // A scalar takes the vector function too, so that a value does not depend on where it is computed.
  return InVectorsOf(builder_, native, a, b, [&](Value* x, Value* y) { return CallNative(sleef, x, y); });
}

// VML works on arrays; its results do not depend on how an array is cut.
Value* MathEmitter::EmitVml(const char* name, bool is_float, Value* a) {
  Type* pointer = builder_.getPtrTy();
  Type* i64 = builder_.getInt64Ty();
  auto* type = llvm::FunctionType::get(builder_.getVoidTy(), {builder_.getInt32Ty(), pointer, pointer, i64}, false);
  llvm::FunctionCallee callee = module_.getOrInsertFunction(name, type);
  llvm::BasicBlock& entry = builder_.GetInsertBlock()->getParent()->getEntryBlock();
  llvm::AllocaInst* array = llvm::IRBuilder<>(&entry, entry.begin()).CreateAlloca(a->getType());
  array->setAlignment(llvm::Align(64));
  builder_.CreateAlignedStore(a, array, llvm::Align(64));
  auto* vector_type = llvm::dyn_cast<FixedVectorType>(a->getType());
  const int count = vector_type != nullptr ? static_cast<int>(vector_type->getNumElements()) : 1;
  builder_.CreateCall(callee, {builder_.getInt32(count), array, array, builder_.getInt64(kVmlMode)});
  return builder_.CreateAlignedLoad(a->getType(), array, llvm::Align(64));
}

// libm's float functions err by up to 2 ulp, its double ones by far less than one float ulp; ATen without SLEEF calls the float ones.
Value* MathEmitter::EmitPerLane(const std::string& name, bool is_float, Value* a, Value* b) {
  Type* element = a->getType()->getScalarType();
  if (!is_float || precision_ == "strict") return CallPerLane(absl::StrCat(name, is_float ? "f" : ""), element, a, b);
  auto widen = [&](Value* value) {
    return value != nullptr ? builder_.CreateFPExt(value, value->getType()->getWithNewType(builder_.getDoubleTy())) : nullptr;
  };
  return builder_.CreateFPTrunc(CallPerLane(name, builder_.getDoubleTy(), widen(a), widen(b)), a->getType());
}

Value* MathEmitter::CallNative(const std::string& name, Value* a, Value* b) {
  llvm::SmallVector<Type*, 2> types{a->getType()};
  llvm::SmallVector<Value*, 2> args{a};
  if (b != nullptr) {
    types.push_back(b->getType());
    args.push_back(b);
  }
  llvm::FunctionCallee callee = module_.getOrInsertFunction(name, llvm::FunctionType::get(a->getType(), types, false));
  auto* function = llvm::cast<llvm::Function>(callee.getCallee());
  function->setDoesNotThrow();
  function->setDoesNotAccessMemory();
  return builder_.CreateCall(callee, args);
}

Value* MathEmitter::CallPerLane(const std::string& scalar_name, Type* result_element, Value* a, Value* b) {
  llvm::SmallVector<Type*, 2> types{a->getType()->getScalarType()};
  if (b != nullptr) types.push_back(b->getType()->getScalarType());
  llvm::FunctionCallee callee = module_.getOrInsertFunction(scalar_name, llvm::FunctionType::get(result_element, types, false));
  llvm::cast<llvm::Function>(callee.getCallee())->setDoesNotThrow();
  auto call = [&](Value* x, Value* y) {
    llvm::SmallVector<Value*, 2> args{x};
    if (y != nullptr) args.push_back(y);
    return builder_.CreateCall(callee, args);
  };
  auto* vector_type = llvm::dyn_cast<FixedVectorType>(a->getType());
  if (vector_type == nullptr) return call(a, b);
  Value* result = llvm::PoisonValue::get(FixedVectorType::get(result_element, vector_type->getNumElements()));
  for (uint64_t lane = 0; lane < vector_type->getNumElements(); ++lane) {
    Value* y = b != nullptr ? builder_.CreateExtractElement(b, lane) : nullptr;
    result = builder_.CreateInsertElement(result, call(builder_.CreateExtractElement(a, lane), y), lane);
  }
  return result;
}

}  // namespace lazuli::codegen
