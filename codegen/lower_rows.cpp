// The table of op.def, how rows are found, and the pointwise kinds.
#include "codegen/lower_rows.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <mutex>

#include "absl/container/flat_hash_map.h"

namespace lazuli::codegen {
namespace {

using c10::ScalarType;

bool IsCreation(const TraceOp& op) { return !op.info->returns_mutated_self; }

// Writing through overlapping elements is an error in ATen, to be raised there.
bool HasOverlap(const TensorRef& ref) {
  c10::SmallVector<size_t, 8> order;
  for (size_t d = 0; d < ref.sizes.size(); ++d) {
    if (ref.sizes[d] > 1) order.push_back(d);
  }
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return ref.strides[a] < ref.strides[b]; });
  int64_t reach = 0;
  for (size_t d : order) {
    if (ref.strides[d] <= reach) return true;
    reach += (ref.sizes[d] - 1) * ref.strides[d];
  }
  return false;
}

// The type of what the op leaves: in its result, or in self.
ScalarType TargetType(const TraceOp& op) { return IsCreation(op) ? op.results[0].dtype : op.args[0].tensors[0].dtype; }

bool NumbersAreReal(const TraceOp& op, uint64_t operands) {
  for (size_t i = 0; i < op.args.size(); ++i) {
    if ((operands >> i & 1) == 0 || op.args[i].kind != TraceArg::Kind::kConst) continue;
    const c10::IValue& value = op.args[i].value;
    if (!value.isNone() && !(value.isScalar() && !value.toScalar().isComplex())) return false;
  }
  return true;
}

// Whether an element of the result is computed from those of the operands that broadcasting brings together. ATen's kernels of some losses
// take others: they leave out dimensions of size 1 first.
bool Broadcasts(const TraceOp& op) {
  const c10::DimVector& sizes = IsCreation(op) ? op.results[0].sizes : op.args[0].tensors[0].sizes;
  const auto goes_along = [&](const TensorRef& ref) { return !ref.defined() || BroadcastsTo(ref, sizes); };
  return std::all_of(op.args.begin(), op.args.end(),
                     [&](const TraceArg& arg) { return std::all_of(arg.tensors.begin(), arg.tensors.end(), goes_along); });
}

bool AcceptsPointwise(const OpRow& row, const TraceOp& op) {
  if (!NumbersAreReal(op, row.operands) || !Broadcasts(op)) return false;
  const ScalarType compute = ComputeType(row, op);
  if (!HasType(row.types, compute, op)) return false;
  const ScalarType result = row.rule == TypeRule::kCompare ? ScalarType::Bool : compute;
  return IsCreation(op) ? op.results[0].dtype == result : c10::canCast(result, op.args[0].tensors[0].dtype);
}

Iteration IteratePointwise(const OpRow& row, const Node& node) {
  Iteration it;
  it.sizes = node.op.results[0].sizes;
  it.reduced.assign(it.sizes.size(), false);
  ForEachUse(node, [&](const TensorRef& use) { it.uses.push_back(BroadcastStrides(use, it.sizes)); });
  for (const TensorRef& result : node.op.results) it.results.push_back(BroadcastStrides(result, it.sizes));
  return it;
}

bool AcceptsFill(const OpRow& row, const TraceOp& op) {
  for (const TraceArg& arg : op.args) {
    if (arg.kind == TraceArg::Kind::kConst && arg.value.isComplexDouble()) return false;
  }
  return true;
}

// The type of the tensor or number that is cast.
ScalarType SourceType(const TraceArg& source) {
  if (source.kind == TraceArg::Kind::kScalar) return source.scalar_type;
  return source.kind == TraceArg::Kind::kConst ? source.value.toScalar().type() : source.tensors[0].dtype;
}

bool AcceptsCast(const OpRow& row, const TraceOp& op) {
  if (!NumbersAreReal(op, row.operands) || !Broadcasts(op)) return false;
  const ScalarType from = SourceType(op.args[row.operands == 1 ? 0 : 1]);
  // Conversions of a float out of the integer's range differ between CPUs' instruction sets.
  return op.device.is_cuda() || !(c10::isFloatingType(from) && (TypeBit(TargetType(op)) & kInts) != 0 &&
                                  TargetType(op) != ScalarType::Long && TargetType(op) != ScalarType::Int);
}

