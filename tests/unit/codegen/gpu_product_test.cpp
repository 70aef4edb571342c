// What a product is to cuBLASLt, by its own rules: column-major memory, op(A) op(B), a number for each row.
#include "codegen/products/gpu_product.h"

#include <ATen/Context.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace lazuli::codegen {
namespace {

// What the epilogue does to an element, whose place in the further matrix is `aux`.
double After(Epilogue epilogue, double sum, double* aux) {
  if (epilogue == Epilogue::kNone) return sum;
  if (epilogue == Epilogue::kRelu) return std::max(sum, 0.0);
  if (epilogue == Epilogue::kGeluAux) *aux = sum;
  return at::gelu(at::full({}, sum, at::kDouble), "tanh").item<double>();
}

// What cublasLtMatmul is documented to do, in double.
void Compute(const GpuProduct& product) {
  const GpuProductShape& s = product.shape;
  const auto* a = static_cast<const double*>(product.a);
  const auto* b = static_cast<const double*>(product.b);
  const auto* bias = static_cast<const double*>(product.bias);
  auto* d = static_cast<double*>(product.d);
  for (int64_t p = 0; p < s.batch; ++p) {
    for (int64_t i = 0; i < s.m; ++i) {
      for (int64_t j = 0; j < s.n; ++j) {
        double sum = s.has_bias ? bias[i] : 0;
        for (int64_t l = 0; l < s.k; ++l) {
          const double x = a[p * s.stride_a + (s.transposed_a ? l + i * s.lda : i + l * s.lda)];
          const double y = b[p * s.stride_b + (s.transposed_b ? j + l * s.ldb : l + j * s.ldb)];
          sum += x * y;
        }
        d[p * s.stride_d + i + j * s.ldd] = After(s.epilogue, sum, static_cast<double*>(product.aux) + i + j * s.ld_aux);
      }
    }
  }
}

// A matrix, or a batch of them, stored in one of several ways.
enum class Way { kRows, kColumns, kWideRows, kWideColumns };
constexpr Way kWays[] = {Way::kRows, Way::kColumns, Way::kWideRows, Way::kWideColumns};

at::Tensor Make(int64_t batch, int64_t rows, int64_t cols, Way way) {
  const int64_t gap = way == Way::kWideRows || way == Way::kWideColumns ? 3 : 0;
  const bool by_rows = way == Way::kRows || way == Way::kWideRows;
  std::vector<int64_t> sizes{by_rows ? rows : cols, (by_rows ? cols : rows) + gap};
  if (batch > 0) sizes.insert(sizes.begin(), batch);
  const at::Tensor all = at::randn(sizes, at::kDouble).narrow(-1, 0, by_rows ? cols : rows);
  return by_rows ? all : all.transpose(-1, -2);
}

TEST(GpuProductTest, IsTheProductForEveryWayToStoreIt) {
  int described = 0;
  for (const int64_t batch : {0, 3}) {
    for (const auto& [m, n, k] :
         std::vector<std::tuple<int64_t, int64_t, int64_t>>{{5, 7, 6}, {1, 7, 6}, {5, 1, 6}, {5, 7, 1}, {1, 1, 4}}) {
      for (const Way of_x : kWays) {
        for (const Way of_y : kWays) {
          for (const Way of_out : kWays) {
            for (const bool with_bias : {false, true}) {
              const at::Tensor x = Make(batch, m, k, of_x), y = Make(batch, k, n, of_y), out = Make(batch, m, n, of_out);
              const at::Tensor bias = with_bias ? at::randn({n}, at::kDouble) : at::Tensor();
              const auto product = DescribeGpuProduct(x, y, bias, out);
              if (!product.has_value()) {
                // A number for each column of D.
                EXPECT_TRUE(with_bias && out.stride(-1) != 1 && n > 1) << x.strides() << y.strides() << out.strides();
                continue;
              }
              ++described;
              Compute(*product);
              const at::Tensor expected = with_bias ? at::matmul(x, y) + bias : at::matmul(x, y);
              EXPECT_TRUE(out.allclose(expected)) << x.strides() << y.strides() << out.strides() << " " << product->shape.Text();
            }
          }
        }
      }
    }
  }
  EXPECT_GT(described, 900);
}

TEST(GpuProductTest, EpiloguesWorkOnWhatIsStoredAsTheResult) {
  int described = 0;
  for (const Way of_out : kWays) {
    for (const Way of_aux : kWays) {
      for (const Epilogue epilogue : {Epilogue::kRelu, Epilogue::kGelu, Epilogue::kGeluAux}) {
        const at::Tensor x = Make(0, 5, 6, Way::kRows), y = Make(0, 6, 7, Way::kColumns), out = Make(0, 5, 7, of_out);
        const at::Tensor aux = HasAux(epilogue) ? Make(0, 5, 7, of_aux) : at::Tensor();
        const at::Tensor product = at::matmul(x, y);
        const at::Tensor expected = epilogue == Epilogue::kRelu ? at::relu(product) : at::gelu(product, "tanh");
        const auto given = DescribeGpuProduct(x, y, {}, out, epilogue, aux);
        if (!given.has_value()) {
          EXPECT_TRUE(HasAux(epilogue) && out.stride(1) != aux.stride(1)) << out.strides() << aux.strides();
          continue;
        }
        ++described;
        Compute(*given);
        EXPECT_TRUE(out.allclose(expected)) << out.strides() << given->shape.Text();
        EXPECT_TRUE(epilogue != Epilogue::kGeluAux || aux.allclose(product));
        EXPECT_FALSE(given->shape == DescribeGpuProduct(x, y, {}, out)->shape);
        EXPECT_NE(given->shape.Text(), DescribeGpuProduct(x, y, {}, out)->shape.Text());
      }
    }
  }
  EXPECT_EQ(described, 2 * 16 + 8);
  const at::Tensor batch = at::randn({2, 4, 4}, at::kDouble);
  EXPECT_FALSE(DescribeGpuProduct(batch, batch, {}, at::empty_like(batch), Epilogue::kRelu).has_value());
  const at::Tensor x = batch[0], out = at::empty_like(x);
  EXPECT_FALSE(DescribeGpuProduct(x, x, {}, out, Epilogue::kGeluAux).has_value()) << "no further matrix";
  EXPECT_FALSE(DescribeGpuProduct(x, x, {}, out, Epilogue::kGeluAux, x.to(at::kFloat)).has_value());
  EXPECT_FALSE(DescribeGpuProduct(x, x, {}, out, Epilogue::kGeluAux, batch[0].narrow(0, 0, 3)).has_value());
}

TEST(GpuProductTest, WhatCublasLtDoesNotTake) {
  const at::Tensor x = at::randn({4, 6}), y = at::randn({6, 8}), out = at::empty({4, 8});
  EXPECT_TRUE(DescribeGpuProduct(x, y, {}, out).has_value());
  EXPECT_FALSE(DescribeGpuProduct(x.to(at::kHalf), y, {}, out).has_value()) << "two dtypes";
  EXPECT_FALSE(DescribeGpuProduct(x.to(at::kLong), y.to(at::kLong), {}, out.to(at::kLong)).has_value());
  EXPECT_FALSE(DescribeGpuProduct(at::randn({8, 12}).slice(0, 0, 8, 2).slice(1, 0, 12, 2), y, {}, out).has_value()) << "gaps in rows";
  EXPECT_FALSE(DescribeGpuProduct(at::randn({1, 6}).expand({4, 6}), y, {}, out).has_value()) << "one row for all";
  EXPECT_FALSE(DescribeGpuProduct(x.slice(1, 0, 0), y.slice(0, 0, 0), {}, out).has_value()) << "sums of nothing";
  EXPECT_FALSE(DescribeGpuProduct(x, y.slice(1, 0, 0), {}, out.slice(1, 0, 0)).has_value());
  EXPECT_TRUE(DescribeGpuProduct(x, y, at::randn({8}), out).has_value());
  EXPECT_TRUE(DescribeGpuProduct(x, y, at::randn({1, 8}), out).has_value());
  EXPECT_FALSE(DescribeGpuProduct(x, y, at::randn({4, 8}), out).has_value()) << "a number for each element";
  EXPECT_FALSE(DescribeGpuProduct(x, y, at::randn({4, 1}), out).has_value()) << "a number for each row";
  EXPECT_FALSE(DescribeGpuProduct(x, y, at::randn({16}).slice(0, 0, 16, 2), out).has_value()) << "a bias with gaps";
  EXPECT_FALSE(DescribeGpuProduct(x, y, at::zeros({8}, at::kDouble), out).has_value());
}

// A square matrix whose address is a multiple of so many bytes, and of no higher power of two.
at::Tensor Aligned(int64_t size, int64_t bytes) {
  const at::Tensor memory = at::randn({size * size + 256});
  int64_t first = 0;
  const auto at = [&] { return reinterpret_cast<uintptr_t>(memory.const_data_ptr<float>() + first) % (2 * static_cast<uintptr_t>(bytes)); };
  while (at() != static_cast<uintptr_t>(bytes)) ++first;
  return memory.narrow(0, first, size * size).view({size, size});
}

// An algorithm serves what is equal in all that it may count on.
TEST(GpuProductTest, ShapesDifferByWhatAlgorithmsCountOn) {
  const at::Tensor x = Aligned(64, 256), y = Aligned(64, 256), out = Aligned(64, 256);
  const auto shape = [&](const at::Tensor& a) { return DescribeGpuProduct(a, y, {}, out)->shape; };
  EXPECT_TRUE(shape(x) == shape(Aligned(64, 256)));
  const at::Tensor moved = Aligned(64, 4);
  EXPECT_FALSE(shape(x) == shape(moved)) << shape(moved).Text();
  EXPECT_NE(shape(x).Text(), shape(moved).Text());
  EXPECT_FALSE(shape(x) == shape(x.t()));
  at::globalContext().setFloat32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL, at::Float32Precision::TF32);
  const GpuProductShape rounded = shape(x);
  at::globalContext().setFloat32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL, at::Float32Precision::NONE);
  EXPECT_TRUE(rounded.tf32);
  EXPECT_FALSE(shape(x).tf32);
}

}  // namespace
}  // namespace lazuli::codegen
