// The pieces that op.def's rows are made of.
#pragma once

#include "codegen/lower.h"
#include "codegen/lower_expr.h"

namespace lazuli::codegen {

// The arguments of a pointwise formula, in the type that it is computed in.
class Operands {
 public:
  Operands(OpEmitter& emitter, const OpRow& row)
      : emitter_(emitter),
        row_(row),
        on_cpu_(emitter.op().device.is_cpu()),
        common_(ComputeType(row, emitter.op())),
        type_(OpMathType(common_)) {}

  // One of the row's operands is rounded to their common type first, as TensorIterator does; any other number is not.
  Expr operator()(int arg) const { return IsOperand(arg) ? rounded(arg) : wide(arg); }
  // ATen's CUDA kernels take a tensor in the common type, whatever its own, and a number in the type they compute in, except to compare.
  Expr wide(int arg) const { return on_cpu_ || IsNumber(arg) || !IsOperand(arg) ? emitter_.Arg(arg, type_) : Rounded(arg); }
  Expr rounded(int arg) const {
    return on_cpu_ || !IsNumber(arg) || row_.rule == TypeRule::kCompare ? Rounded(arg) : emitter_.Arg(arg, type_);
  }
  // Rounded to the common type, whatever it is.
  Expr narrow(int arg) const { return Rounded(arg); }
  // `value`, an intermediate result: some of ATen's CUDA kernels compute in the common type itself, which rounds each of them.
  Expr step(Expr value) const { return rounds_steps() ? Rounded(value) : value; }
  bool on_cpu() const { return on_cpu_; }
  bool is_number(int arg) const { return IsNumber(arg); }
  bool rounds_steps() const { return !on_cpu_ && common_ != type_; }
  Expr bool_arg(int arg) const { return emitter_.Arg(arg, c10::ScalarType::Bool); }
  Expr number(double value) const { return emitter_.emitter().Const(type_, value); }
  OpEmitter& emitter() const { return emitter_; }
  c10::ScalarType type() const { return type_; }

 private:
  bool IsOperand(int arg) const { return (row_.operands >> arg & 1) != 0; }
  bool IsNumber(int arg) const {
    const TraceArg& value = emitter_.op().args[arg];
    return value.tensors.empty() || value.tensors[0].wrapped_number;
  }
  Expr Rounded(int arg) const { return Rounded(emitter_.Arg(arg, type_)); }
  Expr Rounded(Expr value) const { return emitter_.emitter().Round(value, common_); }

  OpEmitter& emitter_;
  const OpRow& row_;
  bool on_cpu_;
  c10::ScalarType common_;
  c10::ScalarType type_;
};

// Self of a reduction, in the type that is accumulated in.
class Reduced {
 public:
  explicit Reduced(OpEmitter& emitter);

  Expr operator()() const { return emitter_.Arg(0, type_); }
  Expr raw() const { return emitter_.Load(0); }
  // The number of elements reduced to one.
  int64_t size() const { return count_; }
  Expr count() const { return emitter_.emitter().Size(type_, count_); }
  // Of self about its mean; also gives result 1, the mean, if there is one.
  Expr variance() const;
  // As ATen takes it: less the maximum, where that is finite.
  Expr log_sum_exp() const;

