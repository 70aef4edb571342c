#include "codegen/emit_llvm_function.h"

#include <llvm/IR/Module.h>

#include <algorithm>

namespace lazuli::codegen {

using llvm::Value;

ScratchSize ScratchOf(const LoopPlan& plan) {
  ScratchSize size;
  size.kept = plan.kernel.symbols.Decode(plan.kept_numel);
  size.splits = plan.num_splits;
  for (size_t i = 0; plan.IsSplit() && i < plan.kernel.insts.size(); ++i) {
    const KInst& inst = plan.kernel.insts[i];
    if (plan.live[i] && IsReduce(inst.op)) size.element_bytes.push_back(ElementBytes(inst.type));
  }
  return size;
}

FunctionEmitter::FunctionEmitter(llvm::Module& module, const LoopPlan& plan, const IsaInfo& isa, const std::string& precision)
    : module_(module),
      plan_(plan),
      builder_(module.getContext()),
      ops_(builder_, module, isa, precision),
      memory_(builder_, isa, plan.lanes) {}

void FunctionEmitter::EmitWhole(const std::string& name) {
  Begin(name);
  for (int pass = 0; pass < plan_.num_passes; ++pass) NeedPass(pass);
  NeedStores();
  EmitUnits(1, [this] {
    for (int pass = 0; pass < plan_.num_passes; ++pass) {
      if (pass > 0) EmitKeptStage(pass);
      EmitPass(pass, /*to_partials=*/false);
    }
    if (plan_.num_passes > 0) EmitKeptStage(plan_.num_passes);
    EmitKeptStores();
  });
  Finish();
}

void FunctionEmitter::EmitSplitPass(const std::string& name, int pass) {
  Begin(name);
  NeedPass(pass);
  EmitUnits(plan_.num_splits, [this, pass] {
    for (int stage = 1; stage <= pass; ++stage) EmitKeptStage(stage);
    EmitPass(pass, /*to_partials=*/true);
  });
  Finish();
}

void FunctionEmitter::EmitCombine(const std::string& name, int pass, bool stores) {
  Begin(name);
  combining_pass_ = pass;
  if (stores) NeedStores();
  EmitUnits(1, [this, pass, stores] {
    for (int i = 0; i < num_insts(); ++i) {
      if (InPass(i, pass)) CombinePartials(i);
    }
    if (!stores) return;
    for (int stage = 1; stage <= plan_.num_passes; ++stage) EmitKeptStage(stage);
    EmitKeptStores();
  });
  Finish();
}

void FunctionEmitter::Begin(const std::string& name) {
  llvm::Type* pointer = builder_.getPtrTy();
  llvm::Type* i64 = builder_.getInt64Ty();
  auto* type = llvm::FunctionType::get(builder_.getVoidTy(), {pointer, pointer, pointer, i64, i64, pointer}, false);
  function_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, name, module_);
  function_->setDoesNotThrow();
  builder_.SetInsertPoint(llvm::BasicBlock::Create(module_.getContext(), "entry", function_));
  index_.assign(plan_.rank, nullptr);
  values_.assign(num_insts(), Values());
  kept_needs_.assign(num_insts(), false);
  accumulators_.assign(num_insts(), {});
  blocks_.assign(num_insts(), {});
  rows_of_blocks_.assign(num_insts(), {});
  scanned_.assign(num_insts(), {});
  tiles_.assign(num_insts(), nullptr);
  symbols_.clear();
  for (int k = 0; k < plan_.kernel.symbols.size(); ++k) {
    symbols_.push_back(builder_.CreateLoad(i64, builder_.CreateConstGEP1_64(i64, function_->getArg(2), k)));
  }
  ranges_.clear();
  for (int64_t size : plan_.kernel.sizes) ranges_.push_back({builder_.getInt64(0), Number(size)});
  BindSlots();
  if (plan_.IsSplit()) BindScratch();
  BindCache();
}

void FunctionEmitter::BindSlots() {
  llvm::Type* pointer = builder_.getPtrTy();
  slots_.clear();
  for (size_t b = 0; b < plan_.kernel.buffers.size(); ++b) {
    Value* address = builder_.CreateConstGEP1_64(pointer, function_->getArg(0), b);
    slots_.push_back({plan_.kernel.buffers[b].dtype, plan_.kernel.buffers[b].strides, builder_.CreateLoad(pointer, address)});
  }
  slot_of_result_.assign(num_insts(), -1);
  slot_of_partial_.assign(num_insts(), -1);
}

