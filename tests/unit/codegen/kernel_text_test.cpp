#include <gtest/gtest.h>

#include "tests/support/kernel_builder.h"

namespace lazuli::testing {
namespace {

using T = c10::ScalarType;
using K = codegen::KOp;
using codegen::KernelIR;

bool Equal(const KernelIR& a, const KernelIR& b) {
  return a.sizes == b.sizes && a.num_reduced == b.num_reduced && a.buffers == b.buffers && a.num_scalars == b.num_scalars &&
         a.insts == b.insts;
}

KernelIR Sample() {
  KernelBuilder b({4, 6}, 1);
  const int x = b.Load(b.Buffer(T::BFloat16, {6, 1}));
  const int wide = b.Cast(x, T::Float);
  const int c = b.Const(-0.1), s = b.Scalar(T::Float);
  const int y = b.Op(K::kMul, wide, b.Op(K::kAdd, c, s));
  const int i = b.Cast(b.Op(K::kSub, b.Index(1), b.Const(-5, T::Long)), T::Float);
  const int sum = b.Op(K::kReduceSum, b.Op(K::kSelect, b.Op(K::kLt, y, i), y, i));
  b.Check(b.Flag(), b.Op(K::kLt, y, i));
  const int gathered = b.Gather(b.Buffer(T::Float, {0, 3}), b.Load(b.Buffer(T::Long, {1, 0})));
  b.Store(b.Buffer(T::Float, true), gathered);
  b.Store(b.KeptBuffer(T::Float, true), sum);
  b.Store(b.Buffer(T::Float, true), b.Op(K::kSub, y, sum));
  return b.kernel();
}

TEST(KernelText, RoundTrip) {
  const KernelIR kernel = Sample();
  ASSERT_TRUE(codegen::VerifyKernel(kernel).ok());
  const std::string text = codegen::PrintKernel(kernel);
  auto parsed = codegen::ParseKernel(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE(Equal(kernel, *parsed)) << text;
  EXPECT_EQ(codegen::PrintKernel(*parsed), text);
}

TEST(KernelText, KeepsHowFarScattersReach) {
  KernelBuilder b({40}, 1);
  const int target = b.Target(T::Float, {0}, 513);
  b.Scatter(K::kScatterAdd, target, b.Load(b.Buffer(T::Float)), b.Load(b.Buffer(T::Long)), b.Const(1, T::Bool));
  KernelIR kernel = b.kernel();
  ASSERT_TRUE(codegen::VerifyKernel(kernel).ok());
  const std::string text = codegen::PrintKernel(kernel);
  EXPECT_NE(text.find("Float [0] written within 513\n"), std::string::npos) << text;
  auto parsed = codegen::ParseKernel(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE(Equal(kernel, *parsed));
  kernel.buffers[static_cast<size_t>(target)].within = 0;
  EXPECT_FALSE(Equal(kernel, *parsed));
}

TEST(KernelText, EveryOpHasItsName) {
  KernelIR kernel;
  for (int op = 0; op < codegen::kNumKOps; ++op) {
    codegen::KInst inst;
    inst.op = static_cast<K>(op);
    for (int k = 0; k < codegen::KOpArity(inst.op); ++k) inst.in[k] = 0;
    kernel.insts.push_back(inst);
  }
  auto parsed = codegen::ParseKernel(codegen::PrintKernel(kernel));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE(Equal(kernel, *parsed));
}

TEST(KernelText, Errors) {
  for (const char* text :
       {"", "kernel", "kernel [4", "kernel [4]\nb1: Float [1]", "kernel [4]\nb0: Floot [1]", "kernel [4]\n%0 = lode.Float b0",
        "kernel [4]\n%1 = const.Long 3", "kernel [4]\n%0 = const.Long 3 4", "kernel [4]\n%0 = add.Float %0"}) {
    EXPECT_FALSE(codegen::ParseKernel(text).ok()) << text;
  }
}

void ExpectRejected(const KernelIR& kernel, const std::string& message) {
  const absl::Status status = codegen::VerifyKernel(kernel);
  EXPECT_FALSE(status.ok());
  EXPECT_NE(std::string(status.message()).find(message), std::string::npos) << status;
}

TEST(KernelVerify, OperandsAndTypes) {
  KernelIR kernel = Sample();
  ASSERT_EQ(kernel.insts[4].op, K::kAdd);
  kernel.insts[4].in[0] = 9;
  ExpectRejected(kernel, "%4 (add): operand 0 is not an earlier instruction");
  kernel = Sample();
  kernel.insts[4].in[0] = 0;
  ExpectRejected(kernel, "%4 (add): operands differ in type");
  kernel = Sample();
  kernel.insts[4].type = T::Double;
  ExpectRejected(kernel, "%4 (add): wrong result type");
  kernel = Sample();
  ASSERT_EQ(kernel.insts[3].op, K::kScalar);
  kernel.insts[3].imm = 1;
  ExpectRejected(kernel, "%3 (scalar): no such scalar");
  kernel = Sample();
  kernel.buffers[1].strides.pop_back();
  ExpectRejected(kernel, "kernel buffer 1: wrong number of strides");
}

TEST(KernelVerify, NoArithmeticOnReducedPrecision) {
  KernelBuilder b({8});
  const int x = b.Load(b.Buffer(T::Half));
  b.Store(b.Buffer(T::Half, true), b.Op(K::kAdd, x, x));
  ExpectRejected(b.kernel(), "no arithmetic on Half");
}

TEST(KernelVerify, Stores) {
  KernelBuilder unwritten({8});
  unwritten.Store(unwritten.Buffer(T::Float), unwritten.Const(1));
  ExpectRejected(unwritten.kernel(), "not marked written");

  KernelBuilder level({8, 8}, 1);
  const int x = level.Load(level.Buffer(T::Float));
  level.Store(level.KeptBuffer(T::Float, true), x);
  ExpectRejected(level.kernel(), "full-level value is stored to a kept-level buffer");

  KernelBuilder overlap({8, 8});
  overlap.Store(overlap.Buffer(T::Float, {0, 1}, true), overlap.Const(1));
  ExpectRejected(overlap.kernel(), "stride 0 in dimension 0");

  KernelBuilder order({8});
  const int buffer = order.Buffer(T::Float, true);
  order.Store(buffer, order.Const(1));
  order.Load(buffer);
  ExpectRejected(order.kernel(), "loaded after it is stored");
}

TEST(KernelVerify, ReductionNeedsReducedDimensions) {
  KernelBuilder b({8});
  b.Op(K::kReduceSum, b.Load(b.Buffer(T::Float)));
  ExpectRejected(b.kernel(), "without reduced dimensions");
}

}  // namespace
}  // namespace lazuli::testing
