#include "codegen/emit_llvm_rare.h"

#include <llvm/IR/MDBuilder.h>
#include <llvm/IR/Module.h>

#include "absl/strings/str_cat.h"

namespace lazuli::codegen {
namespace {

using llvm::BasicBlock;
using llvm::Function;
using llvm::Value;

// A function of the module, so that only its call is where it is needed.
Function* RareFunction(llvm::Module& module, const char* name, llvm::Type* type, const RareBody& body) {
  auto* vector_type = llvm::dyn_cast<llvm::FixedVectorType>(type);
  const unsigned lanes = vector_type != nullptr ? vector_type->getNumElements() : 0;
  const std::string full_name = absl::StrCat("lazuli_rare_", name, type->getScalarType()->isFloatTy() ? "_f" : "_d", lanes);
  if (Function* made = module.getFunction(full_name)) return made;
  auto* function = Function::Create(llvm::FunctionType::get(type, {type}, false), llvm::GlobalValue::InternalLinkage, full_name, module);
  function->setDoesNotThrow();
  function->addFnAttr(llvm::Attribute::NoInline);
  function->addFnAttr(llvm::Attribute::Cold);
  llvm::IRBuilder<> builder(BasicBlock::Create(module.getContext(), "entry", function));
  builder.CreateRet(body(builder, function->getArg(0)));
  return function;
}

}  // namespace

Value* EmitRare(llvm::IRBuilder<>& builder, Value* rare, Value* common, const char* name, Value* x, const RareBody& body) {
  BasicBlock* before = builder.GetInsertBlock();
  Function* parent = before->getParent();
  llvm::Module& module = *parent->getParent();
  Value* any = rare->getType()->isVectorTy() ? builder.CreateOrReduce(rare) : rare;
  auto* rarely = BasicBlock::Create(module.getContext(), "rare", parent);
  auto* joined = BasicBlock::Create(module.getContext(), "joined");
  builder.CreateCondBr(any, rarely, joined, llvm::MDBuilder(module.getContext()).createBranchWeights(1, 1 << 20));
  builder.SetInsertPoint(rarely);
  Value* called = builder.CreateCall(RareFunction(module, name, x->getType(), body), {x});
  Value* mixed = builder.CreateSelect(rare, called, common);
  builder.CreateBr(joined);
  joined->insertInto(parent);
  builder.SetInsertPoint(joined);
  llvm::PHINode* result = builder.CreatePHI(x->getType(), 2);
  result->addIncoming(common, before);
  result->addIncoming(mixed, rarely);
  return result;
}

}  // namespace lazuli::codegen
