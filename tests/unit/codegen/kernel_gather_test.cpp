// Reads at computed places and checks of them, against the reference.
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/kernel_builder.h"
#include "tests/support/kernel_check.h"

namespace lazuli::testing {
namespace {

using T = c10::ScalarType;
using K = codegen::KOp;
using codegen::KernelIR;
using ::testing::HasSubstr;

class KernelGather : public ::testing::TestWithParam<std::string> {
 protected:
  std::string Run(const KernelIR& kernel, uint64_t seed = 1) const {
    CheckOptions options;
    options.target.isa = GetParam();
    options.seed = seed;
    options.whole = true;
    return CheckKernel(kernel, options);
  }
};

// Random indices from 0 to 63, laid out by `strides`, times `step`.
int Offsets(KernelBuilder* k, c10::DimVector strides, int64_t step) {
  const int index = k->Op(K::kAnd, k->Load(k->Buffer(T::Long, std::move(strides))), k->Const(63, T::Long));
  return k->Op(K::kMul, index, k->Const(static_cast<double>(step), T::Long));
}

KernelIR GatherKernel(const c10::DimVector& sizes, const c10::DimVector& index, const c10::DimVector& source, int64_t step, T type) {
  KernelBuilder k(sizes);
  const int value = k.Gather(k.Buffer(type, source), Offsets(&k, index, step));
  k.Store(k.Buffer(type, true), value);
  return k.kernel();
}

TEST_P(KernelGather, WholeRows) {
  for (T type : {T::Float, T::Double, T::BFloat16, T::Int, T::Bool, T::Char}) {
    for (int64_t row : {1, 7, 16, 33, 64, 200}) {
      EXPECT_EQ(Run(GatherKernel({9, row}, {1, 0}, {0, 1}, 8, type)), "");
    }
  }
  EXPECT_EQ(Run(GatherKernel({2000, 65}, {1, 0}, {0, 1}, 65, T::Float)), "") << "in parallel";
  EXPECT_EQ(Run(GatherKernel({5, 40}, {1, 0}, {0, 3}, 2, T::Float)), "") << "rows with gaps";
}

TEST_P(KernelGather, SingleElements) {
  for (T type : {T::Float, T::Double, T::Half, T::Long, T::Bool, T::Byte, T::Short}) {
    for (int64_t size : {1, 3, 16, 37, 64, 130}) {
      EXPECT_EQ(Run(GatherKernel({size}, {1}, {0}, 3, type)), "") << "anywhere";
      EXPECT_EQ(Run(GatherKernel({6, size}, {size, 1}, {70, 0}, 1, type)), "") << "along the last dimension";
      EXPECT_EQ(Run(GatherKernel({6, size}, {size, 1}, {0, 1}, 130, type)), "") << "across rows";
      EXPECT_EQ(Run(GatherKernel({6, size}, {0, 1}, {70, 0}, 1, type)), "") << "columns";
    }
  }
}

// Writes of whole rows or of single elements at [d0...][r0] of a domain whose last dimension is reduced: `offsets` lays out the indices,
// each of them `step` elements, `kept` the target.
KernelIR ScatterKernel(K op, const c10::DimVector& sizes, const c10::DimVector& offsets, const c10::DimVector& target, int64_t step, T type,
                       bool some) {
  KernelBuilder k(sizes, 1);
  const int offset = Offsets(&k, offsets, step);
  const int condition = k.Op(K::kGe, offset, k.Const(some ? static_cast<double>(10 * step) : 0, T::Long));
  k.Scatter(op, k.Buffer(type, target, true), k.Load(k.Buffer(type)), offset, condition);
  return k.kernel();
}

TEST_P(KernelGather, Scatter) {
  for (K op : {K::kScatter, K::kScatterAdd}) {
    for (T type : {T::Float, T::Double, T::Int, T::Char}) {
      for (bool some : {false, true}) {
        for (int64_t row : {1, 7, 16, 33, 200}) {
          EXPECT_EQ(Run(ScatterKernel(op, {row, 100}, {0, 1}, {1, 0}, row, type, some)), "") << "rows of " << row;
        }
        EXPECT_EQ(Run(ScatterKernel(op, {1, 205}, {0, 1}, {0, 0}, 1, type, some)), "") << "elements";
        EXPECT_EQ(Run(ScatterKernel(op, {6, 37}, {37, 1}, {64, 0}, 1, type, some)), "") << "along rows";
        EXPECT_EQ(Run(ScatterKernel(op, {40, 21}, {21, 1}, {1, 0}, 40, type, some)), "") << "columns, each at its own places";
        EXPECT_EQ(Run(ScatterKernel(op, {40, 21}, {0, 1}, {2, 0}, 80, type, some)), "") << "rows with gaps";
      }
    }
  }
}

// Every thread goes through all indices, and writes what is its own, in order.
TEST_P(KernelGather, ScatterInParallel) {
  const int threads = at::get_num_threads();
  for (const int n : {2, 5, 16}) {
    at::set_num_threads(n);
    for (const bool some : {false, true}) {
      const auto run = [&](const c10::DimVector& sizes, const c10::DimVector& target, int64_t step) {
        return Run(ScatterKernel(K::kScatterAdd, sizes, {0, 1}, target, step, T::Float, some));
      };
      EXPECT_EQ(run({128, 3000}, {1, 0}, 128), "") << "rows, " << n << " threads";
      EXPECT_EQ(run({260, 2500}, {1, 0}, 260), "") << "rows in two pieces, " << n << " threads";
      EXPECT_EQ(run({33, 9000}, {1, 0}, 33), "") << "narrow rows, " << n << " threads";
      EXPECT_EQ(run({1, 40000}, {0, 0}, 1), "") << "elements, " << n << " threads";
    }
  }
  at::set_num_threads(threads);
}

TEST(KernelScatter, IsVerified) {
  const auto message = [](const KernelIR& kernel) { return std::string(codegen::VerifyKernel(kernel).message()); };
  KernelBuilder twice({8, 4}, 1);
  const int target = twice.Buffer(T::Float, {1, 0}, true);
  const int place = twice.Load(twice.Buffer(T::Long)), always = twice.Const(1, T::Bool);
  twice.Scatter(K::kScatterAdd, target, twice.Const(1), place, always);
  EXPECT_EQ(message(twice.kernel()), "");
  twice.Scatter(K::kScatterAdd, target, twice.Const(2), place, always);
  EXPECT_THAT(message(twice.kernel()), HasSubstr("something else touches the buffer"));
  KernelBuilder full({8, 4}, 1);
  full.Scatter(K::kScatter, full.Buffer(T::Float, true), full.Const(1), full.Load(full.Buffer(T::Long)), full.Const(1, T::Bool));
  EXPECT_THAT(message(full.kernel()), HasSubstr("varies over the reduced dimensions"));
  KernelBuilder half({8, 4}, 1);
  const int value = half.Cast(half.Const(1), T::Half);
  half.Scatter(K::kScatterAdd, half.Buffer(T::Half, {1, 0}, true), value, half.Load(half.Buffer(T::Long)), half.Const(1, T::Bool));
  EXPECT_THAT(message(half.kernel()), HasSubstr("no addition of its type"));
}

TEST_P(KernelGather, Backward) {
  for (T type : {T::Float, T::Double, T::BFloat16, T::Char}) {
    for (int64_t size : {1, 5, 16, 64, 131}) {
      KernelBuilder k({3, size});
      // What ends where the reversed row begins.
      const int at = k.Op(K::kAdd, k.Op(K::kMul, k.Index(0), k.Const(0, T::Long)), k.Const(static_cast<double>(size - 1), T::Long));
      k.Store(k.Buffer(type, true), k.Gather(k.Buffer(type, {size, -1}), at));
      EXPECT_EQ(Run(k.kernel()), "");
    }
  }
}

TEST_P(KernelGather, BesideTransposedLoads) {
  for (const c10::DimVector& index : {c10::DimVector{1, 0}, c10::DimVector{0, 1}, c10::DimVector{67, 1}}) {
    KernelBuilder k({48, 67});
    const int gathered = k.Gather(k.Buffer(T::Float, {0, 1}), Offsets(&k, index, 5));
    k.Store(k.Buffer(T::Float, true), k.Op(K::kAdd, gathered, k.Load(k.Buffer(T::Float, {1, 48}))));
    EXPECT_EQ(Run(k.kernel()), "");
  }
}

TEST_P(KernelGather, Reduced) {
  for (const c10::DimVector& sizes : {c10::DimVector{5, 40}, c10::DimVector{3, 1000}, c10::DimVector{1, 200000}, c10::DimVector{300, 7}}) {
    KernelBuilder k(sizes, 1);
    const int row = k.Gather(k.Buffer(T::Float, {0, 1}), Offsets(&k, {1, 0}, 9));
    const int sum = k.Op(K::kReduceSum, row);
    const int element = k.Gather(k.Buffer(T::Float, {1, 0}), Offsets(&k, {0, 1}, 9));
    k.Store(k.KeptBuffer(T::Float, true), k.Op(K::kReduceMax, k.Op(K::kAdd, element, sum)));
    k.Store(k.Buffer(T::Float, true), k.Op(K::kSub, row, sum));
    EXPECT_EQ(Run(k.kernel()), "");
  }
}

// One index of so many is bad, or none is.
TEST_P(KernelGather, Checks) {
  for (const bool reduced : {false, true}) {
    for (const c10::DimVector& index : {c10::DimVector{1, 0}, c10::DimVector{0, 1}, c10::DimVector{37, 1}, c10::DimVector{0, 0}}) {
      for (const double limit : {64.0, 63.0, 60.0, 0.0}) {
        KernelBuilder k({40, 37}, reduced ? 1 : 0);
        const int offset = Offsets(&k, index, 1);
        k.Check(k.Flag(), k.Op(K::kLt, offset, k.Const(limit, T::Long)));
        const int value = k.Gather(k.Buffer(T::Float, {0, 0}), offset);
        k.Store(k.Buffer(T::Float, true), reduced ? k.Op(K::kSub, value, k.Op(K::kReduceSum, value)) : value);
        for (uint64_t seed = 1; seed < 4; ++seed) EXPECT_EQ(Run(k.kernel(), seed), "");
      }
    }
  }
}

TEST_P(KernelGather, CheckOfAReduction) {
  for (const double limit : {-1.0, 1e6}) {
    for (const c10::DimVector& sizes : {c10::DimVector{6, 50}, c10::DimVector{1, 300000}}) {
      KernelBuilder k(sizes, 1);
      const int largest = k.Op(K::kReduceMax, Offsets(&k, {50, 1}, 1));
      k.Check(k.Flag(), k.Op(K::kLt, largest, k.Const(limit, T::Long)));
      EXPECT_EQ(Run(k.kernel()), "");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, KernelGather, ::testing::ValuesIn(AllIsas()), [](const auto& info) { return info.param; });

std::string ErrorOf(const KernelIR& kernel) { return std::string(codegen::VerifyKernel(kernel).message()); }

TEST(KernelGatherVerify, Mistakes) {
  {
    KernelBuilder k({4});
    k.Gather(k.Buffer(T::Float), k.Const(1));
    EXPECT_THAT(ErrorOf(k.kernel()), HasSubstr("the offset is not Long"));
  }
  {
    KernelBuilder k({4});
    const int stored = k.Buffer(T::Float, true);
    k.Store(stored, k.Const(1));
    k.Gather(stored, k.Const(1, T::Long));
    EXPECT_THAT(ErrorOf(k.kernel()), HasSubstr("loaded after it is stored"));
  }
  {
    KernelBuilder k({4});
    k.Check(k.Buffer(T::Bool, true), k.Const(1, T::Bool));
    EXPECT_THAT(ErrorOf(k.kernel()), HasSubstr("not one place to write to"));
  }
  {
    KernelBuilder k({4});
    const int check = k.Check(k.Flag(), k.Const(1, T::Bool));
    k.Store(k.Buffer(T::Bool, true), check);
    EXPECT_THAT(ErrorOf(k.kernel()), HasSubstr("operand 0 has no value"));
  }
}

}  // namespace
}  // namespace lazuli::testing
