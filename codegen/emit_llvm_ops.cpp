#include "codegen/emit_llvm_ops.h"

#include <llvm/IR/Intrinsics.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace lazuli::codegen {
namespace {

using c10::ScalarType;
using llvm::Type;
using llvm::Value;
using llvm::Intrinsic::ID;

bool IsReducedPrecision(ScalarType type) { return type == ScalarType::BFloat16 || type == ScalarType::Half; }

double DoubleFromBits(int64_t bits) {
  double value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

}  // namespace

bool IsFloatingType(ScalarType type) { return type == ScalarType::Float || type == ScalarType::Double; }
bool IsSignedType(ScalarType type) { return type != ScalarType::Byte && type != ScalarType::Bool; }

Type* InstEmitter::RegisterType(ScalarType type) const {
  switch (type) {
    case ScalarType::Float:
      return builder_.getFloatTy();
    case ScalarType::Double:
      return builder_.getDoubleTy();
    case ScalarType::Bool:
      return builder_.getInt1Ty();
    default:
      return builder_.getIntNTy(8 * ElementBytes(type));
  }
}

Type* InstEmitter::MemoryType(ScalarType type) const { return type == ScalarType::Bool ? builder_.getInt8Ty() : RegisterType(type); }

Type* InstEmitter::Like(Type* element, Value* like) const {
  auto* vector_type = llvm::dyn_cast<llvm::FixedVectorType>(like->getType());
  return vector_type != nullptr ? llvm::FixedVectorType::get(element, vector_type->getNumElements()) : element;
}

Value* InstEmitter::Constant(ScalarType type, int64_t bits) const {
  if (type == ScalarType::Float) return llvm::ConstantFP::get(builder_.getFloatTy(), static_cast<float>(DoubleFromBits(bits)));
  if (type == ScalarType::Double) return llvm::ConstantFP::get(builder_.getDoubleTy(), DoubleFromBits(bits));
  if (type == ScalarType::Bool) return builder_.getInt1(bits != 0);
  return llvm::ConstantInt::get(RegisterType(type), static_cast<uint64_t>(bits));
}

Value* InstEmitter::ToMemory(ScalarType type, Value* value) {
  return type == ScalarType::Bool ? builder_.CreateZExt(value, Like(builder_.getInt8Ty(), value)) : value;
}

Value* InstEmitter::FromMemory(ScalarType type, Value* value) { return type == ScalarType::Bool ? builder_.CreateIsNotNull(value) : value; }

Value* InstEmitter::Emit(const KInst& inst, ScalarType in_type, Value* a, Value* b, Value* c, Value* mask) {
  switch (inst.op) {
    case KOp::kCast:
      return EmitCast(in_type, inst.type, a);
    case KOp::kSelect:
      return builder_.CreateSelect(a, b, c);
    case KOp::kMin:
    case KOp::kMax:
    case KOp::kFmin:
    case KOp::kFmax:
      return EmitMinMax(inst.op, in_type, a, b);
    case KOp::kEq:
    case KOp::kNe:
    case KOp::kLt:
    case KOp::kLe:
    case KOp::kGt:
    case KOp::kGe:
      return EmitCompare(inst.op, in_type, a, b);
    default:
      return IsFloatingType(in_type) ? EmitFloating(inst, in_type, a, b, c) : EmitIntegral(inst, in_type, a, b, mask);
  }
}

Value* InstEmitter::EmitFloating(const KInst& inst, ScalarType type, Value* a, Value* b, Value* c) {
  auto unary = [&](ID id) { return builder_.CreateUnaryIntrinsic(id, a); };
  switch (inst.op) {
    case KOp::kAdd:
      return builder_.CreateFAdd(a, b);
    case KOp::kSub:
      return builder_.CreateFSub(a, b);
    case KOp::kMul:
      return builder_.CreateFMul(a, b);
    case KOp::kDiv:
      return builder_.CreateFDiv(a, b);
    case KOp::kNeg:
      return builder_.CreateFNeg(a);
    case KOp::kAbs:
      return unary(llvm::Intrinsic::fabs);
    case KOp::kSqrt:
      if (math_.NeedsLibrary(inst.op, inst.imm != 0)) return math_.Emit(inst.op, type, a, nullptr, false);
      return unary(llvm::Intrinsic::sqrt);
    case KOp::kFloor:
      return unary(llvm::Intrinsic::floor);
    case KOp::kCeil:
      return unary(llvm::Intrinsic::ceil);
    case KOp::kTrunc:
      return unary(llvm::Intrinsic::trunc);
    case KOp::kRound:
      return unary(llvm::Intrinsic::roundeven);
    case KOp::kIsNan:
      return builder_.CreateFCmpUNO(a, a);
    case KOp::kBits:
      return builder_.CreateBitCast(a, Like(builder_.getInt32Ty(), a));
    case KOp::kFma:
      return builder_.CreateIntrinsic(llvm::Intrinsic::fma, {a->getType()}, {a, b, c});
    default:
      return math_.Emit(inst.op, type, a, b, inst.imm != 0);
  }
}

Value* InstEmitter::EmitIntegral(const KInst& inst, ScalarType type, Value* a, Value* b, Value* mask) {
  const bool is_bool = type == ScalarType::Bool;
  switch (inst.op) {
    case KOp::kAdd:
      return is_bool ? builder_.CreateOr(a, b) : builder_.CreateAdd(a, b);
    case KOp::kSub:
      return builder_.CreateSub(a, b);
    case KOp::kMul:
      return is_bool ? builder_.CreateAnd(a, b) : builder_.CreateMul(a, b);
    case KOp::kDiv:
    case KOp::kMod:
      return EmitDivision(inst.op, type, a, b, mask);
    case KOp::kAnd:
      return builder_.CreateAnd(a, b);
    case KOp::kOr:
      return builder_.CreateOr(a, b);
    case KOp::kXor:
      return builder_.CreateXor(a, b);
    case KOp::kShl:
    case KOp::kShr:
      return EmitShift(inst.op, type, a, b);
    case KOp::kNeg:
      return builder_.CreateNeg(a);
    case KOp::kAbs:
      return IsSignedType(type) ? builder_.CreateIntrinsic(llvm::Intrinsic::abs, {a->getType()}, {a, builder_.getFalse()}) : a;
    default:
      return builder_.CreateNot(a);
  }
}

// Shifts by less than 0 or by the type's width and more follow ATen: everything is shifted out.
Value* InstEmitter::EmitShift(KOp op, ScalarType type, Value* a, Value* b) {
  const unsigned bits = 8 * ElementBytes(type);
  Value* in_range = builder_.CreateICmpULT(b, llvm::ConstantInt::get(b->getType(), bits));
  Value* zero = llvm::Constant::getNullValue(a->getType());
  if (op == KOp::kShl) return builder_.CreateSelect(in_range, builder_.CreateShl(a, builder_.CreateSelect(in_range, b, zero)), zero);
  if (!IsSignedType(type)) return builder_.CreateSelect(in_range, builder_.CreateLShr(a, builder_.CreateSelect(in_range, b, zero)), zero);
  return builder_.CreateAShr(a, builder_.CreateSelect(in_range, b, llvm::ConstantInt::get(b->getType(), bits - 1)));
}

Value* InstEmitter::EmitDivision(KOp op, ScalarType type, Value* a, Value* b, Value* mask) {
  if (mask != nullptr && b->getType()->isVectorTy()) b = builder_.CreateSelect(mask, b, llvm::ConstantInt::get(b->getType(), 1));
  const bool is_signed = IsSignedType(type);
  if (op == KOp::kDiv) return is_signed ? builder_.CreateSDiv(a, b) : builder_.CreateUDiv(a, b);
  return is_signed ? builder_.CreateSRem(a, b) : builder_.CreateURem(a, b);
}

Value* InstEmitter::EmitCompare(KOp op, ScalarType type, Value* a, Value* b) {
  using llvm::CmpInst;
  const bool is_float = IsFloatingType(type), is_signed = IsSignedType(type);
  auto pick = [&](CmpInst::Predicate f, CmpInst::Predicate s, CmpInst::Predicate u) { return is_float ? f : is_signed ? s : u; };
  CmpInst::Predicate predicate;
  switch (op) {
    case KOp::kEq:
      predicate = pick(CmpInst::FCMP_OEQ, CmpInst::ICMP_EQ, CmpInst::ICMP_EQ);
      break;
    case KOp::kNe:
      predicate = pick(CmpInst::FCMP_UNE, CmpInst::ICMP_NE, CmpInst::ICMP_NE);
      break;
    case KOp::kLt:
      predicate = pick(CmpInst::FCMP_OLT, CmpInst::ICMP_SLT, CmpInst::ICMP_ULT);
      break;
    case KOp::kLe:
      predicate = pick(CmpInst::FCMP_OLE, CmpInst::ICMP_SLE, CmpInst::ICMP_ULE);
      break;
    case KOp::kGt:
      predicate = pick(CmpInst::FCMP_OGT, CmpInst::ICMP_SGT, CmpInst::ICMP_UGT);
      break;
    default:
      predicate = pick(CmpInst::FCMP_OGE, CmpInst::ICMP_SGE, CmpInst::ICMP_UGE);
      break;
  }
  return builder_.CreateCmp(predicate, a, b);
}

// For floats, `a > b ? a : b` is exactly vmaxps, which yields b when either is NaN; one blend then picks the NaN rule.
Value* InstEmitter::EmitMinMax(KOp op, ScalarType type, Value* a, Value* b) {
  const bool is_max = op == KOp::kMax || op == KOp::kFmax;
  Value* best = builder_.CreateSelect(EmitCompare(is_max ? KOp::kGt : KOp::kLt, type, a, b), a, b);
  if (!IsFloatingType(type)) return best;
  if (op == KOp::kFmin || op == KOp::kFmax) return builder_.CreateSelect(builder_.CreateFCmpUNO(b, b), a, best);
  return builder_.CreateSelect(builder_.CreateFCmpUNO(a, a), a, best);
}

Value* InstEmitter::Combine(KOp reduce, ScalarType type, Value* acc, Value* value) {
  KInst step;
  step.type = type;
  switch (reduce) {
    case KOp::kReduceSum:
    case KOp::kScanSum:
      step.op = KOp::kAdd;
      break;
    case KOp::kReduceProd:
    case KOp::kScanProd:
      step.op = KOp::kMul;
      break;
    case KOp::kReduceMax:
      step.op = KOp::kMax;
      break;
    case KOp::kReduceMin:
      step.op = KOp::kMin;
      break;
    case KOp::kReduceAny:
      step.op = KOp::kOr;
      break;
    default:
      step.op = KOp::kAnd;
      break;
  }
  // Operand order: a NaN in the new value wins through the blend, one in the accumulator through vmaxps.
  return Emit(step, type, value, acc, nullptr, nullptr);
}

Value* InstEmitter::Identity(KOp reduce, ScalarType type) const {
  Type* element = RegisterType(type);
  const bool is_float = IsFloatingType(type);
  const unsigned bits = is_float ? 0 : element->getIntegerBitWidth();
  const bool is_signed = IsSignedType(type);
  switch (reduce) {
    case KOp::kReduceSum:
    case KOp::kScanSum:
    case KOp::kReduceAny:
      return llvm::Constant::getNullValue(element);
    case KOp::kReduceProd:
    case KOp::kScanProd:
      return is_float ? llvm::ConstantFP::get(element, 1.0) : llvm::ConstantInt::get(element, 1);
    case KOp::kReduceAll:
      return builder_.getTrue();
    case KOp::kReduceMax:
      if (is_float) return llvm::ConstantFP::getInfinity(element, /*Negative=*/true);
      return builder_.getInt(is_signed ? llvm::APInt::getSignedMinValue(bits) : llvm::APInt::getMinValue(bits));
    default:
      if (is_float) return llvm::ConstantFP::getInfinity(element);
      return builder_.getInt(is_signed ? llvm::APInt::getSignedMaxValue(bits) : llvm::APInt::getMaxValue(bits));
  }
}

Value* InstEmitter::WidenToFloat(ScalarType from, Value* value) {
  Type* float_type = Like(builder_.getFloatTy(), value);
  if (from == ScalarType::BFloat16) {
    Value* bits = builder_.CreateZExt(value, Like(builder_.getInt32Ty(), value));
    return builder_.CreateBitCast(builder_.CreateShl(bits, llvm::ConstantInt::get(bits->getType(), 16)), float_type);
  }
  if (isa_.half_conversion) return builder_.CreateFPExt(builder_.CreateBitCast(value, Like(builder_.getHalfTy(), value)), float_type);
  return math_.CallPerLane("lazuli_float_from_half", builder_.getFloatTy(), value, nullptr);
}

Value* InstEmitter::HalfFromFloat(Value* value) {
  if (!isa_.half_conversion) return math_.CallPerLane("lazuli_half_from_float", builder_.getInt16Ty(), value, nullptr);
  Value* half = builder_.CreateFPTrunc(value, Like(builder_.getHalfTy(), value));
  return builder_.CreateBitCast(half, Like(builder_.getInt16Ty(), value));
}

// Round to nearest even on the bits; every NaN becomes 0x7FC0.
Value* InstEmitter::BFloat16FromFloat(Value* value) {
  Type* word = Like(builder_.getInt32Ty(), value);
  auto constant = [&](uint32_t bits) { return llvm::ConstantInt::get(word, bits); };
  Value* bits = builder_.CreateBitCast(value, word);
  Value* odd = builder_.CreateAnd(builder_.CreateLShr(bits, constant(16)), constant(1));
  Value* rounded = builder_.CreateLShr(builder_.CreateAdd(bits, builder_.CreateAdd(odd, constant(0x7FFF))), constant(16));
  Value* result = builder_.CreateSelect(builder_.CreateFCmpUNO(value, value), constant(0x7FC0), rounded);
  return builder_.CreateTrunc(result, Like(builder_.getInt16Ty(), value));
}

Value* InstEmitter::EmitCast(ScalarType from, ScalarType to, Value* value) {
  if (from == to) return value;
  if (IsReducedPrecision(from)) return EmitCast(ScalarType::Float, to, WidenToFloat(from, value));
  if (IsReducedPrecision(to)) {
    Value* as_float = EmitCast(from, ScalarType::Float, value);
    return to == ScalarType::Half ? HalfFromFloat(as_float) : BFloat16FromFloat(as_float);
  }
  Type* target = Like(RegisterType(to), value);
  if (to == ScalarType::Bool) {
    if (!IsFloatingType(from)) return builder_.CreateIsNotNull(value);
    return builder_.CreateFCmpUNE(value, llvm::Constant::getNullValue(value->getType()));
  }
  if (IsFloatingType(from) && IsFloatingType(to)) return builder_.CreateFPCast(value, target);
  if (IsFloatingType(from)) {
    // As C++ on x86 does it: narrow types go through the next type that cvtt has, unsigned ones through 64 bits.
    Type* wide = Like(to == ScalarType::Long || to == ScalarType::Byte ? builder_.getInt64Ty() : builder_.getInt32Ty(), value);
    return builder_.CreateTrunc(builder_.CreateFPToSI(value, wide), target);
  }
  if (IsFloatingType(to)) return IsSignedType(from) ? builder_.CreateSIToFP(value, target) : builder_.CreateUIToFP(value, target);
  return builder_.CreateIntCast(value, target, IsSignedType(from));
}

}  // namespace lazuli::codegen
