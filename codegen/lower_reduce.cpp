// Rows that reduce: plain reductions, layer and group norm and their gradients.
#include <algorithm>
#include <limits>

#include "codegen/lower_rows.h"
#include "codegen/passes/channels_last.h"

namespace lazuli::codegen {

using c10::ScalarType;

bool SameFloatTypes(const TraceOp& op) {
  ScalarType type = ScalarType::Undefined;
  for (const TraceArg& arg : op.args) {
    for (const TensorRef& ref : arg.tensors) {
      if (!ref.defined()) continue;
      if (type == ScalarType::Undefined) type = ref.dtype;
      if (ref.dtype != type) return false;
    }
  }
  for (const TensorRef& ref : op.results) {
    if (ref.defined() && ref.dtype != type) return false;
  }
  return (TypeBit(type) & kFloats) != 0;
}

namespace {

// Which dimensions of self an op with `dim` argument `arg` reduces.
std::vector<bool> ReducedDims(const TraceOp& op, int arg) {
  const size_t rank = op.args[0].tensors[0].sizes.size();
  std::vector<bool> reduced(rank, false);
  const auto mark = [&](int64_t dim) {
    if (rank > 0) reduced[dim < 0 ? dim + static_cast<int64_t>(rank) : dim] = true;
  };
  if (arg >= 0 && op.args[arg].value.isInt()) {
    mark(op.args[arg].value.toInt());
  } else if (arg >= 0 && op.args[arg].value.isIntList()) {
    const auto dims = op.args[arg].value.toIntVector();
    for (int64_t dim : dims) mark(dim);
    // An empty list means all of them.
    if (dims.empty()) reduced.assign(rank, true);
  } else {
    reduced.assign(rank, true);
  }
  return reduced;
}

// Strides over the iteration space of a result that lacks its reduced dimensions, or has them with size 1.
c10::DimVector ResultStrides(const TensorRef& result, const std::vector<bool>& reduced) {
  c10::DimVector strides(reduced.size(), 0);
  const bool keepdim = result.sizes.size() == reduced.size();
  size_t next = 0;
  for (size_t d = 0; d < reduced.size(); ++d) {
    if (reduced[d]) {
      next += keepdim ? 1 : 0;
      continue;
    }
    strides[d] = result.sizes[next] == 1 ? 0 : result.strides[next];
    ++next;
  }
  return strides;
}

// Bytes of a row that a block of threads of a GPU holds.
constexpr int64_t kShortRowBytes = 65536;

bool NumberIs(const TraceArg& arg, double value) {
  return arg.kind == TraceArg::Kind::kConst && arg.value.isScalar() && !arg.value.toScalar().isComplex() &&
         arg.value.toScalar().toDouble() == value;
}

bool AcceptsReduce(const OpRow& row, const TraceOp& op) {
  const std::string& name = op.info->name;
  const ScalarType self = op.args[0].tensors[0].dtype;
  const ScalarType result = op.results[0].dtype;
  if (op.info->returns_mutated_self || op.args[0].kind != TraceArg::Kind::kTensor) return false;
  if (!HasType(row.types, self, op)) return false;
  if ((name.find("norm") != std::string::npos) && !NumberIs(op.args[1], 2)) return false;
  if (name.find("correction") != std::string::npos && op.args[2].kind != TraceArg::Kind::kConst) return false;
  const bool to_bool = name.compare(0, 9, "aten::any") == 0 || name.compare(0, 9, "aten::all") == 0;
  if (to_bool || result == ScalarType::Bool) return to_bool && result == ScalarType::Bool;  // Kernels add up no booleans as such.
  return c10::isFloatingType(result) ? c10::isFloatingType(self) : result == self || result == ScalarType::Long;
}

Iteration IterateReduce(const OpRow& row, const Node& node) {
  Iteration it;
  const TensorRef& self = node.op.args[0].tensors[0];
  it.sizes = self.sizes;
  it.reduced = ReducedDims(node.op, row.dims_arg);
  it.uses.push_back(BroadcastStrides(self, it.sizes));
  for (const TensorRef& result : node.op.results) {
    it.results.push_back(result.defined() ? ResultStrides(result, it.reduced) : c10::DimVector());
  }
  return it;
}

// The same of reductions that say where in what is reduced, in LibTorch's order of elements.
Iteration IteratePlaces(const OpRow& row, const Node& node) {
  Iteration it = IterateReduce(row, node);
  c10::DimVector place(it.sizes.size(), 0);
  int64_t step = 1;
  for (size_t d = it.sizes.size(); d-- > 0;) {
    if (!it.reduced[d]) continue;
    if (it.sizes[d] != 1) place[d] = step;
    step *= it.sizes[d];
  }
  it.coordinates = {std::move(place)};
  return it;
}

// An Int that is the smaller the sooner `x`, a Float or an Int, is what `reduce` comes to; the smallest one for a NaN. As a GPU adds: all
// zeros become 0, and all NaN the one whose bits are 0x7fffffff.
Expr RankOf(Expr x, KOp reduce) {
  const bool largest = reduce == KOp::kReduceMax;
  if (x.type() == ScalarType::Int) return largest ? Not(x) : x;
  const auto number = [&](int64_t value) { return x.emitter->ConstInt(ScalarType::Int, value); };
  const Expr bits = Bits(largest ? x + 0.0 : 0.0 - x);
  return Not(bits ^ (ShiftRight(bits, number(31)) & number(std::numeric_limits<int32_t>::max())));
}

// The smallest place of those of the smallest rank, in one pass over memory.
Expr FirstByRank(Expr rank, Expr place) {
  const auto number = [&](int64_t value) { return rank.emitter->ConstInt(ScalarType::Long, value); };
  const Expr ranked = rank.emitter->Cast(rank, ScalarType::Long) * number(int64_t{1} << 32) + place;
  return ReduceMin(ranked) & number(std::numeric_limits<uint32_t>::max());
}

// The same in two passes, which compute `x` alike, so that one is equal: cheaper where the second finds in caches or in registers what the
// first has read.
Expr FirstEqual(Expr x, Expr value, Expr place) {
  Expr found = x == value;
  if (c10::isFloatingType(x.type())) found = found | IsNan(x);
  const bool is_narrow = place.type() == ScalarType::Int;
  const int64_t nowhere = is_narrow ? std::numeric_limits<int32_t>::max() : std::numeric_limits<int64_t>::max();
  return ReduceMin(Select(found, place, x.emitter->ConstInt(place.type(), nowhere)));
}

// The first place of what `reduce`, kReduceMax or kReduceMin, comes to, of the first NaN if there is any. Result 0, or 1 after that value.
void EmitPlaceOf(OpEmitter& e, KOp reduce, bool gives_value) {
  const ScalarType type = OpMathType(e.op().args[0].tensors[0].dtype);
  const int64_t count = Reduced(e).size();
  const bool is_narrow = !e.emitter().kernel().symbols.IsSymbolic(count) && count <= std::numeric_limits<int32_t>::max();
  const Expr x = e.Arg(0, type), place = e.Coordinate(0), value = Unary(reduce, x);
  if (gives_value) e.Result(0, value);
  const bool has_rank = type != ScalarType::Double && type != ScalarType::Long;
  Expr first;
  if (e.op().device.is_cuda() && is_narrow && has_rank && !ReducesShortRows(e.op(), *e.node().row)) {
    first = FirstByRank(RankOf(x.type() == ScalarType::Float ? x : e.emitter().Cast(x, ScalarType::Int), reduce), place);
  } else {
    first = FirstEqual(x, value, is_narrow ? e.emitter().Cast(place, ScalarType::Int) : place);
  }
  e.Result(gives_value ? 1 : 0, first);
}

// Layer norm's iteration space: the input's, of which the last dimensions are normalised.
Iteration IterateNorm(const Node& node, const TensorRef& input, bool reduce_normalized) {
  Iteration it;
  it.sizes = input.sizes;
  const size_t normalized = node.op.args[node.row->dims_arg].value.toIntVector().size();
  for (size_t d = 0; d < it.sizes.size(); ++d) it.reduced.push_back((d + normalized >= it.sizes.size()) == reduce_normalized);
  ForEachUse(node, [&](const TensorRef& use) { it.uses.push_back(BroadcastStrides(use, it.sizes)); });
  for (const TensorRef& result : node.op.results) {
    it.results.push_back(result.defined() ? BroadcastStrides(result, it.sizes) : c10::DimVector());
  }
  return it;
}

// Whether all tensors are of argument 0's type or of the one that it is computed in, as statistics and weights of halves may be.
bool HaveNormTypes(const TraceOp& op) {
  const ScalarType type = op.args[0].tensors[0].dtype;
  const auto fits = [type](const TensorRef& ref) { return !ref.defined() || ref.dtype == type || ref.dtype == OpMathType(type); };
  const auto all_fit = [&](const TraceArg& arg) { return std::all_of(arg.tensors.begin(), arg.tensors.end(), fits); };
  return (TypeBit(type) & kFloats) != 0 && std::all_of(op.args.begin(), op.args.end(), all_fit) &&
         std::all_of(op.results.begin(), op.results.end(), fits);
}

bool AcceptsNorm(const OpRow& row, const TraceOp& op) {
  // The CPU's own kernel adds up the gradients of halves in halves: what comes out is far from their sum, and nobody else's.
  if (row.parts > 1 && op.device.is_cpu() && (TypeBit(op.args[0].tensors[0].dtype) & kWide) == 0) return false;
  return HaveNormTypes(op) && op.args[row.dims_arg].value.isIntList();
}

Expr CountOf(OpEmitter& e, int64_t count) { return e.emitter().Size(OpMathType(e.op().args[0].tensors[0].dtype), count); }

Expr NormalizedCount(OpEmitter& e) {
  int64_t count = 1;
  for (int64_t size : e.op().args[e.node().row->dims_arg].value.toIntVector()) count *= size;
  return CountOf(e, count);
}

// Normalises argument 0, of which `count` elements go together, by statistics as they are left if these are `rounded`; the bias is the
// argument after `weight`.
void EmitNorm(OpEmitter& e, Expr count, int weight, int eps, bool rounded = false) {
  const auto type = count.type();
  const auto left = [&](Expr value, int result) {
    const TensorRef& ref = e.op().results[static_cast<size_t>(result)];
    return rounded && ref.defined() ? e.emitter().Round(value, ref.dtype) : value;
  };
  const Expr x = e.Arg(0, type);
  const Expr exact = Sum(x) / count;
  const Expr deviation = x - exact;
  const Expr rstd = left(1.0 / Sqrt(Sum(deviation * deviation) / count + e.Arg(eps, type)), 2);
  const Expr mean = left(exact, 1);
  Expr y = (x - mean) * rstd;
  if (!e.IsNone(weight)) y = y * e.Arg(weight, type);
  if (!e.IsNone(weight + 1)) y = y + e.Arg(weight + 1, type);
  e.Result(0, y);
  e.Result(1, mean);
  e.Result(2, rstd);
}

// Part 0 makes the input's gradient, by rows; part 1 the weight's and the bias's, by columns. The inverse deviation and the weight are the
// arguments after `mean_arg`.
void EmitNormBackward(OpEmitter& e, Expr count, int mean_arg) {
  const auto type = count.type();
  const int weight = mean_arg + 2;
  const Expr grad = e.Arg(0, type), x = e.Arg(1, type), mean = e.Arg(mean_arg, type), rstd = e.Arg(mean_arg + 1, type);
  const Expr normalized = (x - mean) * rstd;
  if (e.node().part == 1) {
    if (e.WantsResult(1)) e.Result(1, Sum(grad * normalized));
    if (e.WantsResult(2)) e.Result(2, Sum(grad));
    return;
  }
  const Expr scaled = e.IsNone(weight) ? grad : grad * e.Arg(weight, type);
  const Expr mean_scaled = Sum(scaled) / count;
  const Expr mean_projected = Sum(scaled * normalized) / count;
  e.Result(0, rstd * (scaled - mean_scaled - normalized * mean_projected));
}

// The same of a norm by the root of the mean square, which has neither mean nor bias. The inverse root is argument 3, the weight 4.
void EmitRmsNormBackward(OpEmitter& e) {
  const Expr count = NormalizedCount(e);
  const auto type = count.type();
  const Expr grad = e.Arg(0, type), rstd = e.Arg(3, type);
  const Expr normalized = e.Arg(1, type) * rstd;
  if (e.node().part == 1) return e.Result(1, Sum(grad * normalized));
  const Expr scaled = e.IsNone(4) ? grad : grad * e.Arg(4, type);
  e.Result(0, rstd * (scaled - normalized * (Sum(scaled * normalized) / count)));
}

// Group norm's iteration space: the batch, the groups, the channels of a group, the elements of a channel; or, on GPUs, for images that lie
// channels last the elements first, and then the channels of a group, which are neighbours.
struct Groups {
  // `first` is the argument that the batch's size is in; channels, elements and groups follow.
  Groups(const TraceOp& op, int first)
      : batch(op.args[first].value.toInt()),
        groups(op.args[first + 3].value.toInt()),
        channels(op.args[first + 1].value.toInt() / groups),
        elements(op.args[first + 2].value.toInt()),
        on_gpu(op.device.is_cuda()),
        channels_last(on_gpu && LiesChannelsLast(op.args[0].tensors[0])) {}