// The row of an in-place op is that of the functional op, unless it has one of its own (fill_, copy_).
std::string FunctionalName(const std::string& name) {
  const size_t dot = name.find('.');
  const size_t end = dot == std::string::npos ? name.size() : dot;
  if (end == 0 || name[end - 1] != '_' || name.compare(0, 8, "aten::__") == 0) return "";
  return name.substr(0, end - 1) + name.substr(end);
}

std::deque<OpRow>* MakeTable();

struct RowIndex {
  std::mutex mutex;
  absl::flat_hash_map<std::string, const OpRow*> by_name;
  absl::flat_hash_map<int32_t, const OpRow*> by_id;
};

RowIndex& Index() {
  static auto* index = [] {
    auto* made = new RowIndex;
    for (const OpRow& row : *MakeTable()) made->by_name[row.name] = &row;
    return made;
  }();
  return *index;
}

const OpRow* RowNamed(const OpInfo& info) {
  RowIndex& index = Index();
  std::lock_guard<std::mutex> lock(index.mutex);
  auto [it, inserted] = index.by_id.try_emplace(info.id, nullptr);
  if (inserted) {
    auto found = index.by_name.find(info.name);
    if (found == index.by_name.end() && info.returns_mutated_self) found = index.by_name.find(FunctionalName(info.name));
    if (found != index.by_name.end()) it->second = found->second;
  }
  return it->second;
}

}  // namespace

const OpRow* FindRow(const TraceOp& op) {
  const OpRow* row = RowNamed(*op.info);
  if (row == nullptr || op.info->is_random) return nullptr;
  if (row->expand != nullptr) return row->accepts(*row, op) ? row : nullptr;
  if (!HasPlainTypes(op)) return nullptr;
  if (op.info->returns_mutated_self ? HasOverlap(op.args[0].tensors[0]) || op.info->mutated_args != 1 : op.info->mutated_args != 0) {
    return nullptr;
  }
  if (!op.info->returns_mutated_self) {
    bool any = false;
    for (const TensorRef& result : op.results) any = any || result.defined();
    if (!any) return nullptr;
  }
  return row->accepts(*row, op) ? row : nullptr;
}

bool IsContiguous(const TensorRef& ref) {
  int64_t stride = 1;
  for (size_t d = ref.sizes.size(); d-- > 0;) {
    if (ref.sizes[d] != 1 && ref.strides[d] != stride) return false;
    stride *= ref.sizes[d];
  }
  return true;
}

