// Kernels on a GPU against the interpreter, or against the same kernel compiled for the CPU. Skipped where there is none.
// LAZULI_GPU_BENCH=1 also prints how much memory typical kernels move in a second.
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>

#include "absl/strings/str_format.h"
#include "codegen/cuda/cuda_plan.h"
#include "tests/support/gpu_check.h"
#include "tests/support/kernel_builder.h"
#include "tests/support/random_kernel.h"

namespace lazuli::testing {
namespace {

using T = c10::ScalarType;
using K = codegen::KOp;
using codegen::KernelIR;

class CudaGpu : public ::testing::Test {
 protected:
  void SetUp() override { LAZULI_SKIP_WITHOUT_GPU(); }

  static CheckOptions Options(double ulps = 0, double absolute = 0) {
    CheckOptions options = GpuCheck();
    options.ulps = ulps;
    options.absolute = absolute;
    return options;
  }
};

TEST_F(CudaGpu, SizesTailsAndMisalignedMemory) {
  for (T type : {T::Float, T::Double, T::Int, T::Byte, T::Short}) {
    for (int64_t size : {1, 2, 3, 17, 64, 65, 1000, 1000003}) {
      for (int misaligned : {0, 1, 2, 3}) {
        CheckOptions options = Options();
        options.misaligned = misaligned;
        options.cpu_oracle = true;
        EXPECT_EQ(CheckKernel(AddKernel({size}, {1}, {1}, {1}, type), options), "") << misaligned;
      }
    }
  }
}

TEST_F(CudaGpu, Strides) {
  for (T type : {T::Float, T::Bool, T::Char, T::Long}) {
    EXPECT_EQ(CheckKernel(AddKernel({}, {}, {}, {}, type), Options()), "");
    EXPECT_EQ(CheckKernel(AddKernel({4, 0}, {0, 1}, {0, 1}, {0, 1}, type), Options()), "");
    EXPECT_EQ(CheckKernel(AddKernel({3, 5, 7}, {35, 7, 1}, {1, 3, 15}, {35, 7, 1}, type), Options()), "") << "transposed load";
    EXPECT_EQ(CheckKernel(AddKernel({48, 67}, {67, 1}, {1, 48}, {67, 1}, type), Options()), "") << "tiled, with tails";
    EXPECT_EQ(CheckKernel(AddKernel({3, 40, 128}, {5120, 128, 1}, {5120, 1, 40}, {5120, 128, 1}, type), Options()), "") << "tiled batch";
    EXPECT_EQ(CheckKernel(AddKernel({64, 64}, {1, 64}, {1, 100}, {64, 1}, type), Options()), "") << "two tiled loads";
    EXPECT_EQ(CheckKernel(AddKernel({33, 50}, {50, 1}, {1, 33}, {1, 33}, type), Options()), "") << "transposed store";
    EXPECT_EQ(CheckKernel(AddKernel({9, 41}, {100, 2}, {0, 3}, {41, 1}, type), Options()), "") << "gathered";
    EXPECT_EQ(CheckKernel(AddKernel({9, 41}, {41, 1}, {41, 1}, {123, 3}, type), Options()), "") << "scattered";
    EXPECT_EQ(CheckKernel(AddKernel({70, 3}, {3, 1}, {0, 1}, {3, 1}, type), Options()), "") << "row of three";
    EXPECT_EQ(CheckKernel(AddKernel({70, 3}, {3, 1}, {1, 0}, {3, 1}, type), Options()), "") << "column";
    EXPECT_EQ(CheckKernel(AddKernel({40, 50}, {0, 0}, {0, 1}, {50, 1}, type), Options()), "") << "scalar operand";
    EXPECT_EQ(CheckKernel(AddKernel({2, 3, 4, 5}, {120, 20, 5, 1}, {0, 5, 0, 1}, {60, 20, 5, 1}, type), Options()), "");
    CheckOptions large = Options();
    large.cpu_oracle = true;
    for (const int misaligned : {0, 1}) {
      large.misaligned = misaligned;
      EXPECT_EQ(CheckKernel(AddKernel({1500, 1001}, {1001, 1}, {0, 1}, {1001, 1}, type), large), "");
      EXPECT_EQ(CheckKernel(AddKernel({700, 2001}, {2001, 1}, {1, 0}, {2003, 1}, type), large), "") << "rows that begin anywhere";
      EXPECT_EQ(CheckKernel(AddKernel({1500, 1024}, {1024, 1}, {1, 0}, {1024, 1}, type), large), "");
      EXPECT_EQ(CheckKernel(AddKernel({700, 900}, {900, 1}, {1, 700}, {900, 1}, type), large), "");
      EXPECT_EQ(CheckKernel(AddKernel({5, 512, 640}, {327680, 640, 1}, {327680, 1, 512}, {327680, 640, 1}, type), large), "");
    }
  }
}

// The last loop's sums.
KernelIR SumKernel(const c10::DimVector& sizes, const c10::DimVector& strides) {
  KernelBuilder b(sizes, 1);
  b.Store(b.KeptBuffer(T::Float, true), b.Op(K::kReduceSum, b.Load(b.Buffer(T::Float, strides))));
  return b.kernel();
}

// What mode max-autotune tries.
TEST_F(CudaGpu, SchedulesGiveTheSameValues) {
  for (int choice = 0; choice < codegen::NumCudaChoices(); ++choice) {
    for (const codegen::CudaSchedule& schedule : codegen::CudaVariations({}, choice, /*reorder=*/true)) {
      CheckOptions options = Options();
      options.cpu_oracle = true;
      options.target.schedule = codegen::PrintCudaSchedule(schedule);
      SCOPED_TRACE(options.target.schedule);
      EXPECT_EQ(CheckKernel(AddKernel({1003}, {1}, {1}, {1}, T::Float), options), "");
      EXPECT_EQ(CheckKernel(AddKernel({48, 67}, {67, 1}, {1, 48}, {67, 1}, T::Float), options), "");
      for (const auto& [rows, columns] : std::vector<std::pair<int64_t, int64_t>>{{1, 100000}, {100, 4096}, {5000, 33}, {3, 1}}) {
        // Of numbers around 1, added up in another order.
        options.absolute = static_cast<double>(columns) * 0x1p-20;
        EXPECT_EQ(CheckKernel(SumKernel({rows, columns}, {columns, 1}), options), "") << rows << " rows of " << columns;
        EXPECT_EQ(CheckKernel(SumKernel({rows, columns}, {1, rows}), options), "") << rows << " columns of " << columns;
      }
    }
  }
}

TEST_F(CudaGpu, InPlaceAndSeveralOutputs) {
  for (int64_t rows : {11, 3000}) {
    KernelBuilder b({rows, 292});
    const int inout = b.Buffer(T::Float, true);
    const int x = b.Load(inout), y = b.Load(b.Buffer(T::Float));
    b.Store(b.Buffer(T::Bool, true), b.Op(K::kLt, x, y));
    b.Store(inout, b.Op(K::kSub, y, x));
    b.Store(b.Buffer(T::Double, {1, rows}, true), b.Cast(b.Op(K::kMul, x, y), T::Double));
    EXPECT_EQ(CheckKernel(b.kernel(), Options()), "");
  }
}

// Threads take turns at rows there, and keep what belongs to columns.
TEST_F(CudaGpu, MoreNumbersOfColumnsThanOfPoints) {
  for (const auto& sizes : std::vector<c10::DimVector>{{70001, 40}, {3001, 1000}, {33, 70, 1001}}) {
    for (const bool in_place : {false, true}) {
      KernelBuilder b(sizes);
      c10::DimVector column(sizes.size(), 0);
      column.back() = 1;
      const int inout = b.Buffer(T::BFloat16, true);
      int x = b.Cast(b.Load(in_place ? inout : b.Buffer(T::BFloat16)), T::Float);
      for (int i = 0; i < 4; ++i) x = b.Op(i % 2 == 0 ? K::kSub : K::kMul, x, b.Load(b.Buffer(T::Float, column)));
      x = b.Op(K::kAdd, x, b.Cast(b.Index(static_cast<int>(sizes.size()) - 1), T::Float));
      b.Store(inout, b.Cast(x, T::BFloat16));
      for (const int misaligned : {0, 1, 2}) {
        CheckOptions options = Options();
        options.cpu_oracle = true;
        options.misaligned = misaligned;
        EXPECT_EQ(CheckKernel(b.kernel(), options), "") << sizes << " " << in_place << " " << misaligned;
      }
    }
  }
}

// Of a row and of each element; numbers beyond 32 bits are none, whatever their lower half.
TEST_F(CudaGpu, NumbersThatAreCoordinates) {
  KernelBuilder b({300, 1000});
  for (const c10::DimVector& strides : {c10::DimVector{1, 0}, c10::DimVector{1000, 1}}) {
    const int number = b.Cast(b.Load(b.Buffer(T::Byte, strides)), T::Long);
    const int large = b.Op(K::kAdd, number, b.Const(int64_t{1} << 32, T::Long));
    for (const int dim : {0, 1}) {
      b.Store(b.Buffer(T::Bool, true), b.Op(K::kEq, b.Index(dim), number));
      b.Store(b.Buffer(T::Bool, true), b.Op(K::kNe, number, b.Index(dim)));
      b.Store(b.Buffer(T::Bool, true), b.Op(K::kEq, large, b.Index(dim)));
    }
  }
  EXPECT_EQ(CheckKernel(b.kernel(), Options()), "");
}

// Arithmetic on two operands and a function of one, of every type, on special values.
TEST_F(CudaGpu, OpsOnEveryType) {
  for (T type : {T::Float, T::Double, T::Long, T::Int, T::Short, T::Char, T::Byte, T::Bool}) {
    for (int op = static_cast<int>(K::kAdd); op < static_cast<int>(K::kReduceSum); ++op) {
      const K k = static_cast<K>(op);
      KernelBuilder b({3, 1000});
      const int x = b.Load(b.Buffer(type)), y = b.Load(b.Buffer(type)), z = b.Load(b.Buffer(type)), c = b.Op(K::kLt, x, y);
      const int arity = codegen::KOpArity(k);
      const int value = k == K::kSelect ? b.Op(k, c, x, z) : b.Op(k, x, arity > 1 ? y : -1, arity > 2 ? z : -1);
      b.Store(b.Buffer(b.kernel().insts[value].type, true), value);
      if (!codegen::VerifyKernel(b.kernel()).ok()) continue;
      // Functions are CUDA's, within a few units in the last place.
      const bool function = (k >= K::kExp && k <= K::kLgamma) || k == K::kPow || k == K::kAtan2 || k == K::kHypot;
      CheckOptions options = Options(function ? 8 : 0, function ? (type == T::Float ? 1e-6 : 1e-13) : 0);
      options.specials = !function;
      options.zeros = k != K::kDiv && k != K::kMod;
      options.with_symbols = false;
      // The sign of a zero is free.
      if (k >= K::kMin && k <= K::kFmax) options.absolute = 1e-45;
      EXPECT_EQ(CheckKernel(b.kernel(), options), "") << codegen::KOpName(k);
    }
  }
}

TEST_F(CudaGpu, Casts) {
  constexpr T kStorable[] = {T::Float, T::Double, T::Long, T::Int, T::Short, T::Char, T::Byte, T::Bool, T::BFloat16, T::Half};
  for (T from : kStorable) {
    KernelBuilder b({3000});
    const int x = b.Load(b.Buffer(from));
    for (T to : kStorable) b.Store(b.Buffer(to, true), b.Cast(x, to));
    CheckOptions options = Options();
    options.low = 0;  // What an unsigned type cannot hold is converted as the hardware likes.
    options.high = 100;
    EXPECT_EQ(CheckKernel(b.kernel(), options), "") << c10::toString(from);
  }
}

struct Shape {
  c10::DimVector sizes;
  int num_reduced;
  c10::DimVector strides;
};

const std::vector<Shape>& Shapes() {
  static const auto* const shapes = new std::vector<Shape>{{{7, 45}, 1, {45, 1}},
                                                           {{1, 45}, 1, {45, 1}},
                                                           {{45, 1}, 1, {1, 1}},
                                                           {{33, 5}, 1, {5, 1}},
                                                           {{700, 3}, 1, {3, 1}},
                                                           {{45, 19}, 1, {1, 45}},
                                                           {{130, 77}, 1, {1, 130}},
                                                           {{3, 4, 50}, 1, {200, 50, 1}},
                                                           {{3, 50, 4}, 1, {200, 1, 50}},
                                                           {{5, 3, 40}, 2, {40, 200, 1}},
                                                           {{64, 33}, 2, {33, 1}},
                                                           {{100003}, 1, {1}},
                                                           {{6, 4, 20000}, 2, {20000, 120000, 1}},
                                                           {{70, 9000}, 1, {1, 70}},
                                                           {{200, 7000}, 1, {1, 200}},
                                                           {{9, 30000}, 1, {30000, 1}},
                                                           {{5, 6, 7}, 2, {84, 14, 2}},
                                                           {{4, 0}, 1, {0, 1}},
                                                           {{300, 1024}, 1, {1024, 1}},
                                                           {{3, 4096}, 1, {4096, 1}},
                                                           {{256, 4096}, 1, {1, 256}},
                                                           {{1000, 1000}, 1, {1, 1000}},
                                                           {{2000, 64}, 1, {64, 1}},
                                                           {{8, 1000000}, 1, {1000000, 1}},
                                                           {{300, 1025}, 1, {1025, 1}},
                                                           {{40, 50257}, 1, {50257, 1}},
                                                           {{5, 300001}, 1, {300001, 1}}};
  return *shapes;
}

TEST_F(CudaGpu, EveryReductionOverEveryShape) {
  int number = 0;
  for (const Shape& shape : Shapes()) {
    const bool all_types = number++ % 6 == 0;
    for (K op : {K::kReduceSum, K::kReduceProd, K::kReduceMax, K::kReduceMin, K::kReduceAny, K::kReduceAll}) {
      for (T type : {T::Float, T::Double, T::Long, T::Int, T::Short, T::Char, T::Byte, T::Bool}) {
        KernelBuilder b(shape.sizes, shape.num_reduced);
        b.Store(b.KeptBuffer(type, true), b.Op(op, b.Load(b.Buffer(type, shape.strides))));
        if (!codegen::VerifyKernel(b.kernel()).ok() || (type != T::Float && type != T::Bool && !all_types)) continue;
        CheckOptions options = Options(0, 1e-30);
        options.whole = true;
        options.cpu_oracle = true;
        if (op == K::kReduceProd) options.ulps = 64;
        options.low = op == K::kReduceProd ? 1 : -4;
        options.high = op == K::kReduceProd ? 1 : 4;
        options.with_symbols = type == T::Float;
        EXPECT_EQ(CheckKernel(b.kernel(), options), "") << codegen::KOpName(op);
      }
    }
  }
}

KernelIR Softmax(const Shape& shape, T type) {
  KernelBuilder b(shape.sizes, shape.num_reduced);
  const int x = b.Cast(b.Load(b.Buffer(type, shape.strides)), T::Float);
  const int e = b.Op(K::kExp, b.Op(K::kSub, x, b.Op(K::kReduceMax, x)));
  b.Store(b.Buffer(type, shape.strides, true), b.Cast(b.Op(K::kDiv, e, b.Op(K::kReduceSum, e)), type));
  return b.kernel();
}

// Mean and deviation are stored too; scale and shift are one for each reduced point.
KernelIR LayerNorm(const Shape& shape, T type) {
  KernelBuilder b(shape.sizes, shape.num_reduced);
  double count = 1;
  c10::DimVector affine(shape.strides.size(), 0);
  for (size_t d = shape.sizes.size() - static_cast<size_t>(shape.num_reduced); d < shape.sizes.size(); ++d) {
    count *= static_cast<double>(shape.sizes[d]);
    affine[d] = shape.strides[d];
  }
  const int x = b.Cast(b.Load(b.Buffer(type, shape.strides)), T::Float), n = b.Const(count);
  const int mean = b.Op(K::kDiv, b.Op(K::kReduceSum, x), n), centred = b.Op(K::kSub, x, mean);
  const int variance = b.Op(K::kDiv, b.Op(K::kReduceSum, b.Op(K::kMul, centred, centred)), n);
  const int scale = b.Op(K::kDiv, b.Const(1), b.Op(K::kSqrt, b.Op(K::kAdd, variance, b.Const(1e-5))));
  const int weight = b.Load(b.Buffer(T::Float, affine)), bias = b.Load(b.Buffer(T::Float, affine));
  const int y = b.Op(K::kAdd, b.Op(K::kMul, b.Op(K::kMul, centred, scale), weight), bias);
  b.Store(b.Buffer(type, shape.strides, true), b.Cast(y, type));
  b.Store(b.KeptBuffer(T::Float, true), mean);
  b.Store(b.KeptBuffer(T::Float, true), scale);
  return b.kernel();
}

TEST_F(CudaGpu, SeveralPasses) {
  for (const Shape& shape : Shapes()) {
    if (std::find(shape.sizes.begin(), shape.sizes.end(), 0) != shape.sizes.end()) continue;
    for (T type : {T::Float, T::BFloat16}) {
      CheckOptions options = Options(type == T::Float ? 64 : 1, type == T::Float ? 2e-5 : 4e-2);
      options.cpu_oracle = true;
      EXPECT_EQ(CheckKernel(Softmax(shape, type), options), "") << c10::toString(type);
      EXPECT_EQ(CheckKernel(LayerNorm(shape, type), options), "") << c10::toString(type);
      options.misaligned = 1;
      EXPECT_EQ(CheckKernel(Softmax(shape, type), options), "") << "misaligned";
    }
  }
}

// They stay in shared memory; where they are not aligned, too.
TEST_F(CudaGpu, LongRowsOfSeveralPasses) {
  for (const int64_t columns : {50304, 40008}) {
    const Shape shape{{140, columns}, 1, {columns, 1}};
    ASSERT_GT(codegen::PlanCuda(Softmax(shape, T::BFloat16), false).launch.row_bytes, 0);
    CheckOptions options = Options(1, 4e-2);
    options.cpu_oracle = true;
    EXPECT_EQ(CheckKernel(Softmax(shape, T::BFloat16), options), "") << columns;
    options.misaligned = 1;
    EXPECT_EQ(CheckKernel(Softmax(shape, T::BFloat16), options), "") << columns << ", misaligned";
  }
}

TEST_F(CudaGpu, MinimaAndMaximaKeepNaN) {
  for (const Shape& shape : {Shape{{40, 1000}, 1, {1000, 1}}, Shape{{40, 1000}, 1, {1, 40}}, Shape{{2, 100000}, 1, {100000, 1}}}) {
    for (K op : {K::kReduceMax, K::kReduceMin}) {
      KernelBuilder b(shape.sizes, 1);
      b.Store(b.KeptBuffer(T::Float, true), b.Op(op, b.Load(b.Buffer(T::Float, shape.strides))));
      CheckOptions options = Options(0, 1e-45);
      options.specials = true;
      EXPECT_EQ(CheckKernel(b.kernel(), options), "");
    }
  }
}

TEST_F(CudaGpu, GathersRowsAndElements) {
  for (T type : {T::Float, T::BFloat16, T::Long, T::Bool}) {
    for (int64_t columns : {40, 41}) {
      for (const bool by_row : {true, false}) {
        KernelBuilder b({5000, columns});
        const int index = b.Op(K::kAnd, b.Load(by_row ? b.Buffer(T::Long, {1, 0}) : b.Buffer(T::Long)), b.Const(127, T::Long));
        b.Store(b.Buffer(type, true),
                b.Gather(b.Buffer(type, {0, 1}), b.Op(K::kMul, index, b.Const(static_cast<double>(columns), T::Long))));
        for (const int misaligned : {0, 1}) {
          CheckOptions options = Options();
          options.misaligned = misaligned;
          EXPECT_EQ(CheckKernel(b.kernel(), options), "") << c10::toString(type);
        }
      }
    }
  }
}

// One element more than 2^31: by static sizes, and by a symbol that was small when the kernel was made.
TEST_F(CudaGpu, MoreElementsThan32BitsCount) {
  const int64_t n = (int64_t{1} << 31) + 1;
  const at::Tensor x = at::empty({n}, at::TensorOptions().dtype(at::kChar).device(at::kCUDA)).fill_(3);
  for (const bool symbolic : {false, true}) {
    const runtime::SymbolTable symbols = symbolic ? runtime::SymbolTable::Make({64}, {1}) : runtime::SymbolTable();
    KernelIR kernel = AddKernel({symbolic ? symbols.prime(0) : n}, {1}, {1}, {1}, T::Char);
    kernel.symbols = symbols;
    const at::Tensor sum = at::empty_like(x).fill_(1);
    void* const pointers[] = {x.mutable_data_ptr(), x.mutable_data_ptr(), sum.mutable_data_ptr()};
    const auto compiled = codegen::CompileKernel(kernel, Options().target, nullptr);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    (*compiled)->Run(pointers, nullptr, &n);
    EXPECT_TRUE(sum.eq(6).all().item<bool>()) << symbolic;
  }
}

TEST_F(CudaGpu, Scatters) {
  for (T type : {T::Float, T::Double, T::Long, T::Int, T::Short, T::Char, T::Byte}) {
    for (K op : {K::kScatterAdd, K::kScatter}) {
      KernelBuilder b({500, 40});
      const int index = b.Op(K::kAnd, b.Load(b.Buffer(T::Long, {1, 0})), b.Const(127, T::Long));
      // Stored values are those of the place, so that the last one does not matter.
      const int offset = b.Op(K::kMul, index, b.Const(40, T::Long));
      const int value = op == K::kScatter ? b.Cast(index, type) : b.Load(b.Buffer(type));
      const int condition = b.Op(K::kNe, index, b.Const(5, T::Long));
      b.Scatter(op, b.Buffer(type, {0, 1}, true), value, offset, condition);
      CheckOptions options = Options();
      options.whole = true;
      options.high = options.low = 1;
      EXPECT_EQ(CheckKernel(b.kernel(), options), "") << c10::toString(type);
    }
  }
}

// Failing checks end a GPU's work for good: random kernels keep the others.
KernelIR WithoutChecks(KernelIR kernel) {
  for (codegen::KInst& inst : kernel.insts) {
    if (inst.op == K::kCheck) inst = codegen::KInst{K::kConst, T::Bool, {-1, -1, -1}, 0};
  }
  return kernel;
}

TEST_F(CudaGpu, RandomKernels) {
  const int64_t first = EnvOr("LAZULI_FUZZ_SEED", 1), count = EnvOr("LAZULI_FUZZ_COUNT", 100);
  for (int64_t seed = first; seed < first + count; ++seed) {
    CheckOptions options = Options(0, 1e-30);
    options.seed = static_cast<uint64_t>(seed);
    options.whole = true;
    EXPECT_EQ(CheckKernel(WithoutChecks(RandomKernel(options.seed).Build()), options), "") << "LAZULI_FUZZ_SEED=" << seed;
    if (HasFailure()) return;
  }
}

// In a process of its own, which has lost its GPU then.
TEST_F(CudaGpu, AFailingCheckIsADeviceSideAssert) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto fail = [] {
    KernelBuilder b({1000});
    b.Check(b.Flag(), b.Op(K::kLt, b.Index(0), b.Const(999, T::Long)));
    void* const nowhere[] = {nullptr};
    const at::Tensor context = at::empty({1}, at::TensorOptions().device(at::kCUDA));
    try {
      codegen::CompileKernel(b.kernel(), Options().target, nullptr).value()->Run(nowhere, nullptr, nullptr);
      SynchronizeGpu();
    } catch (const c10::Error& error) {
      std::cerr << error.what() << std::endl;
      std::_Exit(0);
    }
    std::_Exit(1);
  };
  EXPECT_EXIT(fail(), ::testing::ExitedWithCode(0), "device-side assert");
}

double BestUs(const std::function<void()>& run) {
  double best = 1e30;
  for (int round = 0; round < 5; ++round) {
    run();
    SynchronizeGpu();
    const auto begin = std::chrono::steady_clock::now();
    constexpr int kRuns = 20;
    for (int i = 0; i < kRuns; ++i) run();
    SynchronizeGpu();
    best = std::min(best, std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() / kRuns);
  }
  return best;
}

void Report(const char* name, const KernelIR& kernel, const codegen::KernelTarget& target) {
  const auto begin = std::chrono::steady_clock::now();
  const auto compiled = codegen::CompileKernel(kernel, target, nullptr);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  const double compile_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  std::vector<at::Tensor> tensors;
  std::vector<void*> pointers;
  double bytes = 0;
  for (const codegen::KBuffer& buffer : kernel.buffers) {
    int64_t extent = 1, touched = 1;
    for (size_t d = 0; d < kernel.sizes.size(); ++d) {
      extent += (kernel.sizes[d] - 1) * buffer.strides[d];
      if (buffer.strides[d] != 0) touched *= kernel.sizes[d];
    }
    tensors.push_back(at::empty({extent}, at::TensorOptions().dtype(buffer.dtype).device(at::kCUDA)).zero_());
    pointers.push_back(tensors.back().mutable_data_ptr());
    bytes += static_cast<double>(touched) * static_cast<double>(c10::elementSize(buffer.dtype));
  }
  const double us = BestUs([&] { (*compiled)->Run(pointers.data(), nullptr, nullptr); });
  std::cout << absl::StrFormat("%-34s %8.1f us %7.0f GB/s  compiled in %3.0f ms  %s\n", name, us, bytes / us / 1e3, compile_ms,
                               codegen::ExplainKernel(kernel, target).value());
}

TEST_F(CudaGpu, Bandwidth) {
  if (std::getenv("LAZULI_GPU_BENCH") == nullptr) GTEST_SKIP() << "LAZULI_GPU_BENCH=1 measures";
  const codegen::KernelTarget target = Options().target;
  const at::Tensor from = at::empty({int64_t{1} << 26}, at::TensorOptions().device(at::kCUDA)).zero_(), to = at::empty_like(from);
  const double us = BestUs([&] { to.copy_(from); });
  std::cout << absl::StrFormat("%-34s %8.1f us %7.0f GB/s\n", "copy of 256 MiB", us, 8 * 67108864.0 / us / 1e3);
  constexpr int64_t k64M = int64_t{1} << 26;
  Report("add, float", AddKernel({k64M}, {1}, {1}, {1}, T::Float), target);
  Report("add, int8", AddKernel({k64M}, {1}, {1}, {1}, T::Char), target);
  Report("add a row, 8192x8192", AddKernel({8192, 8192}, {8192, 1}, {0, 1}, {8192, 1}, T::Float), target);
  Report("add, 8191x8191", AddKernel({8191, 8191}, {8191, 1}, {0, 1}, {8191, 1}, T::Float), target);
  Report("add a transpose, 8192x8192", AddKernel({8192, 8192}, {8192, 1}, {1, 8192}, {8192, 1}, T::Float), target);
  Report("add, 1000 elements", AddKernel({1000}, {1}, {1}, {1}, T::Float), target);
  for (T type : {T::Float, T::BFloat16}) {
    const std::string suffix = type == T::Float ? ", float" : ", bfloat16";
    Report(("softmax, 16384x4096" + suffix).c_str(), Softmax({{16384, 4096}, 1, {4096, 1}}, type), target);
    Report(("softmax, 1024x65536" + suffix).c_str(), Softmax({{1024, 65536}, 1, {65536, 1}}, type), target);
    Report(("layer norm, 65536x768" + suffix).c_str(), LayerNorm({{65536, 768}, 1, {768, 1}}, type), target);
    Report(("layer norm, 16384x4096" + suffix).c_str(), LayerNorm({{16384, 4096}, 1, {4096, 1}}, type), target);
    Report(("softmax, 1000000x64" + suffix).c_str(), Softmax({{1000000, 64}, 1, {64, 1}}, type), target);
  }
  Report("softmax, 8192x50257, bfloat16", Softmax({{8192, 50257}, 1, {50257, 1}}, T::BFloat16), target);
  Report("softmax, 65536x1001, float", Softmax({{65536, 1001}, 1, {1001, 1}}, T::Float), target);
  KernelBuilder embedding({65536, 768});
  embedding.Store(embedding.Buffer(T::BFloat16, true),
                  embedding.Gather(embedding.Buffer(T::BFloat16, {0, 1}), embedding.Load(embedding.Buffer(T::Long, {1, 0}))));
  Report("embedding, 65536x768, bfloat16", embedding.kernel(), target);
  Report("batch norm, 64x256x56x56", LayerNorm({{256, 64, 3136}, 2, {3136, 802816, 1}}, T::Float), target);
  const auto sum = [](const Shape& shape) {
    KernelBuilder b(shape.sizes, shape.num_reduced);
    b.Store(b.KeptBuffer(T::Float, true), b.Op(K::kReduceSum, b.Load(b.Buffer(T::Float, shape.strides))));
    return b.kernel();
  };
  Report("sum of all, 64M", sum({{k64M}, 1, {1}}), target);
  Report("sum of rows, 8192x8192", sum({{8192, 8192}, 1, {8192, 1}}), target);
  Report("sum of columns, 8192x8192", sum({{8192, 8192}, 1, {1, 8192}}), target);
  Report("sum of columns, 1048576x64", sum({{64, 1048576}, 1, {1, 64}}), target);
  Report("sum of rows, 4194304x16", sum({{4194304, 16}, 1, {16, 1}}), target);
}

}  // namespace
}  // namespace lazuli::testing