  c10::DimVector Sizes() const { return Ordered(batch, groups, channels, elements); }
  c10::DimVector Strides(const TensorRef& ref) const {
    if (!ref.defined()) return {};
    if (ref.sizes.size() == 1) return Ordered(0, channels * ref.strides[0], ref.strides[0], 0);
    if (ref.numel() == batch * groups) return {groups, 1, 0, 0};  // Statistics.
    const bool last = LiesChannelsLast(ref);
    return Ordered(groups * channels * elements, last ? channels : channels * elements, last ? 1 : elements, last ? groups * channels : 1);
  }
  // Which dimensions a result for each row, or one for each channel, is reduced along.
  std::vector<bool> Reduced(bool rows) const {
    return rows ? std::vector<bool>{false, false, true, true} : std::vector<bool>{true, false, channels_last, !channels_last};
  }

  // Whether `ref` is something of each element, of each group, or of each channel.
  bool Fits(const TensorRef& ref) const {
    if (!ref.defined()) return true;
    if (ref.sizes.size() < 2) return ref.numel() == groups * channels;
    if (ref.numel() == batch * groups) return IsContiguous(ref);
    return ref.numel() == batch * groups * channels * elements && (IsContiguous(ref) || (on_gpu && LiesChannelsLast(ref)));
  }

