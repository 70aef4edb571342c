// Arguments so rare that a whole vector leaves the inlined code for them.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <functional>

namespace lazuli::codegen {

// Emits what the rare arguments take, of a whole vector of them.
using RareBody = std::function<llvm::Value*(llvm::IRBuilder<>& builder, llvm::Value* x)>;

// `common`, with what `body` makes of `x`, of the same type, in the lanes where `rare` is true. No lane being so costs a branch. `name`
// stands for `body` in the module, which has its code once.
llvm::Value* EmitRare(llvm::IRBuilder<>& builder, llvm::Value* rare, llvm::Value* common, const char* name, llvm::Value* x,
                      const RareBody& body);

}  // namespace lazuli::codegen
