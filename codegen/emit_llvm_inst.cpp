// The part of FunctionEmitter that evaluates instructions: passes over the reduced loops, reductions, loads and stores.
#include <llvm/IR/Module.h>

#include <algorithm>

#include "codegen/emit_llvm_function.h"

namespace lazuli::codegen {

using llvm::Value;

constexpr int64_t kBlocksInRow = 64;
constexpr int64_t kPointsInCache = 16 * 1024;  // Of one pass, for the next.

void FunctionEmitter::NeedKept(int i) {
  if (plan_.IsFull(i)) return;
  kept_needs_[i] = true;
}

void FunctionEmitter::NeedPass(int pass) {
  for (int i = num_insts() - 1; i >= 0; --i) {
    const bool evaluated = plan_.IsComputedIn(i, pass);
    const bool root = InPass(i, pass) || plan_.store_pass[i] == pass;
    const bool kept = kept_needs_[i] && !(IsReduce(inst(i).op) && plan_.IsSplit());
    if (!evaluated && !root && !(kept && !IsReduce(inst(i).op))) continue;
    for (int k = 0; k < KOpArity(inst(i).op); ++k) NeedKept(inst(i).in[k]);
  }
}

void FunctionEmitter::NeedStores() {
  for (int i = num_insts() - 1; i >= 0; --i) {
    if (HasEffect(inst(i).op) && !plan_.IsFullStore(i)) kept_needs_[i] = true;
    if (!kept_needs_[i] || IsReduce(inst(i).op)) continue;
    for (int k = 0; k < KOpArity(inst(i).op); ++k) NeedKept(inst(i).in[k]);
  }
}

void FunctionEmitter::EmitKeptStage(int stage) {
  for (int i = 0; i < num_insts(); ++i) {
    if (plan_.stage[i] != stage || !kept_needs_[i] || HasEffect(inst(i).op)) continue;
    if (!IsReduce(inst(i).op)) {
      EmitInst(i);
    } else if (plan_.IsSplit() && !InPass(i, combining_pass_)) {
      LoadSlot(i, slots_[slot_of_result_[i]], slots_[slot_of_result_[i]].pointer);
    }
  }
}

void FunctionEmitter::EmitKeptStores() {
  for (int i = 0; i < num_insts(); ++i) {
    if (IsKeptStore(i)) EmitStore(i);
  }
}

void FunctionEmitter::EmitPass(int pass, bool to_partials) {
  BeginAccumulators(pass);
  BeginScans(pass);
  bool cascades = false;
  loop_streams_ = false;
  pass_ = pass;
  from_memory_ = pass == 0 || plan_.Hint(plan_.reduced_numel) >= kPointsInCache;
  for (int i = 0; i < num_insts(); ++i) {
    cascades |= InPass(i, pass) && Cascades(i);
    loop_streams_ |= plan_.streams[i] && plan_.store_pass[i] == pass;
  }
  const auto loops = [&](bool in_blocks) {
    in_blocks_ = in_blocks;
    if (in_blocks) BeginBlocks(pass);
    EmitFull(pass, plan_.num_kept);
  };
  if (cascades && CountsBlocks()) {
    const auto short_loops = [&] { loops(/*in_blocks=*/false); };
    Either(FitOneBlock(), short_loops, [&] {
      loops(/*in_blocks=*/true);
      for (const auto& [from, into] :
           {std::pair(&accumulators_, &blocks_), std::pair(&blocks_, &rows_of_blocks_), std::pair(&rows_of_blocks_, &accumulators_)}) {
        FlushSums(pass, *from, *into);
      }
    });
  } else {
    loops(cascades);
  }
  EndAccumulators(pass, to_partials);
}

// Whether all iterations of the reduced loops fit one block, so that there is nothing to cascade.
Value* FunctionEmitter::FitOneBlock() {
  Value* iterations = builder_.getInt64(1);
  for (int d = plan_.num_kept; d < plan_.rank; ++d) {
    iterations = builder_.CreateMul(iterations, CeilDiv(builder_.CreateSub(ranges_[d].end, ranges_[d].begin), plan_.Step(d)));
  }
  return builder_.CreateICmpULE(iterations, builder_.getInt64(kCascadeBlock));
}

void FunctionEmitter::EmitFull(int pass, int depth) {
  for (int i = 0; depth > plan_.num_kept && i < num_insts(); ++i) {
    if (!plan_.pass_needs[pass][i] || HasEffect(inst(i).op) || plan_.Depth(i) != depth) continue;
    if (plan_.IsCachedBefore(i, pass)) {
      values_[i] = Values();
      auto* type = llvm::FixedVectorType::get(ops_.MemoryType(inst(i).type), plan_.lanes);
      for (int u = 0; u < width_; ++u) {
        Value* bits = builder_.CreateAlignedLoad(type, CachePointer(i, u), llvm::Align(ElementBytes(inst(i).type)));
        values_[i].vectors.push_back(ops_.FromMemory(inst(i).type, bits));
      }
    } else {
      EmitInst(i);
    }
  }
  if (depth == plan_.rank) return EmitInnermost(pass);
  if (in_blocks_ && depth == plan_.cascade_dim) return EmitCascade(pass, depth);
  const Body loop = [&] { EmitDim(depth, [&] { EmitFull(pass, depth + 1); }); };
  if (!plan_.scatters_rows || depth != plan_.vector_dim - 1) return loop();
  Either(AreAllParts(), loop, [&] { EmitOwnRows(pass, depth); });
}

// The loop in blocks; after each, the accumulators of sums move on to the sums of blocks and start anew. Where loops may be short or long,
// whatever the plan took them for, iterations are counted, and they move on when a block is at least half full.
void FunctionEmitter::EmitCascade(int pass, int depth) {
  const Range whole = ranges_[depth];
  const int64_t step = plan_.Step(depth);
  const int64_t block = plan_.cascade_block * step;
  EmitLoopAlong(depth, whole.begin, whole.end, block, [&](Value* begin) {
    Value* end = builder_.CreateAdd(begin, builder_.getInt64(block));
    ranges_[depth] = {begin, builder_.CreateSelect(builder_.CreateICmpSLT(end, whole.end), end, whole.end)};
    EmitDim(depth, [&] { EmitFull(pass, depth + 1); });
    if (!CountsBlocks()) return FlushSums(pass, accumulators_, blocks_);
    Value* length = builder_.CreateSub(ranges_[depth].end, begin);
    CountTo(in_block_, CeilDiv(length, step), (plan_.cascade_block + 1) / 2, [&] {
      FlushSums(pass, accumulators_, blocks_);
      CountTo(in_row_of_blocks_, builder_.getInt64(1), kBlocksInRow, [&] { FlushSums(pass, blocks_, rows_of_blocks_); });
    });
  });
  ranges_[depth] = whole;
}

// Adds `amount` to the count, and does `then` when that makes it `limit`, whereupon it starts anew.
void FunctionEmitter::CountTo(llvm::AllocaInst* count, Value* amount, int64_t limit, const Body& then) {
  Value* now = builder_.CreateAdd(builder_.CreateLoad(builder_.getInt64Ty(), count), amount);
  builder_.CreateStore(now, count);
  auto* full = llvm::BasicBlock::Create(module_.getContext(), "full", function_);
  auto* next = llvm::BasicBlock::Create(module_.getContext(), "next");
  builder_.CreateCondBr(builder_.CreateICmpSGE(now, builder_.getInt64(limit)), full, next);
  builder_.SetInsertPoint(full);
  then();
  builder_.CreateStore(builder_.getInt64(0), count);
  builder_.CreateBr(next);
  next->insertInto(function_);
  builder_.SetInsertPoint(next);
}

void FunctionEmitter::FlushSums(int pass, const Accumulators& from, const Accumulators& into) {
  for (int i = 0; i < num_insts(); ++i) {
    if (!InPass(i, pass) || !Cascades(i)) continue;
    for (size_t u = 0; u < from[i].size(); ++u) {
      llvm::Type* type = from[i][u]->getAllocatedType();
      Value* sum = builder_.CreateFAdd(builder_.CreateLoad(type, into[i][u]), builder_.CreateLoad(type, from[i][u]));
      builder_.CreateStore(sum, into[i][u]);
      builder_.CreateStore(llvm::Constant::getNullValue(type), from[i][u]);
    }
  }
}

void FunctionEmitter::EmitInnermost(int pass) {
  for (int i = 0; i < num_insts(); ++i) {
    if (!plan_.cached[i] || plan_.cache_pass[i] != pass) continue;
    for (int u = 0; u < width_; ++u) {
      Value* bits = ops_.ToMemory(inst(i).type, Vector(i, u));
      builder_.CreateAlignedStore(bits, CachePointer(i, u), llvm::Align(ElementBytes(inst(i).type)));
    }
  }
  for (int i = 0; i < num_insts(); ++i) {
    if (InPass(i, pass)) Accumulate(i);
  }
  for (int i = 0; i < num_insts(); ++i) {
    if (plan_.store_pass[i] == pass) EmitStore(i);
  }
}

Value* FunctionEmitter::CachePointer(int i, int step) {
  Value* stride = builder_.getInt64(plan_.VectorIsReduced() ? 1 : static_cast<int64_t>(plan_.lanes) * plan_.unroll);
  Value* element = builder_.getInt64(static_cast<int64_t>(step) * plan_.lanes);
  for (int d = plan_.rank - 1; d >= plan_.num_kept; --d) {
    element = builder_.CreateAdd(element, builder_.CreateMul(index_[d], stride));
    stride = builder_.CreateMul(stride, CacheLength(d));
  }
  Value* bytes = builder_.CreateMul(element, builder_.getInt64(ElementBytes(inst(i).type)));
  return memory_.Offset(cache_[i], bytes);
}

void FunctionEmitter::BeginBlocks(int pass) {
  for (llvm::AllocaInst** count : {&in_block_, &in_row_of_blocks_}) {
    if (!CountsBlocks()) break;
    *count = memory_.StackSlot(builder_.getInt64Ty(), 0);
    builder_.CreateStore(builder_.getInt64(0), *count);
  }
  for (int i = 0; i < num_insts(); ++i) {
    if (!InPass(i, pass) || !Cascades(i)) continue;
    for (Accumulators* sums : {&blocks_, &rows_of_blocks_}) {
      (*sums)[i].clear();
      if (sums == &rows_of_blocks_ && !CountsBlocks()) break;
      for (llvm::AllocaInst* accumulator : accumulators_[i]) {
        (*sums)[i].push_back(memory_.StackSlot(accumulator->getAllocatedType(), 0));
        builder_.CreateStore(llvm::Constant::getNullValue(accumulator->getAllocatedType()), (*sums)[i].back());
      }
    }
  }
}

void FunctionEmitter::BeginAccumulators(int pass) {
  for (int i = 0; i < num_insts(); ++i) {
    if (!InPass(i, pass)) continue;
    Value* identity = ops_.Identity(inst(i).op, inst(i).type);
    const bool scalar = ReduceIsScalar(i);
    const int count = scalar ? 1 : plan_.VectorIsReduced() ? plan_.unroll : width_;
    Value* start = scalar ? identity : builder_.CreateVectorSplat(plan_.lanes, identity);
    accumulators_[i].clear();
    for (int u = 0; u < count; ++u) {
      accumulators_[i].push_back(memory_.StackSlot(start->getType(), 0));
      builder_.CreateStore(start, accumulators_[i].back());
    }
  }
}

void FunctionEmitter::Accumulate(int reduce) {
  const int in = inst(reduce).in[0];
  const bool scalar = ReduceIsScalar(reduce);
  for (int u = 0; u < (scalar ? 1 : width_); ++u) {
    llvm::AllocaInst* slot = accumulators_[reduce][u];
    Value* acc = builder_.CreateLoad(slot->getAllocatedType(), slot);
    Value* value = scalar ? values_[in].scalar : Vector(in, u);
    Value* next = ops_.Combine(inst(reduce).op, inst(reduce).type, acc, value);
    if (plan_.VectorIsReduced() && tail_.mask != nullptr) next = builder_.CreateSelect(tail_.mask, next, acc);
    builder_.CreateStore(next, slot);
  }
}

// All accumulators of a reduced vector loop into one number, in a fixed tree.
Value* FunctionEmitter::Collapse(int reduce) {
  const KOp op = inst(reduce).op;
  const c10::ScalarType type = inst(reduce).type;
  llvm::SmallVector<Value*, 8> parts;
  for (llvm::AllocaInst* slot : accumulators_[reduce]) parts.push_back(builder_.CreateLoad(slot->getAllocatedType(), slot));
  while (parts.size() > 1) {
    for (size_t i = 0; i < parts.size() / 2; ++i) parts[i] = ops_.Combine(op, type, parts[2 * i], parts[2 * i + 1]);
    parts.resize(parts.size() / 2);
  }
  Value* vector = parts[0];
  for (int lanes = plan_.lanes / 2; lanes >= 1; lanes /= 2) {
    llvm::SmallVector<int, 32> low, high;
    for (int i = 0; i < lanes; ++i) {
      low.push_back(i);
      high.push_back(lanes + i);
    }
    vector = ops_.Combine(op, type, builder_.CreateShuffleVector(vector, low), builder_.CreateShuffleVector(vector, high));
  }
  return builder_.CreateExtractElement(vector, uint64_t{0});
}

void FunctionEmitter::EndAccumulators(int pass, bool to_partials) {
  for (int i = 0; i < num_insts(); ++i) {
    if (!InPass(i, pass)) continue;
    // Every block has been flushed: the sums of blocks are the result.
    if (Cascades(i) && !CountsBlocks()) accumulators_[i] = blocks_[i];
    if (plan_.VectorIsReduced()) {
      Define(i, Collapse(i));
    } else {
      Values values;
      for (llvm::AllocaInst* slot : accumulators_[i]) values.vectors.push_back(builder_.CreateLoad(slot->getAllocatedType(), slot));
      if (ReduceIsScalar(i)) {
        Define(i, values.vectors[0]);
      } else {
        values_[i] = std::move(values);
      }
    }
    if (to_partials) StoreSlot(i, slots_[slot_of_partial_[i]], slots_[slot_of_partial_[i]].pointer);
  }
}

// Adds the partial results in order of the splits.
void FunctionEmitter::CombinePartials(int reduce) {
  const Slot& partial = slots_[slot_of_partial_[reduce]];
  Value* identity = ops_.Identity(inst(reduce).op, inst(reduce).type);
  const bool uniform = plan_.IsUniform(reduce);
  llvm::SmallVector<llvm::AllocaInst*, 8> slots;
  for (int u = 0; u < (uniform ? 1 : width_); ++u) {
    Value* start = uniform ? identity : builder_.CreateVectorSplat(plan_.lanes, identity);
    slots.push_back(memory_.StackSlot(start->getType(), 0));
    builder_.CreateStore(start, slots.back());
  }
  EmitLoop(builder_.getInt64(0), builder_.getInt64(plan_.num_splits), 1, [&](Value* split) {
    Value* bytes = Number(plan_.kept_numel, ElementBytes(inst(reduce).type));
    LoadSlot(reduce, partial, memory_.Offset(partial.pointer, builder_.CreateMul(split, bytes)));
    for (size_t u = 0; u < slots.size(); ++u) {
      Value* acc = builder_.CreateLoad(slots[u]->getAllocatedType(), slots[u]);
      Value* value = uniform ? values_[reduce].scalar : values_[reduce].vectors[u];
      builder_.CreateStore(ops_.Combine(inst(reduce).op, inst(reduce).type, acc, value), slots[u]);
    }
  });
  Values result;
  for (llvm::AllocaInst* slot : slots) result.vectors.push_back(builder_.CreateLoad(slot->getAllocatedType(), slot));
  if (uniform) {
    Define(reduce, result.vectors[0]);
  } else {
    values_[reduce] = std::move(result);
  }
  StoreSlot(reduce, slots_[slot_of_result_[reduce]], slots_[slot_of_result_[reduce]].pointer);
}

void FunctionEmitter::Define(int i, Value* scalar) {
  values_[i] = Values();
  values_[i].scalar = scalar;
  if (plan_.needs_splat[i]) values_[i].splat = builder_.CreateVectorSplat(plan_.lanes, scalar);
  if (plan_.needs_reciprocal[i]) values_[i].divisor = MakeDivisor(builder_, scalar, plan_.lanes);
}

Value* FunctionEmitter::Vector(int i, int step) const { return values_[i].scalar != nullptr ? values_[i].splat : values_[i].vectors[step]; }

void FunctionEmitter::EmitInst(int i) {
  switch (inst(i).op) {
    case KOp::kLoad:
      if (plan_.packed[i]) return LoadPacked(i);
      Prefetch(i);
      return LoadSlot(i, slots_[inst(i).imm], slots_[inst(i).imm].pointer);
    case KOp::kGather:
      return EmitGather(i);
    case KOp::kCheck:
      return EmitCheck(i);
    case KOp::kConst:
      return Define(i, ops_.Constant(inst(i).type, inst(i).imm));
    case KOp::kScalar: {
      const bool floating = IsFloatingType(inst(i).type);
      llvm::Type* slot = floating ? builder_.getDoubleTy() : builder_.getInt64Ty();
      Value* value = builder_.CreateLoad(slot, builder_.CreateConstGEP1_64(slot, function_->getArg(1), inst(i).imm));
      return Define(i, Convert(value, floating ? c10::ScalarType::Double : c10::ScalarType::Long, inst(i).type));
    }
    case KOp::kIndex:
      return EmitIndex(i);
    case KOp::kScanSum:
    case KOp::kScanProd:
      return EmitScan(i);
    case KOp::kSize:
      return Define(i, Convert(Number(inst(i).imm), c10::ScalarType::Long, inst(i).type));
    default:
      return EmitArithmetic(i);
  }
}

Value* FunctionEmitter::Convert(Value* value, c10::ScalarType from, c10::ScalarType to) {
  KInst cast;
  cast.op = KOp::kCast;
  cast.type = to;
  return ops_.Emit(cast, from, value, nullptr, nullptr, nullptr);
}

void FunctionEmitter::EmitIndex(int i) {
  const int dim = static_cast<int>(inst(i).imm);
  if (dim != plan_.vector_dim) return Define(i, index_[dim]);
  values_[i] = Values();
  for (int u = 0; u < width_; ++u) {
    llvm::SmallVector<llvm::Constant*, 64> ids;
    for (int lane = 0; lane < plan_.lanes; ++lane) ids.push_back(builder_.getInt64(u * plan_.lanes + lane));
    values_[i].vectors.push_back(builder_.CreateAdd(builder_.CreateVectorSplat(plan_.lanes, index_[dim]), llvm::ConstantVector::get(ids)));
  }
}

void FunctionEmitter::EmitArithmetic(int i) {
  const KInst& op = inst(i);
  const c10::ScalarType in_type = inst(op.in[0]).type;
  auto operand = [&](int k, int step) -> Value* {
    if (op.in[k] < 0) return nullptr;
    return step < 0 ? values_[op.in[k]].scalar : Vector(op.in[k], step);
  };
  if (plan_.IsUniform(i)) return Define(i, ops_.Emit(op, in_type, operand(0, -1), operand(1, -1), operand(2, -1), nullptr));
  Values result;
  if (plan_.by_reciprocal[i]) {
    for (int u = 0; u < width_; ++u) result.vectors.push_back(operand(0, u));
    result.vectors = DivideBy(builder_, values_[op.in[1]].divisor, result.vectors);
    values_[i] = std::move(result);
    return;
  }
  for (int u = 0; u < width_; ++u)
    result.vectors.push_back(ops_.Emit(op, in_type, operand(0, u), operand(1, u), operand(2, u), tail_.mask));
  values_[i] = std::move(result);
}

void FunctionEmitter::EmitStore(int i) {
  if (inst(i).op == KOp::kCheck) return EmitCheck(i);
  if (IsScatter(inst(i).op)) return EmitScatter(i);
  const Slot& slot = slots_[inst(i).imm];
  if (!streaming_ || !plan_.streams[i]) {
    Prefetch(i);
    return StoreSlot(inst(i).in[0], slot, slot.pointer);
  }
  for (int u = 0; u < width_; ++u) {
    Value* at = memory_.Offset(slot.pointer, static_cast<int64_t>(u) * plan_.lanes * ElementBytes(slot.dtype));
    memory_.Stream(ops_.ToMemory(slot.dtype, Vector(inst(i).in[0], u)), at);
  }
}

// Hardware looks ahead less far than a loop that waits for nothing else needs.
void FunctionEmitter::Prefetch(int i) {
  if (!prefetching_ || !plan_.prefetched[i]) return;
  const bool to_write = inst(i).op == KOp::kStore, by_row = plan_.next_row_pass[i] >= 0;
  if (by_row ? plan_.next_row_pass[i] != pass_ : !from_memory_ && !to_write) return;
  const Slot& slot = slots_[inst(i).imm];
  const int64_t element = ElementBytes(inst(i).type), bytes = static_cast<int64_t>(width_) * plan_.lanes * element;
  const int64_t rows = (kPrefetchBytes + bytes - 1) / bytes, direction = plan_.from_end ? -1 : 1;
  Value* ahead = by_row                 ? Number(slot.strides[plan_.num_kept - 1], element)
                 : plan_.WalksColumns() ? Number(slot.strides[plan_.rank - 1], element * rows * direction)
                                        : builder_.getInt64(kPrefetchBytes * direction);
  memory_.Prefetch(memory_.Offset(slot.pointer, ahead), bytes, to_write);
}

void FunctionEmitter::LoadSlot(int i, const Slot& slot, Value* pointer) {
  const c10::ScalarType type = slot.dtype;
  Value* stride = Number(slot.strides[plan_.vector_dim]);
  llvm::Type* element = ops_.MemoryType(type);
  if (slot.strides[plan_.vector_dim] == 0) {
    return Define(i, ops_.FromMemory(type, builder_.CreateAlignedLoad(element, pointer, llvm::Align(ElementBytes(type)))));
  }
  values_[i] = Values();
  for (int u = 0; u < width_; ++u) {
    Value* at = memory_.Offset(pointer, builder_.CreateMul(stride, builder_.getInt64(u * plan_.lanes * ElementBytes(type))));
    values_[i].vectors.push_back(ops_.FromMemory(type, memory_.Load(element, at, stride, tail_)));
  }
}

void FunctionEmitter::StoreSlot(int i, const Slot& slot, Value* pointer) {
  const c10::ScalarType type = slot.dtype;
  Value* stride = Number(slot.strides[plan_.vector_dim]);
  if (slot.strides[plan_.vector_dim] == 0) {
    builder_.CreateAlignedStore(ops_.ToMemory(type, values_[i].scalar), pointer, llvm::Align(ElementBytes(type)));
    return;
  }
  for (int u = 0; u < width_; ++u) {
    Value* at = memory_.Offset(pointer, builder_.CreateMul(stride, builder_.getInt64(u * plan_.lanes * ElementBytes(type))));
    memory_.Store(ops_.ToMemory(type, Vector(i, u)), at, stride, tail_);
  }
}

}  // namespace lazuli::codegen
