// Batch norm and its gradient, each in pieces: numbers for every channel (with their reduction, where they are the batch's own), then one
// multiply-add at every element, which fuses with what is around it.
#include <algorithm>
#include <array>
#include <utility>

#include "codegen/lower_pieces.h"
#include "codegen/lower_rows.h"

namespace lazuli::codegen {
namespace {

using c10::ScalarType;

// Arguments of native_batch_norm and _native_batch_norm_legit.
enum Forward { kInput, kWeight, kBias, kRunningMean, kRunningVar, kTraining, kMomentum, kEps };
// Arguments of native_batch_norm_backward; those of the same name as above have other places.
enum Backward { kGradOut, kX, kScale, kOldMean, kOldVar, kSaveMean, kSaveInvstd, kTrain, kGradEps, kMask };

// Arguments of cudnn_batch_norm_backward that come after the tensors.
constexpr int kCudnnEps = 7, kReserve = 8;

// Parts of both rows.
constexpr int kChannels = 0;   // Numbers of a channel from running statistics.
constexpr int kReduction = 1;  // The same from the whole batch.
constexpr int kElementwise = 2;

bool IsTrue(const TraceOp& op, int arg) { return op.args[arg].value.toBool(); }

// All tensors of one type out of `types`, dense results, and nothing but single numbers for each of the `channels`. On GPUs the numbers
// of channels, given and returned, may be of the type that statistics are computed in.
bool FitsChannels(const TraceOp& op, int64_t channels, int first_by_channel, uint8_t types, bool empty_results) {
  const ScalarType type = op.args[0].tensors[0].dtype;
  const ScalarType channel_type = op.device.is_cpu() ? type : OpMathType(type);
  const auto fits = [&](const TensorRef& ref, bool by_channel) { return ref.dtype == type || (by_channel && ref.dtype == channel_type); };
  for (size_t i = 0; i < op.args.size(); ++i) {
    for (const TensorRef& ref : op.args[i].tensors) {
      if (!ref.defined()) continue;
      const bool by_channel = static_cast<int>(i) >= first_by_channel;
      if (!fits(ref, by_channel) || ref.numel() == 0) return false;
      if (by_channel ? ref.sizes.size() != 1 || ref.sizes[0] != channels : ref.sizes.size() < 2 || ref.sizes[1] != channels) return false;
    }
  }
  for (const TensorRef& ref : op.results) {
    if (!ref.defined() || (empty_results && ref.numel() == 0)) continue;
    if (!fits(ref, ref.sizes.size() == 1) || !IsDense(ref) || ref.numel() == 0) return false;
  }
  return (TypeBit(type) & types) != 0;
}

// The CPU's formulas round once for each step of a type that isn't computed in; those of GPUs only at the end.
uint8_t TrainedTypes(const TraceOp& op) { return op.device.is_cpu() ? kWide : kFloats; }

// Whether ATen's GPU kernels keep the statistics of a batch in the type that they are computed in: those of layouts that it has kernels of
// its own for. Elsewhere they come from var_mean, rounded to the input's type.
bool HasWideStatistics(const TensorRef& input) {
  if (!c10::isReducedFloatingType(input.dtype) || IsContiguous(input)) return true;
  if (input.sizes.size() != 4) return false;
  TensorRef channels_last = input;
  for (size_t d = 1; d < 4; ++d) {
    const size_t from = d % 3 + 1;
    channels_last.sizes[d] = input.sizes[from];
    channels_last.strides[d] = input.strides[from];
  }
  return IsContiguous(channels_last);
}

bool AcceptsBatchNorm(const OpRow&, const TraceOp& op) {
  if (op.args[kTraining].kind != TraceArg::Kind::kConst || !op.results[0].defined()) return false;
  const TensorRef& input = RefOf(op, kInput);
  if (input.sizes.size() < 2) return false;
  const bool training = IsTrue(op, kTraining);
  if (!training && (!RefOf(op, kRunningMean).defined() || !RefOf(op, kRunningVar).defined())) return false;
  if (training && op.device.is_cuda() && !HasWideStatistics(input)) return false;
  return FitsChannels(op, input.sizes[1], kWeight, training ? TrainedTypes(op) : kFloats, /*empty_results=*/!training);
}

// What cuDNN keeps for its own gradient of a training step nobody else can write: only some of its algorithms do.
bool KeepsNothing(const TensorRef& reserve) { return !reserve.defined() || reserve.numel() == 0; }

bool AcceptsCudnnBatchNorm(const OpRow& row, const TraceOp& op) {
  if (IsTrue(op, kTraining) && !KeepsNothing(op.results[3])) return false;
  TraceOp native = op;
  native.results.resize(3);
  return AcceptsBatchNorm(row, native);
}

bool AcceptsBatchNormBackward(const OpRow&, const TraceOp& op) {
  if (op.args[kTrain].kind != TraceArg::Kind::kConst) return false;
  const TensorRef& x = RefOf(op, kX);
  if (x.sizes.size() < 2 || RefOf(op, kGradOut).sizes != x.sizes) return false;
  const bool train = IsTrue(op, kTrain);
  if (!RefOf(op, train ? kSaveMean : kOldMean).defined() || !RefOf(op, train ? kSaveInvstd : kOldVar).defined()) return false;
  // Where running statistics count, those of the batch are empty.
  TraceOp used = op;
  for (int arg : {train ? kOldMean : kSaveMean, train ? kOldVar : kSaveInvstd}) SetRef(&used, arg, TensorRef());
  return FitsChannels(used, x.sizes[1], kScale, TrainedTypes(op), /*empty_results=*/false);
}

// What has one dimension lies along the channels, everything else along all of the space.
c10::DimVector ChannelStrides(const TensorRef& ref, const c10::DimVector& sizes) {
  if (!ref.defined()) return {};
  if (ref.sizes.size() == sizes.size()) return BroadcastStrides(ref, sizes);
  c10::DimVector strides(sizes.size(), 0);
  strides[1] = ref.sizes[0] == 1 ? 0 : ref.strides[0];
  return strides;
}

Iteration IterateBatchNorm(const OpRow&, const Node& node) {
  Iteration it;
  if (node.part == kChannels) {
    const auto made =
        std::find_if(node.op.results.begin(), node.op.results.end(), [](const TensorRef& result) { return result.defined(); });
    it.sizes = made->sizes;
    it.reduced = {false};
    ForEachUse(node, [&](const TensorRef& use) { it.uses.push_back(BroadcastStrides(use, it.sizes)); });
    for (const TensorRef& result : node.op.results) {
      it.results.push_back(result.defined() ? BroadcastStrides(result, it.sizes) : c10::DimVector());
    }
    return it;
  }
  it.sizes = RefOf(node.op, 0).sizes;
  it.reduced.assign(it.sizes.size(), node.part == kReduction);
  it.reduced[1] = false;
  ForEachUse(node, [&](const TensorRef& use) { it.uses.push_back(ChannelStrides(use, it.sizes)); });
  for (const TensorRef& result : node.op.results) it.results.push_back(ChannelStrides(result, it.sizes));
  return it;
}

// Whether moments are those of differences from a channel's first element, all from one pass over memory (shifted data: Chan, Golub and
// LeVeque, "Algorithms for computing the sample variance", 1983): of numbers so short that what they round away exceeds what the
// difference of two sums loses.
bool TakesOnePass(const TraceOp& op) { return !op.device.is_cpu() && c10::isReducedFloatingType(RefOf(op, kInput).dtype); }

// Where statistics on a GPU, which need no weight, have the first element of each channel.
constexpr int kShift = kWeight;

TensorRef FirstOfChannels(const TensorRef& input) {
  TensorRef first = input;
  first.sizes = {input.sizes[1]};
  first.strides = {input.strides[1]};
  return first;
}

// The number of elements in a channel.
Expr Count(OpEmitter& e, ScalarType type, int64_t less = 0) {
  const auto& sizes = RefOf(e.op(), 0).sizes;
  int64_t count = 1;
  for (size_t d = 0; d < sizes.size(); ++d) count *= d == 1 ? 1 : sizes[d];
  const Expr number = e.emitter().Size(less == 0 ? type : ScalarType::Double, count);
  return less == 0 ? number : e.emitter().Cast(number - static_cast<double>(less), type);
}

// On CPUs ATen adds `eps` in double precision, and takes a variance and an eps of zero as a channel that is switched off.
Expr InverseDeviation(OpEmitter& e, Expr variance, int eps) {
  if (!e.op().device.is_cpu()) return Reciprocal(Sqrt(variance + e.Arg(eps, variance.type())));
  const Expr shifted = e.emitter().Cast(variance, ScalarType::Double) + e.Arg(eps, ScalarType::Double);
  const Expr inverse = Select(shifted == Like(shifted, 0), shifted, 1.0 / Sqrt(shifted));
  return e.emitter().Cast(inverse, variance.type());
}

// Results 0 and 1: mean and inverse deviation. On CPUs also 2 and 3: what an input is multiplied by, and what is added then.
void EmitFactors(OpEmitter& e, Expr mean, Expr invstd) {
  e.Result(0, mean);
  e.Result(1, invstd);
  if (!e.op().device.is_cpu()) return;
  const ScalarType type = mean.type();
  const Expr factor = e.IsNone(kWeight) ? invstd : invstd * e.Arg(kWeight, type);
  e.Result(2, factor);
  e.Result(3, Fma(-mean, factor, e.IsNone(kBias) ? Like(mean, 0) : e.Arg(kBias, type)));
}

// momentum * fresh + (1 - momentum) * old, in double precision.
Expr RunningAverage(OpEmitter& e, Expr fresh, int old) {
  const Expr momentum = e.Arg(kMomentum, ScalarType::Double);
  return momentum * e.emitter().Cast(fresh, ScalarType::Double) + (1.0 - momentum) * e.Arg(old, ScalarType::Double);
}

void EmitChannels(OpEmitter& e) {
  const ScalarType type = OpMathType(RefOf(e.op(), kRunningVar).dtype);
  EmitFactors(e, e.Arg(kRunningMean, type), Reciprocal(Sqrt(e.Arg(kRunningVar, type) + e.Arg(kEps, type))));
}

struct Moments {
  Expr mean;
  Expr squares;  // The sum of squared differences from the mean.
};

Moments EmitMoments(OpEmitter& e, ScalarType type) {
  const Expr x = e.Arg(kInput, type);
  const Expr count = Count(e, type);
  if (TakesOnePass(e.op())) {
    const Expr shift = e.Arg(kShift, type);
    const Expr shifted = x - shift;
    const Expr sum = Sum(shifted);
    const Expr difference = Sum(shifted * shifted) - sum * sum / count;
    return {shift + sum / count, Max(difference, Like(difference, 0))};
  }
  const Expr mean = Sum(x) / count;
  const Expr centered = x - mean;
  return {mean, Sum(centered * centered)};
}

// Also gives results 4 and 5, the next running statistics.
void EmitStatistics(OpEmitter& e) {
  const ScalarType type = OpMathType(RefOf(e.op(), kInput).dtype);
  const auto [mean, squares] = EmitMoments(e, type);
  const Expr invstd = InverseDeviation(e, squares / Count(e, type), kEps);
  EmitFactors(e, mean, invstd);
  if (!e.IsNone(kRunningMean)) e.Result(4, RunningAverage(e, mean, kRunningMean));
  if (!e.IsNone(kRunningVar)) e.Result(5, RunningAverage(e, squares / Count(e, type, 1), kRunningVar));
}

void EmitBatchNorm(OpEmitter& e) {
  if (e.node().part == kChannels) return EmitChannels(e);
  if (e.node().part == kReduction) return EmitStatistics(e);
  const ScalarType type = OpMathType(e.op().results[0].dtype);
  const Expr x = e.Arg(kInput, type);
  if (e.op().device.is_cpu()) return e.Result(0, Fma(x, e.Arg(kWeight, type), e.Arg(kBias, type)));
  const Expr centered = x - e.Arg(kRunningMean, type);
  const Expr scaled = e.IsNone(kWeight) ? centered : e.Arg(kWeight, type) * centered;
  const Expr invstd = e.Arg(kRunningVar, type);
  e.Result(0, e.IsNone(kBias) ? scaled * invstd : Fma(scaled, invstd, e.Arg(kBias, type)));
}

// `op` without results, and without operands but for `args`.
TraceOp WithOperands(const TraceOp& op, std::initializer_list<int> args) {
  TraceOp out = op;
  out.results.clear();
  for (size_t i = 0; i < out.args.size(); ++i) {
    const bool kept = std::find(args.begin(), args.end(), static_cast<int>(i)) != args.end();
    if (!kept && !out.args[i].tensors.empty()) SetRef(&out, static_cast<int>(i), TensorRef());
  }
  return out;
}

TraceOp Copy(const TensorRef& target, const TensorRef& source) {
  TraceOp op = CallOf("aten::copy_", {});
  op.results.clear();
  SetRef(&op, 0, target);
  SetRef(&op, 1, source);
  op.args[2].value = false;
  return op;
}

// What running statistics become for the gradient is empty on the CPU.
bool IsKept(const TensorRef& result) { return result.defined() && result.numel() != 0; }

// The pointwise part on a CPU, where `numbers` make two factors for it, and on a GPU, where it takes mean and inverse deviation: each as
// ATen's kernels do.
TraceOp Elements(const TraceOp& op, TraceOp* numbers, Expansion* out) {
  const c10::DimVector channels = {RefOf(op, kInput).sizes[1]};
  const ScalarType type = OpMathType(RefOf(op, kInput).dtype);
  TraceOp elements = op.device.is_cpu() ? WithOperands(op, {kInput}) : WithOperands(op, {kInput, kWeight, kBias});
  elements.results = {op.results[0]};
  if (op.device.is_cpu()) {
    numbers->results.insert(numbers->results.end(), {out->Temporary(type, channels), out->Temporary(type, channels)});
    SetRef(&elements, kWeight, numbers->results[2]);
    SetRef(&elements, kBias, numbers->results[3]);
    return elements;
  }
  for (TensorRef& result : numbers->results) {
    if (!result.defined()) result = out->Temporary(type, channels);
  }
  SetRef(&elements, kRunningMean, numbers->results[0]);
  SetRef(&elements, kRunningVar, numbers->results[1]);
  numbers->results.resize(4);
  return elements;
}

// What makes the numbers for every channel; without its results.
TraceOp Statistics(const TraceOp& op) {
  if (!IsTrue(op, kTraining)) return WithOperands(op, {kWeight, kBias, kRunningMean, kRunningVar});
  if (op.device.is_cpu()) return WithOperands(op, {kInput, kWeight, kBias, kRunningMean, kRunningVar});
  TraceOp numbers = WithOperands(op, {kInput, kRunningMean, kRunningVar});
  if (TakesOnePass(op)) SetRef(&numbers, kShift, FirstOfChannels(RefOf(op, kInput)));
  return numbers;
}

void ExpandBatchNorm(const TraceOp& op, Expansion* out) {
  const bool training = IsTrue(op, kTraining);
  const TensorRef& input = RefOf(op, kInput);
  const c10::DimVector channels = {input.sizes[1]};
  const ScalarType type = OpMathType(input.dtype);
  TraceOp numbers = Statistics(op);
  for (int i : {1, 2}) numbers.results.push_back(IsKept(op.results[i]) ? op.results[i] : TensorRef());
  TraceOp elements = Elements(op, &numbers, out);
  std::vector<TraceOp> after;
  for (size_t i = 1; i < op.results.size(); ++i) {
    if (op.results[i].defined() && !IsKept(op.results[i])) after.push_back(NewZeros(input, op.results[i]));
  }
  if (training) {
    for (int running : {kRunningMean, kRunningVar}) {
      const TensorRef& old = RefOf(op, running);
      numbers.results.push_back(old.defined() ? out->Temporary(type, channels) : TensorRef());
      if (old.defined()) after.push_back(Copy(old, numbers.results.back()));
    }
  }
  out->pieces.push_back({std::move(numbers), training ? kReduction : kChannels});
  for (TraceOp& piece : after) out->pieces.push_back({std::move(piece), Expansion::kWholeOp});
  out->pieces.push_back({std::move(elements), kElementwise});
}

// Results 0 and 1: the gradients of weight and bias. 2 to 4: what an output's gradient is multiplied by, its mean, and what the centred
// input is multiplied by before both are subtracted.
void EmitGradSums(OpEmitter& e) {
  const ScalarType type = OpMathType(RefOf(e.op(), kX).dtype);
  const bool train = IsTrue(e.op(), kTrain);
  const Expr grad = e.Arg(kGradOut, type);
  const Expr mean = e.Arg(train ? kSaveMean : kOldMean, type);
  const Expr invstd = train ? e.Arg(kSaveInvstd, type) : InverseDeviation(e, e.Arg(kOldVar, type), kGradEps);
  const Expr sum = Sum(grad);
  const Expr projected = Sum((e.Arg(kX, type) - mean) * grad);
  e.Result(0, projected * invstd);
  e.Result(1, sum);
  if (!train) return;
  e.Result(2, e.IsNone(kScale) ? invstd : invstd * e.Arg(kScale, type));
  e.Result(3, sum / Count(e, type));
  e.Result(4, projected * invstd * invstd / Count(e, type));
}

void EmitBatchNormBackward(OpEmitter& e) {
  if (e.node().part == kReduction) return EmitGradSums(e);
  const ScalarType type = OpMathType(e.op().results[0].dtype);
  if (e.node().part == kChannels) {
    const Expr invstd = InverseDeviation(e, e.Arg(kOldVar, type), kGradEps);
    return e.Result(0, e.IsNone(kScale) ? invstd : invstd * e.Arg(kScale, type));
  }
  Expr grad = e.Arg(kGradOut, type);
  if (IsTrue(e.op(), kTrain)) {
    grad = Fma(-(e.Arg(kX, type) - e.Arg(kSaveMean, type)), e.Arg(kOldVar, type), grad - e.Arg(kOldMean, type));
  }
  e.Result(0, grad * e.Arg(kScale, type));
}

void ExpandBatchNormBackward(const TraceOp& op, Expansion* out) {
  const bool train = IsTrue(op, kTrain);
  const TensorRef& x = RefOf(op, kX);
  const c10::DimVector channels = {x.sizes[1]};
  const ScalarType type = OpMathType(x.dtype);
  const TensorRef scale = out->Temporary(type, channels);
  TraceOp sums =
      train ? WithOperands(op, {kGradOut, kX, kScale, kSaveMean, kSaveInvstd}) : WithOperands(op, {kGradOut, kX, kOldMean, kOldVar});
  TraceOp elements = train ? WithOperands(op, {kGradOut, kX, kSaveMean}) : WithOperands(op, {kGradOut});
  SetRef(&elements, kScale, scale);
  elements.results = {op.results[0]};
  sums.results = {op.results[1], op.results[2]};
  if (train) {
    const TensorRef mean = out->Temporary(type, channels), projection = out->Temporary(type, channels);
    sums.results.insert(sums.results.end(), {scale, mean, projection});
    SetRef(&elements, kOldMean, mean);
    SetRef(&elements, kOldVar, projection);
  }
  out->pieces.push_back({std::move(sums), kReduction});
  if (!op.results[0].defined()) return;
  if (!train) {
    TraceOp scales = WithOperands(op, {kScale, kOldVar});
    scales.results = {scale};
    out->pieces.push_back({std::move(scales), kChannels});
  }
  out->pieces.push_back({std::move(elements), kElementwise});
}

// cudnn_batch_norm_backward as the native operator that gives the same gradients, in that one's order of arguments.
TraceOp AsNativeBackward(const TraceOp& op) {
  constexpr std::array<int, 7> kNativeOf = {kX, kGradOut, kScale, kOldMean, kOldVar, kSaveMean, kSaveInvstd};
  TraceOp native = op;
  native.info = FindOpInfo("aten::native_batch_norm_backward");
  native.args.resize(static_cast<size_t>(native.info->num_args));
  for (size_t i = 0; i < kNativeOf.size(); ++i) native.args[kNativeOf[i]] = op.args[i];
  native.args[kTrain] = {};
  native.args[kTrain].value = true;
  native.args[kGradEps] = op.args[kCudnnEps];
  native.args[kMask] = {};
  native.args[kMask].value = c10::List<bool>({true, true, true});
  return native;
}

bool AcceptsCudnnBackward(const OpRow& row, const TraceOp& op) {
  return KeepsNothing(RefOf(op, kReserve)) && AcceptsBatchNormBackward(row, AsNativeBackward(op));
}

void ExpandCudnnBackward(const TraceOp& op, Expansion* out) { ExpandBatchNormBackward(AsNativeBackward(op), out); }

}  // namespace

OpRow BatchNormRow() {
  OpRow row;
  row.reducing_parts = 1 << kReduction;
  row.accepts = &AcceptsBatchNorm;
  row.expand = &ExpandBatchNorm;
  row.iterate = &IterateBatchNorm;
  row.emit = &EmitBatchNorm;
  return row;
}

OpRow CudnnBatchNormRow() {
  OpRow row = BatchNormRow();
  row.accepts = &AcceptsCudnnBatchNorm;
  return row;
}

OpRow BatchNormBackwardRow() {
  OpRow row = BatchNormRow();
  row.accepts = &AcceptsBatchNormBackward;
  row.expand = &ExpandBatchNormBackward;
  row.emit = &EmitBatchNormBackward;
  return row;
}

OpRow CudnnBatchNormBackwardRow() {
  OpRow row = BatchNormBackwardRow();
  row.accepts = &AcceptsCudnnBackward;
  row.expand = &ExpandCudnnBackward;
  return row;
}

}  // namespace lazuli::codegen