// The layout that ScratchSize counts.
void FunctionEmitter::BindScratch() {
  c10::DimVector kept_strides(plan_.rank, 0);
  int64_t stride = 1;
  for (int d = plan_.num_kept - 1; d >= 0; --d) {
    kept_strides[d] = stride;
    stride *= plan_.kernel.sizes[d];
  }
  Value* next = function_->getArg(5);
  for (int i = 0; i < num_insts(); ++i) {
    if (!plan_.live[i] || !IsReduce(inst(i).op)) continue;
    c10::DimVector strides = kept_strides;
    if (plan_.IsUniform(i)) strides[plan_.vector_dim] = 0;
    Value* bytes = Number(plan_.kept_numel, ElementBytes(inst(i).type));
    slot_of_result_[i] = static_cast<int>(slots_.size());
    slots_.push_back({inst(i).type, strides, next});
    next = memory_.Offset(next, RoundUp(bytes, ScratchSize::kAlignment));
    slot_of_partial_[i] = static_cast<int>(slots_.size());
    slots_.push_back({inst(i).type, strides, next});
    next = memory_.Offset(next, RoundUp(builder_.CreateMul(bytes, builder_.getInt64(plan_.num_splits)), ScratchSize::kAlignment));
  }
}

// Rows of known length are cached on the stack, others in memory that the thread keeps.
void FunctionEmitter::BindCache() {
  cache_.assign(num_insts(), nullptr);
  Value* bytes = builder_.getInt64(0);
  for (int i = 0; i < num_insts(); ++i) {
    if (!plan_.cached[i]) continue;
    Value* elements = builder_.getInt64(plan_.VectorIsReduced() ? 1 : static_cast<int64_t>(plan_.lanes) * plan_.unroll);
    for (int d = plan_.num_kept; d < plan_.rank; ++d) elements = builder_.CreateMul(elements, CacheLength(d));
    cache_[i] = bytes;
    bytes = builder_.CreateAdd(bytes, RoundUp(builder_.CreateMul(elements, builder_.getInt64(ElementBytes(inst(i).type))), 64));
  }
  Value* base = nullptr;
  if (auto* constant = llvm::dyn_cast<llvm::ConstantInt>(bytes)) {
    if (constant->isZero()) return;
    base = memory_.StackSlot(llvm::ArrayType::get(builder_.getInt8Ty(), constant->getZExtValue()), 64);
  } else {
    auto* type = llvm::FunctionType::get(builder_.getPtrTy(), {builder_.getInt64Ty()}, false);
    base = builder_.CreateCall(module_.getOrInsertFunction(kRowCacheFunction, type), {bytes});
  }
  for (Value*& row : cache_) {
    if (row != nullptr) row = memory_.Offset(base, row);
  }
}

Value* FunctionEmitter::CacheLength(int dim) {
  Value* size = Number(plan_.kernel.sizes[dim]);
  return dim == plan_.vector_dim ? RoundUp(size, plan_.lanes) : size;
}

Value* FunctionEmitter::Number(int64_t number, int64_t factor) { return Number(plan_.kernel.symbols.Decode(number), factor); }

Value* FunctionEmitter::Number(const runtime::Product& product, int64_t factor) {
  Value* value = builder_.getInt64(product.coefficient * factor);
  for (const int32_t symbol : product.symbols) value = builder_.CreateMul(value, symbols_[static_cast<size_t>(symbol)]);
  return value;
}

Value* FunctionEmitter::CeilDiv(Value* number, int64_t divisor) {
  return builder_.CreateUDiv(builder_.CreateAdd(number, builder_.getInt64(divisor - 1)), builder_.getInt64(divisor));
}

Value* FunctionEmitter::RoundUp(Value* number, int64_t multiple) {
  return builder_.CreateMul(CeilDiv(number, multiple), builder_.getInt64(multiple));
}

Value* FunctionEmitter::NumUnits() {
  const UnitCount units = plan_.Units();
  return builder_.CreateMul(Number(units.outer), CeilDiv(Number(units.size), units.chunk));
}

