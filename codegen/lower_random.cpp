// Random numbers as ATen's CUDA kernels draw them.
#include <torch/library.h>

#include <algorithm>
#include <utility>

#include "codegen/lower_rows.h"

namespace lazuli::codegen {
namespace {

using c10::ScalarType;

// Where dropout keeps the elements of a tensor like `like`, whose content does not count: Bool, true with probability `keep`. As so many
// threads of aten::native_dropout's kernel, which take vectors of so many elements, draw it from that place of their sequences on.
TORCH_LIBRARY_FRAGMENT(lazuli, m) {
  m.def("_dropout_mask(Tensor like, int vector, Scalar threads, Scalar keep, Scalar seed, Scalar offset) -> Tensor");
}
constexpr int kVector = 1, kThreads = 2, kKeep = 3, kSeed = 4, kOffset = 5;

bool AcceptsDropoutMask(const OpRow& /*row*/, const TraceOp& op) {
  return op.device.is_cuda() && op.results[0].dtype == ScalarType::Bool && op.args[kVector].kind == TraceArg::Kind::kConst &&
         op.args[kSeed].kind == TraceArg::Kind::kScalar && op.args[kSeed].scalar_type == ScalarType::Long;
}

Iteration IterateDropoutMask(const OpRow& /*row*/, const Node& node) {
  const TensorRef& mask = node.op.results[0];
  Iteration it;
  it.sizes = mask.sizes;
  it.reduced.assign(it.sizes.size(), false);
  it.results.push_back(BroadcastStrides(mask, it.sizes));
  // ATen's kernel that takes vectors goes through memory, the other one through places.
  c10::DimVector steps = mask.strides;
  if (node.op.args[kVector].value.toInt() == 1) {
    int64_t step = 1;
    for (size_t d = it.sizes.size(); d-- > 0; step *= it.sizes[d]) steps[d] = step;
  }
  for (size_t d = 0; d < steps.size(); ++d) steps[d] = it.sizes[d] == 1 ? 0 : steps[d];
  it.coordinates.push_back(std::move(steps));
  return it;
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

}  // namespace

OpRow DropoutMaskRow() {
  OpRow row;
  row.shape_args = 1;
  row.accepts = &AcceptsDropoutMask;
  row.iterate = &IterateDropoutMask;
  row.emit = &EmitDropoutMask;
  return row;
}

}  // namespace lazuli::codegen