c10::DimVector ContiguousStrides(const c10::DimVector& sizes) {
  c10::DimVector strides(sizes.size(), 1);
  for (size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * sizes[d];
  return strides;
}

bool ReadsElsewhere(const Node& node, size_t arg) {
  if (node.row == nullptr) return false;
  const bool picked = node.row->picked_dim != nullptr && node.part == 0 && static_cast<int>(arg) == node.row->picked_arg;
  return picked || (node.row->indexed_args >> arg & 1) != 0;
}

const OpRow* FindRowByName(const std::string& name) {
  RowIndex& index = Index();
  std::lock_guard<std::mutex> lock(index.mutex);
  auto found = index.by_name.find(name);
  if (found == index.by_name.end()) found = index.by_name.find(FunctionalName(name));
  return found == index.by_name.end() ? nullptr : found->second;
}

const OpInfo* FunctionalOf(const OpInfo& info) { return FindOpInfo(FunctionalName(info.name)); }

TraceOp Functional(TraceOp op) {
  if (!op.info->returns_mutated_self || op.info->mutated_args != 1) return op;
  const OpInfo* const functional = FunctionalOf(*op.info);
  if (functional == nullptr) return op;
  op.info = functional;
  op.results = {op.args[0].tensors[0]};
  op.results[0].wrapped_number = false;
  return op;
}

bool IsPointwise(const OpRow& row) { return row.iterate == &IteratePointwise; }

bool IsFreePointwise(const OpRow* row) {
  return row != nullptr && row->expand == nullptr && row->shape_args == 0 && !row->uniform && IsPointwise(*row);
}

bool IsLoopOverElements(const std::string& name) {
  const OpRow* row = FindRowByName(name);
  return row != nullptr && !row->moves;
}

OpRow PointwiseRow(TypeRule rule, uint64_t operands, uint8_t types, void (*emit)(OpEmitter&)) {
  OpRow row;
  row.rule = rule;
  row.operands = operands;
  row.types = types;
  row.emit = emit;
  row.accepts = &AcceptsPointwise;
  row.iterate = &IteratePointwise;
  return row;
}

OpRow PowRow() {
  OpRow row = PointwiseRow(TypeRule::kPromote, 0b11, kWideOnCpu, [](OpEmitter& e) { e.Result(0, PowScalar(Operands(e, *e.node().row))); });
  row.accepts = [](const OpRow& row, const TraceOp& op) { return AcceptsPointwise(row, op) && IsExponentOf(op, ComputeType(row, op)); };
  return row;
}

OpRow FillRow(uint64_t shape_args, void (*emit)(OpEmitter&)) {
  OpRow row = PointwiseRow(TypeRule::kPromote, 0, kAll, emit);
  row.shape_args = shape_args;
  row.accepts = &AcceptsFill;
  row.uniform = true;
  return row;
}

OpRow CastRow(int source) {
  OpRow row = PointwiseRow(TypeRule::kPromote, uint64_t{1} << source, kAll, nullptr);
  row.accepts = &AcceptsCast;
  if (source == 1) row.shape_args = 1;
  row.emit = source == 0 ? +[](OpEmitter& e) { e.Result(0, e.Arg(0, SourceType(e.op().args[0]))); }
                         : +[](OpEmitter& e) { e.Result(0, e.Arg(1, SourceType(e.op().args[1]))); };
  return row;
}

namespace {

// A fill's number is read as the type that is filled.
class FillNumber {
 public:
  explicit FillNumber(OpEmitter& emitter) : emitter_(emitter) {}
  Expr operator()(int arg) const {
    return emitter_.Arg(arg, emitter_.op().args[arg].tensors.empty() ? type() : emitter_.op().args[arg].tensors[0].dtype);
  }
  Expr number(double value) const { return emitter_.emitter().Const(type(), value); }

 private:
  c10::ScalarType type() const { return OpMathType(emitter_.op().results[0].dtype); }
  OpEmitter& emitter_;
};

OpRow Named(const char* name, OpRow row) {
  row.name = name;
  return row;
}

std::deque<OpRow>* MakeTable() {
  constexpr auto kPromote = TypeRule::kPromote;
  constexpr auto kPromoteFloat = TypeRule::kPromoteFloat;
  constexpr auto kCompare = TypeRule::kCompare;
  auto* table = new std::deque<OpRow>;
#define POINTWISE(name, rule, operands, types, ...)                                   \
  table->push_back(Named(name, PointwiseRow(rule, operands, types, [](OpEmitter& e) { \
                           const Operands x(e, *e.node().row);                        \
                           e.Result(0, __VA_ARGS__);                                  \
                         })));
#define FILL(name, shape_args, ...)                                   \
  table->push_back(Named(name, FillRow(shape_args, [](OpEmitter& e) { \
                           const FillNumber x(e);                     \
                           e.Result(0, __VA_ARGS__);                  \
                         })));
#define REDUCE(name, dims, keepdim, types, ...)                                   \
  table->push_back(Named(name, ReduceRow(dims, keepdim, types, [](OpEmitter& e) { \
                           const Reduced x(e);                                    \
                           e.Result(0, __VA_ARGS__);                              \
                         })));
#define LOSS(name, make, reduction, ...)                          \
  table->push_back(Named(name, make(reduction, [](OpEmitter& e) { \
                           const Operands x(e, *e.node().row);    \
                           GiveLoss(e, __VA_ARGS__);              \
                         })));
#define CUSTOM(name, ...) table->push_back(Named(name, __VA_ARGS__));
#include "codegen/ir/op.def"
#undef POINTWISE
#undef FILL
#undef REDUCE
#undef LOSS
#undef CUSTOM
  return table;
}

}  // namespace
}  // namespace lazuli::codegen
