#include "codegen/lower.h"

#include <c10/core/DefaultDtype.h>
#include <c10/core/ScalarTypeToTypeMeta.h>

#include <algorithm>
#include <cstring>

#include "codegen/lower_rows.h"

namespace lazuli::codegen {

using c10::ScalarType;

namespace {

// Whether each number of type `narrow` is one of type `wide`.
bool IsWidened(ScalarType narrow, ScalarType wide) {
  if (c10::isReducedFloatingType(narrow)) return wide == ScalarType::Float || wide == ScalarType::Double;
  return narrow == ScalarType::Float && wide == ScalarType::Double;
}

}  // namespace

c10::ScalarType Expr::type() const { return emitter->kernel().insts[id].type; }

TensorRef Expansion::Temporary(ScalarType dtype, const c10::DimVector& sizes) {
  TensorRef ref;
  ref.storage = first_temporary + static_cast<StorageId>(temporaries.size());
  ref.dtype = dtype;
  ref.sizes = sizes;
  ref.strides = ContiguousStrides(sizes);
  temporaries.push_back(ref.numel() * static_cast<int64_t>(c10::elementSize(dtype)));
  return ref;
}

int32_t Expansion::Offset(int32_t slot, const std::vector<int64_t>& terms) {
  runtime::OffsetSum sum{slot, {}};
  for (const int64_t term : terms) {
    if (term != 0) sum.terms.push_back(term);
  }
  if (sum.terms.empty()) return slot;
  const auto index = std::find(offset_sums.begin(), offset_sums.end(), sum) - offset_sums.begin();
  if (index == static_cast<std::ptrdiff_t>(offset_sums.size())) offset_sums.push_back(std::move(sum));
  return first_offset + static_cast<int32_t>(index);
}

int32_t AddOffset(Graph* graph, int32_t slot, const std::vector<int64_t>& terms) {
  Expansion expansion;
  expansion.first_offset = graph->num_offsets;
  expansion.offset_sums = std::move(graph->offset_sums);
  std::vector<int64_t> all = terms;
  while (slot >= graph->num_offsets) {  // A sum of a sum is one.
    const runtime::OffsetSum& sum = expansion.offset_sums[static_cast<size_t>(slot - graph->num_offsets)];
    all.insert(all.begin(), sum.terms.begin(), sum.terms.end());
    slot = sum.slot;
  }
  slot = expansion.Offset(slot, all);
  graph->offset_sums = std::move(expansion.offset_sums);
  return slot;
}

TensorRef Expansion::Number(const TraceOp& op, int arg, ScalarType dtype, const c10::DimVector& sizes) {
  TensorRef ref = Temporary(dtype, {1});
  Piece piece;
  piece.op.info = FindOpInfo("aten::full");
  piece.op.args.resize(static_cast<size_t>(piece.op.info->num_args));
  piece.op.args[0].value = std::vector<int64_t>{1};
  piece.op.args[1].value = int64_t{0};
  if (arg >= 0) piece.op.args[1] = op.args[static_cast<size_t>(arg)];
  piece.op.results = {ref};
  pieces.push_back(std::move(piece));
  ref.sizes = sizes;
  ref.strides.assign(sizes.size(), 0);
  return ref;
}

int Node::target_arg() const { return row != nullptr ? row->target_arg : 0; }

Expr Emitter::Add(KOp op, ScalarType type, std::array<int32_t, 3> in, int64_t imm) {
  if (IsScatter(op)) {
    kernel_->insts.push_back({op, type, in, imm});
    varies_.push_back(false);
    return {this, static_cast<int32_t>(varies_.size()) - 1};
  }
  if (IsScan(op) && std::find(reduced_.begin(), reduced_.end(), true) == reduced_.end()) {
    // Sums begin with 0, so that none is -0.
    return op == KOp::kScanSum && c10::isFloatingType(type) ? Add(KOp::kAdd, type, {in[0], Const(type, 0).id, -1}) : Expr{this, in[0]};
  }
  const auto key = std::make_tuple(static_cast<int>(op), static_cast<int>(type), in[0], in[1], in[2], imm);
  auto [it, inserted] = numbered_.try_emplace(key, static_cast<int32_t>(kernel_->insts.size()));
  if (!inserted) return {this, it->second};
  if (IsReduce(op) && !varies_[in[0]]) {
    const Expr same = ReduceSame(op, {this, in[0]});
    numbered_[key] = same.id;
    return same;
  }
  if (op == KOp::kReduceSum) {
    if (const Expr element = SumOfOneHot({this, in[0]}); element.emitter != nullptr) {
      numbered_[key] = element.id;
      return element;
    }
  }
  kernel_->insts.push_back({op, type, in, imm});
  varies_.push_back(VariesWhenReduced(kernel_->insts.back()));
  return {this, static_cast<int32_t>(varies_.size()) - 1};
}

bool Emitter::VariesWhenReduced(const KInst& inst) const {
  if (IsReduce(inst.op)) return false;
  if (IsScan(inst.op) || (inst.op == KOp::kIndex && reduced_[inst.imm])) return true;
  if (inst.op == KOp::kLoad || inst.op == KOp::kGather) {
    const c10::DimVector& strides = kernel_->buffers[inst.imm].strides;
    for (size_t d = 0; d < strides.size(); ++d) {
      if (reduced_[d] && strides[d] != 0) return true;
    }
  }
  for (int32_t in : inst.in) {
    if (in >= 0 && varies_[in]) return true;
  }
  return false;
}

Expr Emitter::ReduceSame(KOp op, Expr value) {
  int64_t count = 1;
  for (size_t d = 0; d < reduced_.size(); ++d) count *= reduced_[d] ? kernel_->sizes[d] : 1;
  const auto with_count = [&](KOp combine) {
    return count == 1 ? value : Add(combine, value.type(), {value.id, Size(value.type(), count).id, -1});
  };
  if (op == KOp::kReduceSum) {
    const Expr sum = with_count(KOp::kMul);
    // Sums begin with 0, so that none is -0.
    return c10::isFloatingType(value.type()) ? Add(KOp::kAdd, value.type(), {sum.id, Const(value.type(), 0).id, -1}) : sum;
  }
  return op == KOp::kReduceProd ? with_count(KOp::kPow) : value;
}

Expr Emitter::SumOfOneHot(Expr value) {
  const auto& insts = kernel_->insts;
  const KInst select = insts[value.id];
  if (select.op != KOp::kSelect || varies_[select.in[1]]) return {};
  const KInst is_hot = insts[select.in[0]], zero = insts[select.in[2]];
  if (is_hot.op != KOp::kEq || zero.op != KOp::kConst || zero.imm != 0) return {};
  const KInst index = insts[is_hot.in[0]];
  if (index.op != KOp::kIndex || varies_[is_hot.in[1]]) return {};
  for (size_t d = 0; d < reduced_.size(); ++d) {
    if (reduced_[d] != (static_cast<int64_t>(d) == index.imm)) return {};
  }
  const ScalarType type = insts[is_hot.in[1]].type;
  const Expr start = ConstInt(type, 0), end = Size(type, kernel_->sizes[index.imm]);
  const Expr above = Add(KOp::kGe, ScalarType::Bool, {is_hot.in[1], start.id, -1});
  const Expr below = Add(KOp::kLt, ScalarType::Bool, {is_hot.in[1], end.id, -1});
  const Expr exists = Add(KOp::kAnd, ScalarType::Bool, {above.id, below.id, -1});
  return Add(KOp::kSelect, select.type, {exists.id, select.in[1], select.in[2]});
}

Expr Emitter::Const(ScalarType type, double value) {
  if (!c10::isFloatingType(type)) return ConstInt(type, static_cast<int64_t>(value));
  int64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return Add(KOp::kConst, type, {-1, -1, -1}, bits);
}

Expr Emitter::ConstInt(ScalarType type, int64_t value) {
  if (c10::isFloatingType(type)) return Const(type, static_cast<double>(value));
  return Add(KOp::kConst, type, {-1, -1, -1}, type == ScalarType::Bool ? value != 0 : value);
}

Expr Emitter::Size(ScalarType type, int64_t number) {
  if (!kernel_->symbols.IsSymbolic(number)) return ConstInt(type, number);
  return Add(KOp::kSize, type, {-1, -1, -1}, number);
}

Expr Emitter::Cast(Expr value, ScalarType type) {
  if (value.type() == type) return value;
  const KInst& inst = kernel_->insts[value.id];
  // What was only widened is rounded to itself.
  if (inst.op == KOp::kCast && kernel_->insts[inst.in[0]].type == type && IsWidened(type, inst.type)) return {this, inst.in[0]};
  return Add(KOp::kCast, type, {value.id, -1, -1});
}

ScalarType OpMathType(ScalarType type) { return c10::isReducedFloatingType(type) ? ScalarType::Float : type; }

uint8_t TypeBit(ScalarType type) {
  switch (type) {
    case ScalarType::Float:
    case ScalarType::Double:
      return kWide;
    case ScalarType::BFloat16:
      return kBFloat;
    case ScalarType::Half:
      return kHalfs;
    case ScalarType::Long:
    case ScalarType::Int:
    case ScalarType::Short:
    case ScalarType::Char:
    case ScalarType::Byte:
      return kInts;
    case ScalarType::Bool:
      return kBools;
    default:
      return 0;
  }
}

bool HasType(uint8_t types, ScalarType type, const TraceOp& op) {
  const uint8_t bit = TypeBit(type);
  const uint8_t on_gpu = bit == kWide ? kGpuWide : bit == kInts ? kGpuInts : c10::isReducedFloatingType(type) ? kGpuHalves : 0;
  return (bit & types) != 0 || (op.device.is_cuda() && (on_gpu & types) != 0);
}

namespace {

ScalarType PromoteDefined(ScalarType a, ScalarType b) {
  if (a == ScalarType::Undefined) return b;
  if (b == ScalarType::Undefined) return a;
  return c10::promoteTypes(a, b);
}

// A lower category (0-dim tensors, then C++ numbers) only matters when its kind (bool, int, float, complex) is above the higher one's.
ScalarType CombineCategories(ScalarType higher, ScalarType lower) {
  if (c10::isComplexType(higher)) return higher;
  if (higher != ScalarType::Undefined && c10::isFloatingType(higher)) {
    return c10::isComplexType(lower) ? c10::toComplexType(higher) : higher;
  }
  if (higher == ScalarType::Bool || c10::isFloatingType(lower) || c10::isComplexType(lower)) return PromoteDefined(higher, lower);
  return higher != ScalarType::Undefined ? higher : lower;
}

ScalarType NumberType(ScalarType type, ScalarType default_dtype) {
  if (c10::isComplexType(type)) return c10::toComplexType(default_dtype);
  return c10::isFloatingType(type) ? default_dtype : type;
}

}  // namespace

ScalarType PromotedType(const TraceOp& op, uint64_t args) {
  ScalarType dims = ScalarType::Undefined, zero_dim = ScalarType::Undefined, number = ScalarType::Undefined;
  for (size_t i = 0; i < op.args.size(); ++i) {
    if ((args >> i & 1) == 0) continue;
    const TraceArg& arg = op.args[i];
    if (arg.kind == TraceArg::Kind::kScalar) {
      number = PromoteDefined(number, NumberType(arg.scalar_type, op.default_dtype));
    } else if (arg.kind == TraceArg::Kind::kConst && arg.value.isScalar()) {
      number = PromoteDefined(number, NumberType(arg.value.toScalar().type(), op.default_dtype));
    }
    for (const TensorRef& ref : arg.tensors) {
      if (ref.dtype == ScalarType::Undefined) continue;
      if (ref.wrapped_number) {
        number = PromoteDefined(number, NumberType(ref.dtype, op.default_dtype));
      } else {
        ScalarType& category = ref.sizes.empty() ? zero_dim : dims;
        category = PromoteDefined(category, ref.dtype);
      }
    }
  }
  return CombineCategories(dims, CombineCategories(zero_dim, number));
}

ScalarType ComputeType(const OpRow& row, const TraceOp& op) {
  const ScalarType common = PromotedType(op, row.operands);
  if (row.rule == TypeRule::kPromoteFloat && c10::isIntegralType(common, /*includeBool=*/true)) return op.default_dtype;
  return common;
}

bool BroadcastsTo(const TensorRef& ref, const c10::DimVector& sizes) {
  if (ref.sizes.size() > sizes.size()) return false;
  const size_t shift = sizes.size() - ref.sizes.size();
  for (size_t d = 0; d < ref.sizes.size(); ++d) {
    if (ref.sizes[d] != 1 && ref.sizes[d] != sizes[d + shift]) return false;
  }
  return true;
}

c10::DimVector BroadcastStrides(const TensorRef& ref, const c10::DimVector& sizes) {
  c10::DimVector strides(sizes.size(), 0);
  const size_t shift = sizes.size() - ref.sizes.size();
  for (size_t d = 0; d < ref.sizes.size(); ++d) strides[d + shift] = ref.sizes[d] == 1 ? 0 : ref.strides[d];
  return strides;
}

bool HasPlainTypes(const TraceOp& op) {
  for (const TraceArg& arg : op.args) {
    if (arg.kind == TraceArg::Kind::kScalar && c10::isComplexType(arg.scalar_type)) return false;
    for (const TensorRef& ref : arg.tensors) {
      if (ref.defined() && (TypeBit(ref.dtype) == 0 || ref.numel() == 0)) return false;
    }
  }
  for (const TensorRef& ref : op.results) {
    if (ref.defined() && (TypeBit(ref.dtype) == 0 || ref.numel() == 0 || !IsDense(ref))) return false;
  }
  return true;
}

Expr OpEmitter::Arg(int arg, ScalarType type) {
  const TraceArg& value = op().args[arg];
  if (value.kind == TraceArg::Kind::kScalar) return LoadScalar(value.slot, value.scalar_type, type);
  if (value.kind == TraceArg::Kind::kConst) {
    const c10::Scalar number = value.value.toScalar();
    if (!number.isFloatingPoint()) return emitter_->ConstInt(type, number.toLong());
    if (c10::isFloatingType(type)) return emitter_->Const(type, number.toDouble());
    return emitter_->Cast(emitter_->Const(ScalarType::Double, number.toDouble()), type);
  }
  return emitter_->Cast(Load(arg), type);
}

bool OpEmitter::IsNone(int arg) const {
  const TraceArg& value = op().args[arg];
  if (value.kind == TraceArg::Kind::kScalar) return false;
  if (value.kind == TraceArg::Kind::kConst) return value.value.isNone();
  return value.tensors.empty() || !value.tensors[0].defined();
}

void OpEmitter::Result(int index, Expr value) {
  if (node_.results[index] == kNoValue) return;
  Define(index, emitter_->Cast(value, op().results[index].dtype));
}

}  // namespace lazuli::codegen
