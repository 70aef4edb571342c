// Operators that are compiled, in a process whose Meta kernels are Python functions.
#include <ATen/core/dispatch/Dispatcher.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "codegen/ir/op_info.h"
#include "codegen/lower.h"
#include "tracer/shape_functions.h"

namespace lazuli::testing {
namespace {

// These come as operators on tensors, or their sizes are arguments.
const std::set<std::string> kDecompose = {
    "aten::add.Scalar",
    "aten::add_.Scalar",
    "aten::sub.Scalar",
    "aten::sub_.Scalar",
    "aten::mul.Scalar",
    "aten::mul_.Scalar",
    "aten::div.Scalar",
    "aten::div_.Scalar",
    "aten::bitwise_and.Scalar",
    "aten::bitwise_and_.Scalar",
    "aten::bitwise_or.Scalar",
    "aten::bitwise_or_.Scalar",
    "aten::bitwise_xor.Scalar",
    "aten::bitwise_xor_.Scalar",
    "aten::fmod.Scalar",
    "aten::fmod_.Scalar",
    "aten::remainder.Scalar",
    "aten::remainder_.Scalar",
    "aten::full",
    "aten::ones",
    "aten::zeros",
    "aten::scalar_tensor",
    "aten::new_full",
    "aten::new_ones",
    "aten::new_zeros",
};

// Python's Meta functions are never called, so that what has no shape function here is observed there for each size, or recorded in pieces.
TEST(ShapeRows, EveryCompiledOperatorHasAShapeFunction) {
  std::vector<std::string> without;
  int compiled = 0;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op.has_value() || name.name.rfind("aten::", 0) != 0) continue;
    const codegen::OpInfo& info = codegen::GetOpInfo(*op);
    if (!info.recordable || codegen::FindRowByName(info.name) == nullptr) continue;
    // What decomposes by itself never comes to the recorder.
    if (op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) continue;
    if (kDecompose.count(info.name) != 0) continue;
    ++compiled;
    // Operators of GPUs alone have one there.
    const bool has =
        tracer::FindShapeFunction(info.name) != nullptr || tracer::FindShapeFunction(info.name, at::Device("cuda:0")) != nullptr;
    if (!has) without.push_back(info.name);
  }
  EXPECT_GT(compiled, 150);
  EXPECT_THAT(without, ::testing::IsEmpty());
}

}  // namespace
}  // namespace lazuli::testing
