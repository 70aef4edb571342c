// Random numbers as ATen's CUDA kernels draw them.
#include <torch/library.h>

#include <algorithm>
#include <utility>

#include "codegen/lower_expr.h"
#include "codegen/lower_rows.h"
#include "codegen/random_ops.h"

namespace lazuli::codegen {
namespace {

using c10::ScalarType;

// Numbers of a distribution (random_ops.h), for each element of a tensor like `like`, whose content does not count, and which fills a piece
// of memory: as ATen's kernels draw them, from that place of their threads' sequences on. `threads`: of these kernels, where they take
// turns; 0: each element has a thread of its own.
TORCH_LIBRARY_FRAGMENT(lazuli, m) {
  m.def("_random(Tensor like, int distribution, int threads, Scalar seed, Scalar offset, Scalar a, Scalar b) -> Tensor");
}

// Where dropout keeps the elements of a tensor like `like`, whose content does not count: Bool, true with probability `keep`. As so many
// threads of aten::native_dropout's kernel, which take vectors of so many elements, draw it from that place of their sequences on.
TORCH_LIBRARY_FRAGMENT(lazuli, m) {
  m.def("_dropout_mask(Tensor like, int vector, Scalar threads, Scalar keep, Scalar seed, Scalar offset) -> Tensor");
}
constexpr int kVector = 1, kThreads = 2, kKeep = 3, kSeed = 4, kOffset = 5;

// Whether it is drawn on a GPU, from the seed that argument `seed` brings to each run.
bool IsDrawn(const TraceOp& op, int seed) {
  const TraceArg& arg = op.args[static_cast<size_t>(seed)];
  return op.device.is_cuda() && arg.kind == TraceArg::Kind::kScalar && arg.scalar_type == ScalarType::Long;
}

// Every element of `result` once; coordinate 0 numbers them, by `steps` along its dimensions.
Iteration IterateNumbered(const TensorRef& result, c10::DimVector steps) {
  Iteration it;
  it.sizes = result.sizes;
  it.reduced.assign(it.sizes.size(), false);
  it.results.push_back(BroadcastStrides(result, it.sizes));
  for (size_t d = 0; d < steps.size(); ++d) steps[d] = it.sizes[d] == 1 ? 0 : steps[d];
  it.coordinates.push_back(std::move(steps));
  return it;
}

bool AcceptsDropoutMask(const OpRow& /*row*/, const TraceOp& op) {
  return IsDrawn(op, kSeed) && op.results[0].dtype == ScalarType::Bool && op.args[kVector].kind == TraceArg::Kind::kConst;
}

Iteration IterateDropoutMask(const OpRow& /*row*/, const Node& node) {
  const TensorRef& mask = node.op.results[0];
  // ATen's kernel that takes vectors goes through memory, the other one through places.
  c10::DimVector steps = mask.strides;
  if (node.op.args[kVector].value.toInt() == 1) {
    int64_t step = 1;
    for (size_t d = mask.sizes.size(); d-- > 0; step *= mask.sizes[d]) steps[d] = step;
  }
  return IterateNumbered(mask, std::move(steps));
}

// Each of ATen's threads has a sequence of its own, and takes turns at so many neighbouring elements; each turn draws whole fours, of which
// vectors of two leave the rest. Without vectors a four is for this turn and the next three.
void EmitDropoutMask(OpEmitter& e) {
  Emitter& emitter = e.emitter();
  const auto number = [&](int64_t value) { return emitter.ConstInt(ScalarType::Long, value); };
  const int64_t vector = e.Int(kVector);
  const Expr element = e.Coordinate(0), threads = e.Arg(kThreads, ScalarType::Long);
  const Expr piece = vector == 1 ? element : element / number(vector);
  const Expr turn = piece / threads, sequence = piece - turn * threads;
  Expr drawn = e.Arg(kOffset, ScalarType::Long) + (vector == 1 ? turn : turn * number(std::max<int64_t>(vector, 4)));
  if (vector > 1) drawn = drawn + (element - piece * number(vector));
  const int64_t seed = emitter.kernel().insts[e.Arg(kSeed, ScalarType::Long).id].imm;
  const Expr uniform = emitter.Add(KOp::kUniform, ScalarType::Float, {element.id, drawn.id, sequence.id}, UniformImm(seed, vector));
  const ScalarType compared = e.op().args[0].tensors[0].dtype == ScalarType::Double ? ScalarType::Double : ScalarType::Float;
  e.Result(0, emitter.Cast(uniform, compared) < e.Arg(kKeep, compared));
}

struct RandomArgs {
  static constexpr int kDistribution = 1, kThreads = 2, kSeed = 3, kOffset = 4, kA = 5, kB = 6;
};

bool AcceptsRandom(const OpRow& /*row*/, const TraceOp& op) {
  return IsDrawn(op, RandomArgs::kSeed) && c10::multiply_integers(op.results[0].sizes) <= kMostDrawnByKernels;
}

Iteration IterateRandom(const OpRow& /*row*/, const Node& node) { return IterateNumbered(node.op.results[0], node.op.results[0].strides); }

// Each of ATen's threads has a sequence of its own, draws four numbers at a time, and uses them for this turn and the next three.
void EmitRandom(OpEmitter& e) {
  Emitter& emitter = e.emitter();
  const Expr element = e.Coordinate(0);
  Expr number = e.Arg(RandomArgs::kOffset, ScalarType::Long), sequence = element;
  if (const int64_t threads = e.Int(RandomArgs::kThreads); threads > 0) {
    const Expr turn = element / emitter.ConstInt(ScalarType::Long, threads);
    sequence = element - turn * emitter.ConstInt(ScalarType::Long, threads);
    number = number + turn;
  }
  const int64_t seed = emitter.kernel().insts[e.Arg(RandomArgs::kSeed, ScalarType::Long).id].imm;
  const auto draw = [&](KOp op) {
    return emitter.Add(op, ScalarType::Float, {element.id, number.id, sequence.id}, UniformImm(seed, /*vector=*/1));
  };
  const ScalarType type = e.op().results[0].dtype;
  const Expr a = e.Arg(RandomArgs::kA, ScalarType::Float), b = e.Arg(RandomArgs::kB, ScalarType::Float);
  switch (static_cast<Distribution>(e.Int(RandomArgs::kDistribution))) {
    case Distribution::kUniform: {
      // cuRAND's are in (0, 1]; what comes out as the upper bound becomes the lower one.
      const auto rounded = [&](Expr x) { return emitter.Cast(emitter.Cast(x, type), ScalarType::Float); };
      const Expr from = rounded(a), to = rounded(b), value = rounded(Fma(draw(KOp::kUniform), rounded(to - from), from));
      return e.Result(0, Select(value == to, from, value));
    }
    case Distribution::kNormal:
      return e.Result(0, Fma(draw(KOp::kNormal), b, a));
  }
}

}  // namespace

OpRow RandomRow() {
  OpRow row;
  row.shape_args = 1;
  row.accepts = &AcceptsRandom;
  row.iterate = &IterateRandom;
  row.emit = &EmitRandom;
  return row;
}

OpRow DropoutMaskRow() {
  OpRow row;
  row.shape_args = 1;
  row.accepts = &AcceptsDropoutMask;
  row.iterate = &IterateDropoutMask;
  row.emit = &EmitDropoutMask;
  return row;
}

}  // namespace lazuli::codegen
