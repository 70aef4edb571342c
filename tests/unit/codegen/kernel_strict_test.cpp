// Precision "strict": the very bits of ATen's own functions.
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/acos.h>
#include <ATen/ops/asin.h>
#include <ATen/ops/asinh.h>
#include <ATen/ops/atan.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/erf.h>
#include <ATen/ops/erfc.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/log.h>
#include <ATen/ops/log10.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/log2.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/tan.h>
#include <ATen/ops/tanh.h>
#include <gtest/gtest.h>

#include "tests/support/kernel_builder.h"
#include "tests/support/kernel_check.h"

namespace lazuli::testing {
namespace {

using T = c10::ScalarType;
using K = codegen::KOp;

at::Tensor RunOn(const at::Tensor& x, const codegen::KernelIR& kernel) {
  auto compiled = codegen::CompileKernel(kernel, {"avx512", "strict"}, nullptr);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  at::Tensor out = at::empty_like(x);
  void* buffers[] = {x.data_ptr(), out.data_ptr()};
  (*compiled)->Run(buffers, nullptr);
  return out;
}

TEST(KernelStrict, UnaryOperators) {
  struct Case {
    K op;
    at::Tensor (*function)(const at::Tensor&);
  };
  const Case cases[] = {{K::kExp, at::exp},     {K::kExpm1, at::expm1}, {K::kLog, at::log},   {K::kLog1p, at::log1p}, {K::kLog2, at::log2},
                        {K::kLog10, at::log10}, {K::kSin, at::sin},     {K::kCos, at::cos},   {K::kTan, at::tan},     {K::kAsin, at::asin},
                        {K::kAcos, at::acos},   {K::kAtan, at::atan},   {K::kTanh, at::tanh}, {K::kErf, at::erf},     {K::kErfc, at::erfc},
                        {K::kAsinh, at::asinh}, {K::kSqrt, at::sqrt}};
  for (const Case& c : cases) {
    for (T type : {T::Float, T::Double}) {
      const at::Tensor x = at::linspace(0.001, 0.999, 100003, type);
      KernelBuilder b({x.numel()});
      const int in = b.Load(b.Buffer(type));
      b.Store(b.Buffer(type, true), b.Op(c.op, in));
      EXPECT_TRUE(at::equal(RunOn(x, b.kernel()), c.function(x))) << codegen::KOpName(c.op) << " " << c10::toString(type);
    }
  }
}

TEST(KernelStrict, InsideCompositeOperators) {
  const at::Tensor x = at::linspace(-9, 9, 100003, T::Float);
  KernelBuilder b({x.numel()});
  const int in = b.Load(b.Buffer(T::Float)), one = b.Const(1);
  const int exp = b.Op(K::kExp, b.Op(K::kSub, b.Const(0), in));
  b.Store(b.Buffer(T::Float, true), b.Op(K::kDiv, one, b.Op(K::kAdd, one, exp)));
  codegen::KernelIR kernel = b.kernel();
  kernel.insts[exp].imm = 1;
  auto parsed = codegen::ParseKernel(codegen::PrintKernel(kernel));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->insts, kernel.insts);
  EXPECT_TRUE(at::equal(RunOn(x, kernel), at::sigmoid(x)));
}

}  // namespace
}  // namespace lazuli::testing