 private:
  OpEmitter& emitter_;
  c10::ScalarType type_;
  int64_t count_;
};

// Formulas too long for a row.
Expr Lerp(Expr start, Expr end, Expr weight);
Expr Quotient(const Operands& x);
Expr Addcdiv(const Operands& x);
Expr Sign(Expr a);
Expr Relu6(Expr a);
Expr Clamp(const Operands& x);
Expr ClampToNumbers(const Operands& x);
Expr PowScalar(const Operands& x);
// Whether the exponent, if it is a number, is zero, odd or infinite only if it is as a number of `type`, which powers are computed in.
bool IsExponentOf(const TraceOp& op, c10::ScalarType type);
Expr Elu(const Operands& x);
Expr Gelu(const Operands& x);
Expr GeluBackward(const Operands& x);
Expr TanhBackward(const Operands& x);
// `value` / 6, as the operator's kernel does it.
Expr Sixth(const Operands& x, Expr value);
Expr LogSigmoid(Expr a);
// Also gives result 1, exp(-|x|).
Expr LogSigmoidAndBuffer(const Operands& x);
Expr MishBackward(Expr grad, Expr x);
Expr EluBackward(const Operands& x);
Expr Remainder(const Operands& x);
Expr NanToNum(const Operands& x);
Expr Xlogy(const Operands& x);
// lower_loss.cpp: losses of elements, and their gradients. Arguments are those of the operators.
Expr MseBackward(const Operands& x);
Expr SmoothL1(const Operands& x);
Expr SmoothL1Backward(const Operands& x);
Expr Huber(const Operands& x);
Expr HuberBackward(const Operands& x);
Expr BinaryCrossEntropy(const Operands& x);
Expr BinaryCrossEntropyBackward(const Operands& x);
Expr BinaryCrossEntropyWithLogits(const Operands& x);
// Gives result 0, as argument `reduction` of the row says.
void GiveLoss(OpEmitter& e, Expr value);
void EmitSoftmax(OpEmitter& e);
void EmitSafeSoftmax(OpEmitter& e);
void EmitSoftmaxBackward(OpEmitter& e);
void EmitLogSoftmaxBackward(OpEmitter& e);

// Whether all tensors of `op` have one floating type.
bool SameFloatTypes(const TraceOp& op);
// In row-major order without gaps, whatever the strides of dimensions of size 1; TensorRef::is_contiguous() asks for those, too.
bool IsContiguous(const TensorRef& ref);
c10::DimVector ContiguousStrides(const c10::DimVector& sizes);

// Rows by kind.
OpRow PointwiseRow(TypeRule rule, uint64_t operands, uint8_t types, void (*emit)(OpEmitter&));
OpRow PowRow();
OpRow FillRow(uint64_t shape_args, void (*emit)(OpEmitter&));
// arange of one to three numbers, and eye.
OpRow RangeRow(int num_numbers);
OpRow EyeRow();
OpRow ReduceRow(int dims_arg, int keepdim_arg, uint8_t types, void (*emit)(OpEmitter&));
// The places of maxima and minima, as one of these emits them.
OpRow PlacesRow(void (*emit)(OpEmitter&));
void EmitArgMax(OpEmitter& e);
void EmitArgMin(OpEmitter& e);
void EmitMaxDim(OpEmitter& e);
void EmitMinDim(OpEmitter& e);
// Whether a reduction's rows lie in memory one after another, each so short that a block of threads of a GPU holds it. Sizes are no
// symbols.
bool ReducesShortRows(const TraceOp& op, const OpRow& row);
OpRow MinAndMaxRow();
OpRow CastRow(int source);
OpRow SoftmaxRow(int inputs, void (*emit)(OpEmitter&));
OpRow LogSoftmaxRow();
// Running sums and products along one dimension.
OpRow CumulativeRow(KOp scan, ScanDirection direction);
// Losses: `emit` passes each element's to GiveLoss. Those of probabilities throw for what is none.
OpRow LossRow(int reduction_arg, void (*emit)(OpEmitter&));
// With weights (arguments 2 and 3, if any) that are broadcast to the elements.
OpRow WeightedLossRow(int reduction_arg, void (*emit)(OpEmitter&));
OpRow ProbabilityLossRow(int reduction_arg, void (*emit)(OpEmitter&));
OpRow TriangleRow(bool lower);
OpRow LayerNormRow();
OpRow LayerNormBackwardRow();
OpRow RmsNormBackwardRow();
OpRow GroupNormRow();
OpRow GroupNormBackwardRow();
OpRow BatchNormRow();
OpRow CudnnBatchNormRow();
OpRow BatchNormBackwardRow();
OpRow CudnnBatchNormBackwardRow();
// What biases add to a convolution, and to its backward pass, on GPUs.
OpRow ConvolutionRow();
OpRow ConvolutionBackwardRow();
// Self (argument 0) read where the indices of argument `index_arg` say: embedding, index_select, index.
OpRow LookUpRow(int index_arg);
OpRow GatherRow();
// The gradients of select and slice.
OpRow SpreadRow();
// Windows of up to 16 elements; those of averages without padding.
OpRow MaxPoolRow();
OpRow AvgPoolRow();
OpRow MaxPoolBackwardRow();
OpRow AvgPoolBackwardRow();
OpRow NllLossRow();
OpRow DropoutMaskRow();
OpRow RandomRow();
OpRow NllLossBackwardRow();
// In-place ops that write self where indices say.
OpRow IndexAddRow();
OpRow IndexCopyRow();
OpRow ScatterAddRow();
OpRow ScatterRow();
OpRow IndexPutRow();
// A functional op that does to a copy of self what the in-place op of its name does.
OpRow CopyAndRow();
OpRow EmbeddingBackwardRow();
// Results put together from windows.
OpRow CatRow();
OpRow StackRow();
OpRow ConstantPadRow();
OpRow RollRow();
OpRow FlipRow();
// Images read where each point comes from.
OpRow ReflectionPadRow();
OpRow ReplicationPadRow();
OpRow Im2ColRow();
OpRow Col2ImRow();
OpRow CrossRow();
// Of matrices, where an element adds up no more than a few numbers, on GPUs.
OpRow SmallProductRow();
OpRow UpsampleNearestRow();
OpRow UpsampleNearestBackwardRow();
OpRow UpsampleBilinearRow();
OpRow UpsampleBilinearBackwardRow();

}  // namespace lazuli::codegen
