// Shape functions against what the CPU allocates, over every case of every operator that has one of ours.

#include <gtest/gtest.h>

#include <iostream>
#include <set>

#include "codegen/ir/op_info.h"
#include "tests/support/schema_call.h"
#include "tests/support/schema_ops.h"
#include "tests/support/schema_runner.h"
#include "tests/support/silent_warnings.h"
#include "tracer/shape_functions.h"
#include "tracer/shape_inference.h"

namespace lazuli::testing {
namespace {

constexpr uint64_t kSeeds = 20;

std::string Layout(c10::ScalarType dtype, at::IntArrayRef sizes, at::IntArrayRef strides) {
  std::ostringstream text;
  text << dtype << sizes << " strides " << strides;
  return text.str();
}

// How results that differ from `inferred` lie; "" when they do not.
std::string Difference(const codegen::OutputMetas& inferred, const torch::jit::Stack& results) {
  if (inferred.size() != results.size()) return "another number of results";
  for (size_t i = 0; i < results.size(); ++i) {
    const codegen::OutputMeta& meta = inferred[i];
    const torch::Tensor& eager = results[i].toTensor();
    if (meta.defined != eager.defined()) return "result " + std::to_string(i) + (eager.defined() ? " is defined" : " is not defined");
    if (!eager.defined()) continue;
    const std::string want = Layout(eager.scalar_type(), eager.sizes(), eager.strides());
    const std::string got = Layout(meta.dtype, meta.sizes, meta.strides);
    if (want != got) return "result " + std::to_string(i) + ": " + want + ", inferred " + got;
  }
  return "";
}

// Whether the shape function spoke of the call. It must then be right, unless eager execution refuses the call.
bool Check(const CallPlan& plan, const codegen::OpInfo& info) {
  torch::jit::Stack stack = MakeStack(plan, MakeStorages(plan, 0), 0);
  const auto inferred = tracer::InferShapes(info, stack);
  if (!inferred.has_value()) return false;
  try {
    info.handle.callBoxed(&stack);
  } catch (const std::exception&) {
    return false;  // Of its dtypes or values; SchemaTest knows whether the error may be late.
  }
  if (info.returns_mutated_self) return true;
  EXPECT_EQ(Difference(*inferred, stack), "") << plan.text;
  return true;
}

TEST(SchemaShapesTest, AgreeWithWhatTheCpuAllocates) {
  if (IsFiltered()) GTEST_SKIP() << "of all operators";
  const SilentWarnings silent;
  int calls = 0;
  std::set<std::string> mute;
  for (const std::string& name : tracer::OwnShapeFunctionNames()) {
    const codegen::OpInfo* info = codegen::FindOpInfo(name);
    if (info == nullptr) continue;  // Only its in-place form exists.
    if (!ReasonUntested(info->handle).empty()) continue;
    int spoke = 0;
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      for (const CallPlan& plan : PlanCalls(info->handle, seed)) {
        ++calls;
        spoke += Check(plan, *info) ? 1 : 0;
      }
    }
    if (spoke == 0) mute.insert(name);
  }
  std::cout << calls << " calls of operators with shape functions\n";
  EXPECT_EQ(mute, std::set<std::string>());
}

}  // namespace
}  // namespace lazuli::testing
