#include "tests/support/schema_sizes.h"

#include <algorithm>
#include <set>

#include "tests/support/schema_args.h"
#include "tests/support/schema_call.h"
#include "tests/support/schema_ops.h"

namespace lazuli::testing {
namespace {

// What grows besides tensors.
enum class Grown { kTensors, kSizeArguments };

bool HoldsSizes(const c10::Argument& arg) { return arg.real_type()->str().find("SymInt") != std::string::npos; }

// `value` with each `size` in it grown by `step`: a list of sizes, or one.
c10::IValue GrowValue(const c10::IValue& value, int64_t size, int64_t step) {
  const auto grow = [&](int64_t each) { return each == size ? each + step : each; };
  if (value.isInt()) return grow(value.toInt());
  if (!value.isIntList()) return value;
  std::vector<int64_t> grown;
  for (const int64_t each : value.toIntVector()) grown.push_back(grow(each));
  return grown;
}

CallPlan Grow(const CallPlan& plan, int64_t size, int64_t step, Grown what) {
  CallPlan grown = plan;
  grown.text += " size " + std::to_string(size) + "+" + std::to_string(step);
  for (size_t i = 0; i < grown.args.size(); ++i) {
    for (TensorPlan& tensor : grown.args[i].tensors) {
      if (tensor.fill == Fill::kLiteral || !tensor.defined) continue;
      std::replace(tensor.sizes.begin(), tensor.sizes.end(), size, size + step);
      LayOut(&tensor, Memory::kContiguous);
    }
    if (what != Grown::kSizeArguments || !HoldsSizes(plan.op.schema().arguments()[i])) continue;
    for (c10::IValue& value : grown.args[i].values) value = GrowValue(value, size, step);
  }
  return grown;
}

bool IsAccepted(const CallPlan& plan) { return Call(plan, MakeStorages(plan, 0), 0).error.empty(); }

// Empty where eager execution rejects one of them.
SizeSeries PlanSeries(const CallPlan& plan, int64_t size, int steps, Grown what) {
  SizeSeries series;
  for (int step = 0; step < steps; ++step) {
    series.push_back(Grow(plan, size, step * (step + 1) / 2, what));
    if (!IsAccepted(series.back())) return {};
  }
  return series;
}

// The first size of the first tensor and the last one; those above 1, since sizes of 1 are special.
std::set<int64_t> SizesOfFirstTensor(const CallPlan& plan) {
  for (const ArgPlan& arg : plan.args) {
    for (const TensorPlan& tensor : arg.tensors) {
      if (!tensor.defined || tensor.fill == Fill::kLiteral || tensor.sizes.empty()) continue;
      const std::set<int64_t> sizes = {tensor.sizes.front(), tensor.sizes.back()};
      return {sizes.upper_bound(1), sizes.end()};
    }
  }
  return {};
}

}  // namespace

std::vector<SizeSeries> PlanSizes(const c10::OperatorHandle& op, int steps) {
  std::vector<SizeSeries> all;
  const auto& args = op.schema().arguments();
  if (std::any_of(args.begin(), args.end(), [](const c10::Argument& arg) { return arg.is_out(); })) return all;
  // Kernels of gradients trust the sizes they get; those of the forward operators' gradients are run with sizes that fit.
  if (op.schema().name().find("_backward") != std::string::npos) return all;
  // Names of dimensions are not recorded.
  if (TakesNames(op.schema())) return all;
  for (const CallPlan& plan : PlanCalls(op, /*seed=*/0)) {
    if (plan.point.number != 0) continue;
    for (const int64_t size : SizesOfFirstTensor(plan)) {
      SizeSeries series = PlanSeries(plan, size, steps, Grown::kSizeArguments);
      if (series.empty()) series = PlanSeries(plan, size, steps, Grown::kTensors);
      if (!series.empty()) all.push_back(std::move(series));
    }
  }
  return all;
}

}  // namespace lazuli::testing
