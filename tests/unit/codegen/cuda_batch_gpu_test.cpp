// Batches on a GPU against each of their kernels run alone, bit for bit. Skipped where there is none.
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>

#include "codegen/cuda/open_size.h"
#include "codegen/kernel_compiler.h"
#include "runtime/executor.h"
#include "tests/support/gpu.h"
#include "tests/support/kernel_builder.h"

namespace lazuli::testing {
namespace {

using T = c10::ScalarType;
using K = codegen::KOp;
using codegen::CompiledKernel;
using codegen::KernelIR;

class CudaGpuBatch : public ::testing::Test {
 protected:
  void SetUp() override { LAZULI_SKIP_WITHOUT_GPU(); }
};

// A kernel's memory, twice: what runs alone and what runs in a batch begin with the same.
struct Entry {
  std::vector<at::Tensor> alone, batched;  // By buffer.
  std::vector<void*> alone_at, batched_at;
  std::vector<uint64_t> scalars;
  std::vector<int64_t> symbols;
};

constexpr int64_t kGuard = 64;  // Elements beyond the end that nobody may touch.

Entry MakeEntry(const KernelIR& kernel, int64_t size, int64_t misaligned, double scalar) {
  Entry entry;
  for (const codegen::KBuffer& buffer : kernel.buffers) {
    const at::Tensor values = at::randint(0, 2, {misaligned + size + kGuard}, at::TensorOptions().dtype(at::kInt)).to(buffer.dtype);
    entry.alone.push_back(values.to(at::kCUDA));
    entry.batched.push_back(values.to(at::kCUDA));
    const int64_t offset = misaligned * static_cast<int64_t>(c10::elementSize(buffer.dtype));
    entry.alone_at.push_back(static_cast<char*>(entry.alone.back().mutable_data_ptr()) + offset);
    entry.batched_at.push_back(static_cast<char*>(entry.batched.back().mutable_data_ptr()) + offset);
  }
  for (int x = 0; x < kernel.num_scalars; ++x) entry.scalars.push_back(BitsOf(scalar + x));
  entry.symbols = {size};
  return entry;
}

// Each entry once by itself and all in one batch, of the kernel of any size.
void ExpectEqual(const KernelIR& of_one_size, const std::vector<int64_t>& sizes, const std::vector<int64_t>& misaligned) {
  KernelIR kernel = of_one_size;
  std::vector<int64_t> symbols;
  ASSERT_TRUE(codegen::OpenSize(&kernel, &symbols));
  codegen::KernelTarget target{"avx512", "eager"};
  std::string why;
  target.cuda_arch = GpuArch(&why);
  target.batches = true;
  const auto compiled = codegen::CompileKernel(kernel, target, nullptr);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  ASSERT_TRUE((*compiled)->CanBatch());
  std::vector<Entry> entries;
  for (size_t i = 0; i < sizes.size(); ++i) {
    entries.push_back(MakeEntry(kernel, sizes[i], misaligned[i % misaligned.size()], static_cast<double>(i) + 0.25));
  }
  std::vector<runtime::BoundKernel> batch;
  for (const Entry& entry : entries) {
    (*compiled)->Run(entry.alone_at.data(), entry.scalars.data(), entry.symbols.data());
    batch.push_back({static_cast<const CompiledKernel*>(compiled->get()), entry.batched_at.data(), entry.batched_at.size(),
                     entry.scalars.data(), entry.symbols.data()});
  }
  codegen::RunBatch(batch);
  SynchronizeGpu();
  for (size_t i = 0; i < entries.size(); ++i) {
    for (size_t b = 0; b < entries[i].alone.size(); ++b) {
      // NaN may be among the values: their bytes are compared.
      const at::Tensor alone = entries[i].alone[b].view(at::kByte), batched = entries[i].batched[b].view(at::kByte);
      EXPECT_TRUE(at::equal(alone, batched)) << "entry " << i << " of size " << sizes[i] << " buffer " << b;
    }
  }
}

// w = w * x0 + g, and another result of another width.
KernelIR Update(T type) {
  KernelBuilder b({100});
  const int w = b.Buffer(type, true);
  const int g = b.Cast(b.Load(b.Buffer(type)), T::Double), old = b.Cast(b.Load(w), T::Double);
  const int sum = b.Op(K::kAdd, b.Op(K::kMul, old, b.Scalar(T::Double)), g);
  b.Store(b.Buffer(T::Float, true), b.Cast(sum, T::Float));
  b.Store(w, b.Cast(sum, type));
  return b.kernel();
}

TEST_F(CudaGpuBatch, EveryDtypeSizeAndAlignment) {
  for (const T type : {T::Float, T::Double, T::Long, T::Int, T::Short, T::Char, T::Byte, T::Bool, T::BFloat16, T::Half}) {
    ExpectEqual(Update(type), {0, 1, 2, 3, 17, 0, 255, 256, 257, 1024, 1025, 4096, 100003, 1}, {0, 1, 0, 2, 3});
  }
}

TEST_F(CudaGpuBatch, HundredsOfEntriesAreSeveralLaunches) {
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < 500; ++i) sizes.push_back(i * 37 % 3001);
  ExpectEqual(Update(T::Float), sizes, {0, 0, 1});
}

// Sums of up to millions of elements: many blocks for some, one for others.
TEST_F(CudaGpuBatch, SumsOfAllSizes) {
  for (const T type : {T::Float, T::BFloat16, T::Double}) {
    KernelBuilder b({100}, 1);
    const T math = type == T::Double ? T::Double : T::Float;
    const int x = b.Cast(b.Load(b.Buffer(type)), math);
    b.Store(b.KeptBuffer(math, true), b.Op(K::kSqrt, b.Op(K::kReduceSum, b.Op(K::kMul, x, x))));
    std::vector<int64_t> sizes = {0, 2, 3, 17, 255, 4096, 4097, 100003, 3000001, 5};
    for (int64_t i = 0; i < 300; ++i) sizes.push_back(1 + i * 37 % 3001);
    ExpectEqual(b.kernel(), sizes, {0, 1, 0, 2});
  }
}

TEST_F(CudaGpuBatch, OneEntryAndNone) {
  ExpectEqual(Update(T::Float), {1000}, {0});
  ExpectEqual(Update(T::Float), {0}, {0});
  ExpectEqual(Update(T::Float), {0, 0, 5}, {0});
}

TEST_F(CudaGpuBatch, NumbersAndPlaces) {
  KernelBuilder b({100});
  const int number = b.Load(b.Buffer(T::Float, c10::DimVector{0})), place = b.Cast(b.Index(0), T::Float);
  b.Store(b.Buffer(T::Float, true), b.Op(K::kAdd, b.Op(K::kMul, number, place), b.Scalar(T::Float)));
  ExpectEqual(b.kernel(), {1, 2, 3000, 5, 70001}, {0, 1});
}

// The kernel of any size against the one of each size.
TEST_F(CudaGpuBatch, SizesThatAreSymbolsChangeNoBit) {
  for (const int64_t size : {2, 3, 1000, 1024, 300007}) {
    KernelBuilder b({size});
    const int x = b.Load(b.Buffer(T::Float));
    b.Store(b.Buffer(T::Float, true), b.Op(K::kTanh, b.Op(K::kMul, x, b.Scalar(T::Float))));
    KernelIR any = b.kernel();
    std::vector<int64_t> symbols;
    ASSERT_TRUE(codegen::OpenSize(&any, &symbols));
    codegen::KernelTarget target{"avx512", "eager"};
    std::string why;
    target.cuda_arch = GpuArch(&why);
    const Entry entry = MakeEntry(any, size, 0, 0.3);
    codegen::CompileKernel(b.kernel(), target, nullptr).value()->Run(entry.alone_at.data(), entry.scalars.data(), nullptr);
    codegen::CompileKernel(any, target, nullptr).value()->Run(entry.batched_at.data(), entry.scalars.data(), symbols.data());
    SynchronizeGpu();
    EXPECT_TRUE(at::equal(entry.alone[1].view(at::kByte), entry.batched[1].view(at::kByte))) << size;
  }
}

}  // namespace
}  // namespace lazuli::testing