// What the function writes, by its share of the units, and where.
void FunctionEmitter::BindStreams(int64_t num_splits) {
  may_stream_ = nullptr;
  const int64_t bytes = plan_.StreamedBytes();
  if (bytes == 0) return;
  loop_streams_ = plan_.num_passes == 0;
  Value* whole = builder_.CreateMul(Number(plan_.kept_numel, bytes), Number(plan_.reduced_numel));
  Value* one = builder_.CreateUDiv(whole, builder_.CreateMul(NumUnits(), builder_.getInt64(num_splits)));
  Value* share = builder_.CreateMul(one, builder_.CreateSub(function_->getArg(4), function_->getArg(3)));
  may_stream_ = builder_.CreateAnd(builder_.CreateICmpUGE(whole, builder_.getInt64(kStreamBytes)),
                                   builder_.CreateICmpUGE(share, builder_.getInt64(kStreamShare)));
  for (int i = 0; i < num_insts(); ++i) {
    if (!plan_.streams[i]) continue;
    const Slot& slot = slots_[inst(i).imm];
    const int64_t element = ElementBytes(slot.dtype);
    Value* bits = builder_.CreatePtrToInt(slot.pointer, builder_.getInt64Ty());
    for (int d = 0; d + 1 < plan_.rank; ++d) {
      if (plan_.IsSymbolic(slot.strides[d])) bits = builder_.CreateOr(bits, Number(slot.strides[d], element));
    }
    Value* off = builder_.CreateAnd(bits, builder_.getInt64(memory_.StreamAlignment(element) - 1));
    may_stream_ = builder_.CreateAnd(may_stream_, builder_.CreateICmpEQ(off, builder_.getInt64(0)));
  }
}

void FunctionEmitter::Finish() {
  if (may_stream_ != nullptr) {
    Either(
        may_stream_, [this] { memory_.Fence(); }, [] {});
  }
  builder_.CreateRetVoid();
}

void FunctionEmitter::EmitUnits(int64_t num_splits, const Body& leaf) {
  BindStreams(num_splits);
  for (int i = 0; i < num_insts(); ++i) {
    if (kept_needs_[i] && plan_.stage[i] == 0 && plan_.deps[i] == 0 && !IsKeptStore(i)) EmitInst(i);
  }
  if (plan_.IsParted()) return EmitParts(leaf);
  Value* num_units = num_splits == 1 ? nullptr : NumUnits();
  EmitLoop(function_->getArg(3), function_->getArg(4), 1, [&](Value* unit) {
    if (num_splits == 1) return EmitUnit(unit, leaf);
    Value* split = builder_.CreateUDiv(unit, num_units);
    Value* size = Number(plan_.kernel.sizes[plan_.split_dim]);
    ranges_[plan_.split_dim] = Chunk(split, RoundUp(CeilDiv(size, num_splits), plan_.split_multiple), size);
    for (int i = 0; i < num_insts(); ++i) {
      if (slot_of_partial_[i] < 0) continue;
      Slot& slot = slots_[slot_of_partial_[i]];
      slot.pointer = memory_.Offset(slot.pointer, builder_.CreateMul(split, Number(plan_.kept_numel, ElementBytes(inst(i).type))));
    }
    EmitUnit(builder_.CreateURem(unit, num_units), leaf);
  });
}

FunctionEmitter::Range FunctionEmitter::Chunk(Value* index, Value* length, Value* size) {
  const auto clamp = [&](Value* position) { return builder_.CreateSelect(builder_.CreateICmpULT(position, size), position, size); };
  Value* begin = builder_.CreateMul(index, length);
  return {clamp(begin), clamp(builder_.CreateAdd(begin, length))};
}