  static bool LiesChannelsLast(const TensorRef& ref) {
    return ref.sizes.size() == 4 && !IsContiguous(ref) && ref.strides == ChannelsLast(ref.sizes);
  }

  int64_t batch, groups, channels, elements;
  bool on_gpu, channels_last;

 private:
  c10::DimVector Ordered(int64_t image, int64_t group, int64_t channel, int64_t element) const {
    return channels_last ? c10::DimVector{image, group, element, channel} : c10::DimVector{image, group, channel, element};
  }
};

// In contiguous tensors groups lie in rows.
bool AcceptsGroupNorm(const OpRow& row, const TraceOp& op) {
  if (!HaveNormTypes(op)) return false;
  for (int i = 0; i < 4; ++i) {
    if (!op.args[row.dims_arg + i].value.isInt()) return false;
  }
  const int64_t channels = op.args[row.dims_arg + 1].value.toInt(), groups = op.args[row.dims_arg + 3].value.toInt();
  if (groups < 1 || channels % groups != 0) return false;
  if (row.parts > 1 && (op.args[2].tensors[0].sizes.size() != 2 || op.args[3].tensors[0].sizes.size() != 2)) return false;
  const Groups space(op, row.dims_arg);
  const auto fits = [&](const TensorRef& ref) { return space.Fits(ref); };
  for (const TraceArg& arg : op.args) {
    if (!std::all_of(arg.tensors.begin(), arg.tensors.end(), fits)) return false;
  }
  return std::all_of(op.results.begin(), op.results.end(), fits);
}

Iteration IterateGroupNorm(const OpRow& row, const Node& node) {
  const Groups groups(node.op, row.dims_arg);
  Iteration it;
  it.sizes = groups.Sizes();
  it.reduced = groups.Reduced(/*rows=*/node.part == 0);
  ForEachUse(node, [&](const TensorRef& use) { it.uses.push_back(groups.Strides(use)); });
  for (const TensorRef& result : node.op.results) it.results.push_back(groups.Strides(result));
  return it;
}

Expr GroupCount(OpEmitter& e) {
  const Groups groups(e.op(), e.node().row->dims_arg);
  return CountOf(e, groups.channels * groups.elements);
}

}  // namespace

bool ReducesShortRows(const TraceOp& op, const OpRow& row) {
  const TensorRef& self = op.args[0].tensors[0];
  const std::vector<bool> reduced = ReducedDims(op, row.dims_arg);
  int64_t count = 1;
  for (size_t d = self.sizes.size(); d-- > 0;) {
    if (!reduced[d] || self.sizes[d] == 1) continue;
    if (self.strides[d] != count) return false;
    count *= self.sizes[d];
  }
  return count * static_cast<int64_t>(c10::elementSize(self.dtype)) <= kShortRowBytes;
}

Reduced::Reduced(OpEmitter& emitter) : emitter_(emitter), type_(OpMathType(emitter.op().results[0].dtype)), count_(1) {
  const auto& sizes = emitter.op().args[0].tensors[0].sizes;
  const auto reduced = ReducedDims(emitter.op(), emitter.node().row->dims_arg);
  for (size_t d = 0; d < sizes.size(); ++d) count_ *= reduced[d] ? sizes[d] : 1;
}

Expr Reduced::log_sum_exp() const {
  const Expr x = (*this)(), most = ReduceMax(x);
  const Expr shift = Select(Abs(most) == Like(most, std::numeric_limits<double>::infinity()), Like(most, 0), most);
  return Log(Sum(Exp(x - shift))) + shift;
}

Expr Reduced::variance() const {
  const c10::IValue& correction = emitter_.op().args[2].value;
  Emitter& emitter = emitter_.emitter();
  const double subtracted = correction.isNone() ? 1.0 : correction.toScalar().toDouble();
  const Expr degrees = emitter.Size(ScalarType::Double, count_) - subtracted;
  const Expr divisor = emitter.Cast(Max(degrees, Like(degrees, 0.0)), type_);
  const Expr x = (*this)();
  const Expr mean = Sum(x) / count();
  const Expr centered = x - mean;
  if (emitter_.op().results.size() > 1) emitter_.Result(1, mean);
  return Sum(centered * centered) / divisor;
}

OpRow ReduceRow(int dims_arg, int keepdim_arg, uint8_t types, void (*emit)(OpEmitter&)) {
  OpRow row;
  row.reducing_parts = 1;
  row.dims_arg = dims_arg;
  row.keepdim_arg = keepdim_arg;
  row.types = types;
  row.emit = emit;
  row.accepts = &AcceptsReduce;
  row.iterate = &IterateReduce;
  return row;
}

void EmitArgMax(OpEmitter& e) { EmitPlaceOf(e, KOp::kReduceMax, /*gives_value=*/false); }
void EmitArgMin(OpEmitter& e) { EmitPlaceOf(e, KOp::kReduceMin, /*gives_value=*/false); }
void EmitMaxDim(OpEmitter& e) { EmitPlaceOf(e, KOp::kReduceMax, /*gives_value=*/true); }
void EmitMinDim(OpEmitter& e) { EmitPlaceOf(e, KOp::kReduceMin, /*gives_value=*/true); }

OpRow PlacesRow(void (*emit)(OpEmitter&)) {
  OpRow row = ReduceRow(1, 2, kNumbers, emit);
  row.iterate = &IteratePlaces;
  row.finds_places = true;
  return row;
}

OpRow MinAndMaxRow() {
  return ReduceRow(1, 2, kNumbers, [](OpEmitter& e) {
    const Expr x = Reduced(e)();
    e.Result(0, ReduceMin(x));
    e.Result(1, ReduceMax(x));
  });
}

OpRow LayerNormRow() {
  OpRow row;
  row.reducing_parts = 1;
  row.dims_arg = 1;
  row.accepts = &AcceptsNorm;
  row.iterate = +[](const OpRow&, const Node& node) { return IterateNorm(node, node.op.args[0].tensors[0], true); };
  row.emit = +[](OpEmitter& e) { EmitNorm(e, NormalizedCount(e), /*weight=*/2, /*eps=*/4); };
  return row;
}

OpRow RmsNormBackwardRow() {
  OpRow row;
  row.reducing_parts = 0b11;
  row.dims_arg = 2;
  row.parts = 2;
  row.part_of_result = {0, 1};
  row.accepts = &AcceptsNorm;
  row.iterate = +[](const OpRow&, const Node& node) { return IterateNorm(node, node.op.args[1].tensors[0], node.part == 0); };
  row.emit = &EmitRmsNormBackward;
  return row;
}

OpRow LayerNormBackwardRow() {
  OpRow row = RmsNormBackwardRow();
  row.shape_args = uint64_t{1} << 6;  // bias
  row.part_of_result = {0, 1, 1};
  row.emit = +[](OpEmitter& e) { EmitNormBackward(e, NormalizedCount(e), /*mean_arg=*/3); };
  return row;
}

OpRow GroupNormRow() {
  OpRow row;
  row.reducing_parts = 1;
  row.dims_arg = 3;
  row.accepts = &AcceptsGroupNorm;
  row.iterate = &IterateGroupNorm;
  row.emit = +[](OpEmitter& e) { EmitNorm(e, GroupCount(e), /*weight=*/1, /*eps=*/7, /*rounded=*/e.op().device.is_cuda()); };
  return row;
}

OpRow GroupNormBackwardRow() {
  OpRow row = GroupNormRow();
  row.reducing_parts = 0b11;
  row.dims_arg = 5;
  row.parts = 2;
  row.part_of_result = {0, 1, 1};
  row.emit = +[](OpEmitter& e) { EmitNormBackward(e, GroupCount(e), /*mean_arg=*/2); };
  return row;
}

}  // namespace lazuli::codegen
