// Division of vectors by one number, bit-equal to IEEE division, by multiplications: a division keeps one port busy for many cycles.
//
// With r = 1 / b rounded, q = a r and e = q b - a, which fma computes exactly, q - e r rounds to a / b (Markstein). Only where nothing
// comes near the ends of the type's range: vectors with other lanes are divided.
#pragma once

#include <llvm/ADT/ArrayRef.h>
#include <llvm/IR/IRBuilder.h>

namespace lazuli::codegen {

// A divisor, in every lane, and what is known of it.
struct Divisor {
  llvm::Value* number = nullptr;
  llvm::Value* reciprocal = nullptr;
  // Lanes are divided where the bits of the dividend without its sign, and one place to the left, are no more than `limit` above -offset.
  llvm::Value* offset = nullptr;
  llvm::Value* limit = nullptr;
};

// `number` is a scalar: float or double.
Divisor MakeDivisor(llvm::IRBuilder<>& builder, llvm::Value* number, int lanes);

// Each of `dividends`, vectors of the divisor's type, over `divisor`.
llvm::SmallVector<llvm::Value*, 8> DivideBy(llvm::IRBuilder<>& builder, const Divisor& divisor, llvm::ArrayRef<llvm::Value*> dividends);

}  // namespace lazuli::codegen