void FunctionEmitter::EmitUnit(Value* unit, const Body& leaf) {
  if (plan_.num_kept == 0) return leaf();
  Value* size = Number(plan_.kernel.sizes[plan_.unit_dim]);
  Value* length = builder_.getInt64(plan_.unit_chunk);
  Value* chunks = CeilDiv(size, plan_.unit_chunk);
  Value* rest = unit;
  auto* constant = llvm::dyn_cast<llvm::ConstantInt>(chunks);
  if (constant == nullptr || constant->getZExtValue() > 1) {
    Value* chunk = plan_.unit_dim == 0 ? rest : builder_.CreateURem(rest, chunks);
    ranges_[plan_.unit_dim] = Chunk(chunk, length, size);
    rest = builder_.CreateUDiv(rest, chunks);
  }
  for (int d = plan_.unit_dim - 1; d >= 0; --d) {
    Value* extent = Number(plan_.kernel.sizes[d]);
    ranges_[d] = {builder_.CreateURem(rest, extent), nullptr};
    rest = builder_.CreateUDiv(rest, extent);
  }
  EmitKept(0, leaf);
}

void FunctionEmitter::EmitKept(int depth, const Body& leaf) {
  for (int i = 0; depth > 0 && i < num_insts(); ++i) {
    if (!kept_needs_[i] || plan_.stage[i] != 0 || IsKeptStore(i) || plan_.Depth(i) != depth) continue;
    EmitInst(i);
  }
  if (depth == plan_.num_kept) return leaf();
  if (plan_.IsTiled() && depth == plan_.vector_dim + 1) PackTiles();
  EmitDim(depth, [&] { EmitKept(depth + 1, leaf); });
}

void FunctionEmitter::EmitLoop(Value* begin, Value* end, int64_t step, const std::function<void(Value*)>& body) {
  auto* first = llvm::dyn_cast<llvm::ConstantInt>(begin);
  auto* last = llvm::dyn_cast<llvm::ConstantInt>(end);
  const bool constant = first != nullptr && last != nullptr;
  if (constant && first->getSExtValue() >= last->getSExtValue()) return;
  if (constant && first->getSExtValue() + step >= last->getSExtValue()) return body(begin);
  auto* loop = llvm::BasicBlock::Create(module_.getContext(), "loop", function_);
  auto* done = llvm::BasicBlock::Create(module_.getContext(), "done");
  llvm::BasicBlock* before = builder_.GetInsertBlock();
  if (constant) {
    builder_.CreateBr(loop);
  } else {
    builder_.CreateCondBr(builder_.CreateICmpSLT(begin, end), loop, done);
  }
  builder_.SetInsertPoint(loop);
  llvm::PHINode* index = builder_.CreatePHI(builder_.getInt64Ty(), 2);
  index->addIncoming(begin, before);
  body(index);
  Value* next = builder_.CreateNSWAdd(index, builder_.getInt64(step));
  index->addIncoming(next, builder_.GetInsertBlock());
  builder_.CreateCondBr(builder_.CreateICmpSLT(next, end), loop, done);
  done->insertInto(function_);
  builder_.SetInsertPoint(done);
}

void FunctionEmitter::EmitWhile(const std::function<Value*()>& condition, const Body& body) {
  auto* test = llvm::BasicBlock::Create(module_.getContext(), "while", function_);
  auto* loop = llvm::BasicBlock::Create(module_.getContext(), "do", function_);
  auto* done = llvm::BasicBlock::Create(module_.getContext(), "done");
  builder_.CreateBr(test);
  builder_.SetInsertPoint(test);
  builder_.CreateCondBr(condition(), loop, done);
  builder_.SetInsertPoint(loop);
  body();
  builder_.CreateBr(test);
  done->insertInto(function_);
  builder_.SetInsertPoint(done);
}

void FunctionEmitter::Either(Value* condition, const Body& then, const Body& otherwise) {
  auto* yes = llvm::BasicBlock::Create(module_.getContext(), "then", function_);
  auto* no = llvm::BasicBlock::Create(module_.getContext(), "else");
  auto* done = llvm::BasicBlock::Create(module_.getContext(), "done");
  builder_.CreateCondBr(condition, yes, no);
  builder_.SetInsertPoint(yes);
  then();
  builder_.CreateBr(done);
  no->insertInto(function_);
  builder_.SetInsertPoint(no);
  otherwise();
  builder_.CreateBr(done);
  done->insertInto(function_);
  builder_.SetInsertPoint(done);
}

void FunctionEmitter::AtIndex(int dim, Value* index, const Body& body) {
  const std::vector<Slot> saved = slots_;
  index_[dim] = index;
  for (Slot& slot : slots_) {
    if (slot.strides[dim] == 0) continue;
    Value* bytes = builder_.CreateMul(index, Number(slot.strides[dim], ElementBytes(slot.dtype)));
    slot.pointer = memory_.Offset(slot.pointer, bytes);
  }
  body();
  slots_ = saved;
}

