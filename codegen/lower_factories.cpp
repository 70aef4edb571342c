// What is made of numbers alone, and not the same everywhere: arange and eye.
#include <cstdlib>
#include <utility>

#include "codegen/lower_index.h"

namespace lazuli::codegen {
namespace {

using c10::ScalarType;

bool IsInt(const TraceOp& op, int arg) { return op.args[arg].kind == TraceArg::Kind::kConst && op.args[arg].value.isInt(); }

// Up to which every whole number is one of `type`, so that it does not matter how ATen adds up: its vectors start from rounded numbers.
int64_t LargestExact(ScalarType type) {
  return type == ScalarType::Double ? int64_t{1} << 52 : type == ScalarType::Float ? int64_t{1} << 24 : 0;
}

// arange(end), (start, end) or (start, end, step): so many numbers.
template <int kNumNumbers>
bool AcceptsRange(const OpRow&, const TraceOp& op) {
  const ScalarType type = op.results[0].dtype;
  if (type == ScalarType::Bool || TypeBit(type) == 0) return false;
  for (int i = 0; i < kNumNumbers; ++i) {
    if (!IsInt(op, i)) return false;
    const int64_t number = op.args[i].value.toInt();
    if (!c10::isIntegralType(type, /*includeBool=*/false) && std::abs(number) > LargestExact(type)) return false;
  }
  return true;
}

Iteration IterateRange(const OpRow&, const Node& node) {
  Iteration it = Whole(node.op.results[0]);
  it.coordinates = {Along(it.sizes, 0)};
  return it;
}

template <int kNumNumbers>
void EmitRange(OpEmitter& e) {
  Expr value = e.Coordinate(0);
  if (kNumNumbers == 3) value = value * e.emitter().Size(ScalarType::Long, e.Int(2));
  if (kNumNumbers > 1) value = value + e.emitter().Size(ScalarType::Long, e.Int(0));
  e.Result(0, value);
}

bool AcceptsEye(const OpRow&, const TraceOp& op) { return TypeBit(op.results[0].dtype) != 0; }

Iteration IterateEye(const OpRow&, const Node& node) {
  Iteration it = Whole(node.op.results[0]);
  it.coordinates = {Along(it.sizes, 0), Along(it.sizes, 1)};
  return it;
}

}  // namespace

OpRow RangeRow(int num_numbers) {
  constexpr std::pair<decltype(OpRow::accepts), decltype(OpRow::emit)> kForms[] = {
      {&AcceptsRange<1>, &EmitRange<1>}, {&AcceptsRange<2>, &EmitRange<2>}, {&AcceptsRange<3>, &EmitRange<3>}};
  const auto& [accepts, emit] = kForms[num_numbers - 1];
  OpRow row = PointwiseRow(TypeRule::kPromote, 0, kAll, emit);
  row.accepts = accepts;
  row.known_args_of_floats = (uint64_t{1} << num_numbers) - 1;
  row.iterate = &IterateRange;
  return row;
}

OpRow EyeRow() {
  OpRow row = PointwiseRow(TypeRule::kPromote, 0, kAll, [](OpEmitter& e) { e.Result(0, e.Coordinate(0) == e.Coordinate(1)); });
  row.accepts = &AcceptsEye;
  row.iterate = &IterateEye;
  return row;
}

}  // namespace lazuli::codegen
