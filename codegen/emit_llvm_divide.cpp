#include "codegen/emit_llvm_divide.h"

#include <llvm/IR/MDBuilder.h>
#include <llvm/IR/Module.h>

#include <cmath>
#include <limits>

namespace lazuli::codegen {
namespace {

using llvm::BasicBlock;
using llvm::Constant;
using llvm::ConstantFP;
using llvm::ConstantInt;
using llvm::Value;

// Numbers between 2^-k and 2^k are in the middle of the range: neither quotients of two of them nor what e is made of come near its ends.
int MiddleExponent(llvm::Type* type) { return type->getScalarType()->isFloatTy() ? 60 : 500; }

llvm::Type* BitsType(llvm::IRBuilder<>& builder, llvm::Type* type) {
  return type->getWithNewType(builder.getIntNTy(type->getScalarSizeInBits()));
}

// The bits of 2^exponent, one place to the left.
uint64_t ShiftedBits(llvm::Type* type, int exponent) {
  return type->isFloatTy() ? static_cast<uint64_t>(exponent + 127) << 24 : static_cast<uint64_t>(exponent + 1023) << 53;
}

// q - e r. Where the dividend is infinite, so is q, and e, which would be NaN, is replaced by a number. A dividend of -0 gives -0, since
// e is +0.
Value* Quotient(llvm::IRBuilder<>& builder, const Divisor& divisor, Value* a) {
  llvm::Type* type = a->getType();
  const auto fma = [&](Value* x, Value* y, Value* z) { return builder.CreateIntrinsic(llvm::Intrinsic::fma, {type}, {x, y, z}); };
  Value* q = builder.CreateFMul(a, divisor.reciprocal);
  Value* e = fma(q, divisor.number, builder.CreateFNeg(a));
  const double lowest = type->getScalarType()->isFloatTy() ? std::numeric_limits<float>::lowest() : std::numeric_limits<double>::lowest();
  Constant* least = ConstantFP::get(type, lowest);
  e = builder.CreateSelect(builder.CreateFCmpOGT(e, least), e, least);
  return fma(builder.CreateFNeg(e), divisor.reciprocal, q);
}

// Whether some lane has to be divided.
Value* NeedsDivision(llvm::IRBuilder<>& builder, const Divisor& divisor, llvm::ArrayRef<Value*> dividends) {
  Value* least = nullptr;
  for (Value* a : dividends) {
    Value* bits = builder.CreateBitCast(a, BitsType(builder, a->getType()));
    Value* above = builder.CreateAdd(builder.CreateAdd(bits, bits), divisor.offset);
    least = least == nullptr ? above : builder.CreateBinaryIntrinsic(llvm::Intrinsic::umin, least, above);
  }
  return builder.CreateOrReduce(builder.CreateICmpULE(least, divisor.limit));
}

}  // namespace

// By a divisor of at least 1 only tiny dividends other than 0 are divided, by a smaller one those outside of the middle of the range, 0
// among them, and by other divisors all.
Divisor MakeDivisor(llvm::IRBuilder<>& builder, Value* number, int lanes) {
  llvm::Type* type = number->getType();
  llvm::Type* bits = BitsType(builder, type);
  const int middle = MiddleExponent(type);
  const uint64_t low = ShiftedBits(type, -middle), high = ShiftedBits(type, middle);
  const auto number_of = [&](int exponent) { return ConstantFP::get(type, std::ldexp(1.0, exponent)); };
  const auto bits_of = [&](uint64_t value) { return ConstantInt::get(bits, value); };
  Value* below_1 = builder.CreateFCmpOLT(number, number_of(0));
  Value* usable = builder.CreateAnd(builder.CreateFCmpOGE(number, number_of(-middle)), builder.CreateFCmpOLE(number, number_of(middle)));
  Value* offset = builder.CreateSelect(builder.CreateAnd(usable, below_1), bits_of(-high), bits_of(~uint64_t{0}));
  Value* limit = builder.CreateSelect(below_1, bits_of(low - high - 1), bits_of(low - 2));
  limit = builder.CreateSelect(usable, limit, bits_of(~uint64_t{0}));
  Value* reciprocal = builder.CreateFDiv(ConstantFP::get(type, 1), number);
  const auto splat = [&](Value* value) { return builder.CreateVectorSplat(lanes, value); };
  return {splat(number), splat(reciprocal), splat(offset), splat(limit)};
}

llvm::SmallVector<Value*, 8> DivideBy(llvm::IRBuilder<>& builder, const Divisor& divisor, llvm::ArrayRef<Value*> dividends) {
  Value* needs_division = NeedsDivision(builder, divisor, dividends);
  llvm::Function* function = builder.GetInsertBlock()->getParent();
  llvm::LLVMContext& context = function->getContext();
  auto* common = BasicBlock::Create(context, "multiply", function);
  auto* rare = BasicBlock::Create(context, "divide", function);
  auto* joined = BasicBlock::Create(context, "divided", function);
  builder.CreateCondBr(needs_division, rare, common, llvm::MDBuilder(context).createBranchWeights(1, 1 << 20));
  llvm::SmallVector<Value*, 8> multiplied, divided, results;
  builder.SetInsertPoint(common);
  for (Value* a : dividends) multiplied.push_back(Quotient(builder, divisor, a));
  builder.CreateBr(joined);
  builder.SetInsertPoint(rare);
  for (Value* a : dividends) divided.push_back(builder.CreateFDiv(a, divisor.number));
  builder.CreateBr(joined);
  builder.SetInsertPoint(joined);
  for (size_t i = 0; i < dividends.size(); ++i) {
    llvm::PHINode* result = builder.CreatePHI(dividends[i]->getType(), 2);
    result->addIncoming(multiplied[i], common);
    result->addIncoming(divided[i], rare);
    results.push_back(result);
  }
  return results;
}

}  // namespace lazuli::codegen