void FunctionEmitter::EmitDim(int dim, const Body& body) {
  const Range range = ranges_[dim];
  if (range.end == nullptr) return AtIndex(dim, range.begin, body);
  if (dim == plan_.vector_dim) return EmitVectorDim(dim, body);
  EmitAlong(dim, range.begin, range.end, 1, body);
}

void FunctionEmitter::EmitLoopAlong(int dim, Value* begin, Value* end, int64_t step, const std::function<void(Value*)>& body) {
  if (!plan_.from_end || dim != plan_.rank - 1) return EmitLoop(begin, end, step, body);
  Value* steps = builder_.CreateSub(CeilDiv(builder_.CreateSub(end, begin), step), builder_.getInt64(1));
  Value* last = builder_.CreateAdd(begin, builder_.CreateMul(steps, builder_.getInt64(step)));
  Value* both = builder_.CreateAdd(begin, last);
  EmitLoop(begin, end, step, [&](Value* i) { body(builder_.CreateSub(both, i)); });
}

void FunctionEmitter::EmitAlong(int dim, Value* begin, Value* end, int64_t step, const Body& body) {
  EmitLoopAlong(dim, begin, end, step, [&](Value* i) { AtIndex(dim, i, body); });
}

void FunctionEmitter::EmitVectorDim(int dim, const Body& body) {
  const Range range = ranges_[dim];
  const int64_t size = plan_.kernel.sizes[dim];
  const bool any_size = plan_.IsSymbolic(size);
  const bool from_end = plan_.from_end && dim == plan_.rank - 1;
  const int64_t block = static_cast<int64_t>(plan_.lanes) * plan_.unroll;
  const bool has_main_loop = any_size || size >= block;
  Value* main_end = range.begin;
  if (has_main_loop) {
    Value* length = builder_.CreateSub(range.end, range.begin);
    Value* whole = builder_.CreateSub(length, builder_.CreateURem(length, builder_.getInt64(block)));
    main_end = builder_.CreateAdd(range.begin, whole);
    if (from_end) EmitTail(dim, main_end, body);
    width_ = plan_.unroll;
    const Body loop = [&] { EmitAlong(dim, range.begin, main_end, block, body); };
    const Body streaming_loop = [&] {
      streaming_ = true;
      loop();
      streaming_ = false;
    };
    prefetching_ = true;
    if (may_stream_ != nullptr && loop_streams_) {
      Either(may_stream_, streaming_loop, loop);
    } else {
      loop();
    }
    prefetching_ = false;
  }
  if (!from_end || !has_main_loop) EmitTail(dim, main_end, body);
}

// What is left of the vector loop from `begin` on, one vector at a time.
void FunctionEmitter::EmitTail(int dim, Value* begin, const Body& body) {
  const int64_t size = plan_.kernel.sizes[dim], block = static_cast<int64_t>(plan_.lanes) * plan_.unroll;
  const bool any_size = plan_.IsSymbolic(size);
  if (!any_size && size % block == 0) return;
  width_ = 1;
  Value* end = ranges_[dim].end;
  EmitAlong(dim, begin, end, plan_.lanes, [&] {
    if (any_size || size % plan_.lanes != 0) tail_ = MakeTail(index_[dim], end);
    body();
    tail_ = Tail();
  });
}

Tail FunctionEmitter::MakeTail(Value* index, Value* end) {
  Value* left = builder_.CreateSub(end, index);
  Value* lanes = builder_.getInt64(plan_.lanes);
  Tail tail;
  tail.count = builder_.CreateSelect(builder_.CreateICmpSLT(left, lanes), left, lanes);
  llvm::SmallVector<llvm::Constant*, 64> ids;
  for (int lane = 0; lane < plan_.lanes; ++lane) ids.push_back(builder_.getInt32(lane));
  Value* count = builder_.CreateVectorSplat(plan_.lanes, builder_.CreateTrunc(tail.count, builder_.getInt32Ty()));
  tail.mask = builder_.CreateICmpULT(llvm::ConstantVector::get(ids), count);
  return tail;
}

}  // namespace lazuli::codegen
