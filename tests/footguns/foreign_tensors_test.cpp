// Tensors that are more than a strided window over CPU memory: eager, beside recorded ones.

#include <ATen/StorageUtils.h>
#include <ATen/ops/_efficientzerotensor.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/_nested_tensor_from_mask.h>
#include <ATen/ops/_nested_tensor_from_tensor_list.h>
#include <ATen/ops/nested_to_padded_tensor.h>

#include "tests/support/same_as_eager.h"
#include "tests/support/test_device.h"

namespace lazuli::testing {
namespace {

class ForeignTensorsTest : public BackendTest {};

TEST_P(ForeignTensorsTest, Sparse) {
  ExpectSameAsEager([] {
    auto values = OnTestDevice(torch::tensor({1.0f, 2.0f, 3.0f})) * 2;
    auto sparse = torch::sparse_coo_tensor(OnTestDevice(torch::tensor({{0, 1, 2}, {2, 0, 1}})), values, {3, 3});
    auto dense = torch::ones({3, 3}) + 1;
    auto product = torch::mm(sparse, dense);
    values.add_(100);
    return Tensors{sparse.to_dense(), product + 1, (sparse + sparse).to_dense(), dense.to_sparse().to_dense(), sparse.coalesce()};
  });
}

TEST_P(ForeignTensorsTest, SparseGradientsOfAnEmbedding) {
  ExpectSameAsEager([] {
    auto weight = torch::randn({6, 3}).requires_grad_();
    auto rows = torch::embedding(weight, OnTestDevice(torch::tensor({1, 4, 1})), -1, false, /*sparse=*/true);
    (rows * 2).sum().backward();
    return Tensors{rows, weight.grad().to_dense()};
  });
}

TEST_P(ForeignTensorsTest, Quantized) {
  ExpectSameAsEager([] {
    auto x = torch::linspace(-1, 1, 12) * 2;
    auto q = torch::quantize_per_tensor(x, 0.05, 10, torch::kQUInt8);
    return Tensors{q.dequantize() + 1, q.int_repr().to(torch::kInt) * 2, x};
  });
}

TEST_P(ForeignTensorsTest, Complex) {
  ExpectSameAsEager([] {
    auto x = torch::complex(torch::arange(6, torch::kFloat), torch::arange(6, 0, -1, torch::kFloat));
    auto y = x * x + 1;
    auto view = torch::view_as_real(y);
    view.select(1, 0).add_(5);
    auto conj = y.conj();
    auto spectrum = torch::fft_fft(x);
    return Tensors{y,
                   conj,
                   conj * 2,
                   y.abs(),
                   y.angle(),
                   spectrum,
                   torch::real(spectrum) + 1,
                   torch::imag(y).neg(),
                   torch::matmul(y.view({2, 3}), conj.view({3, 2}))};
  });
}

// LibTorch's solver returns a conjugate by its bit, which Meta kernels say, too.
TEST_P(ForeignTensorsTest, SolutionsThatAreConjugates) {
  torch::manual_seed(3);
  const auto matrix = torch::randn({4, 4}, torch::kComplexDouble), sides = torch::randn({2, 4}, torch::kComplexDouble);
  ExpectSameAsEager([&] {
    auto x = sides.clone().requires_grad_();
    const auto solved = at::linalg_solve(matrix * 2, x, /*left=*/false);
    EXPECT_TRUE(solved.is_conj());
    const auto grads = torch::autograd::grad({torch::real(solved).sum()}, {x});
    return Tensors{solved, grads[0], torch::matmul(solved, matrix)};
  });
}

// Products take conjugates as they are, and their gradients are products with conjugates.
TEST_P(ForeignTensorsTest, ConjugatesAreNoReasonToCut) {
  const auto program = [] {
    auto x = torch::complex(torch::randn({2, 3, 4}), torch::randn({2, 3, 4})).requires_grad_();
    auto y = torch::complex(torch::randn({2, 4, 5}), torch::randn({2, 4, 5})).requires_grad_();
    const auto product = torch::bmm(x, y), turned = torch::bmm(product.conj().transpose(1, 2), product);
    const auto grads = torch::autograd::grad({torch::real(turned * turned.conj()).sum()}, {x, y});
    return Tensors{
        product, turned, turned.conj().clone(), grads[0], grads[1], torch::imag(product.conj()) * 2, torch::stack({x.conj(), x})};
  };
  ExpectSameAsEager(program);
  const lazuli::DeviceMode mode(options());
  const auto cuts = [] { return lazuli::stats().cuts; };
  auto before = cuts();
  program();
  lazuli::sync();
  ++before["sync"];
  EXPECT_EQ(cuts(), before);
}

TEST_P(ForeignTensorsTest, BothBits) {
  ExpectSameAsEager([] {
    const auto z = torch::complex(torch::full({8}, 3.0), torch::zeros({8})) * 1;
    const auto both = torch::_neg_view(z.conj());
    return Tensors{both.sqrt(), both.clone(), torch::angle(both), torch::cat({both, z}), torch::dot(z.conj(), z.conj())};
  });
}

TEST_P(ForeignTensorsTest, NegativeBitViews) {
  ExpectSameAsEager([] {
    auto x = torch::complex(torch::ones({3}), torch::arange(3, torch::kFloat)) * 2;
    auto negative = torch::imag(x.conj());
    auto sum = negative + 1;
    x.mul_(2);
    return Tensors{negative.is_neg() ? negative + 0 : negative, sum, negative.clone()};
  });
}

TEST_P(ForeignTensorsTest, ZeroTensorsTimesNumbersHaveNoMemoryToRead) {
  ExpectSameAsEager([] {
    auto x = torch::ones({3}) * 2;
    auto zero = at::_efficientzerotensor({3}, torch::kFloat);
    return Tensors{zero * 2 + x, x + 1};
  });
}

TEST_P(ForeignTensorsTest, Nested) {
  const auto program = [] {
    auto a = torch::randn({2, 4}) + 1;
    auto b = torch::randn({3, 4}) + 1;
    auto nested = at::_nested_tensor_from_tensor_list({a, b}, torch::kFloat);
    auto padded = nested.to_padded_tensor(0);
    return Tensors{padded * 2, (nested + nested).to_padded_tensor(-1), a};
  };
  // Their operators are learnt to read memory one after the other, which moves the ends of traces.
  ExpectSameAsEager(program, options(), /*runs=*/5);
}

TEST_P(ForeignTensorsTest, MetaTensorsStayMeta) {
  const lazuli::DeviceMode mode(options());
  auto meta = torch::empty({3, 4}, torch::kMeta);
  auto result = torch::matmul(meta, torch::empty({4, 5}, torch::kMeta)).relu_();
  EXPECT_TRUE(result.is_meta());
  EXPECT_EQ(result.sizes(), torch::IntArrayRef({3, 5}));
  auto real = torch::ones({3, 4}) + 1;
  EXPECT_TRUE(torch::empty_like(real, torch::kMeta).is_meta());
  EXPECT_TRUE(real.to(torch::kMeta).is_meta());
  EXPECT_EQ(real.sum().item<float>(), 24);
}

TEST_P(ForeignTensorsTest, UndefinedAndOptionalTensors) {
  ExpectSameAsEager([] {
    auto x = torch::randn({2, 3, 4, 4});
    auto w = torch::randn({5, 3, 1, 1});
    auto y = torch::conv2d(x, w);
    auto z = torch::layer_norm(y, {4, 4});
    auto grad = torch::autograd::grad({(x.requires_grad_() * 2).sum()}, {x}, {}, false, false, /*allow_unused=*/true);
    return Tensors{y, z, grad[0], torch::Tensor()};
  });
}

TEST_P(ForeignTensorsTest, ListsAndTuplesOfResults) {
  ExpectSameAsEager([] {
    auto x = torch::randn({4, 6});
    auto [values, indices] = x.sort(1);
    auto [top, where] = x.topk(2, 1);
    auto [mean_var, mean] = torch::var_mean(x, 1);
    auto [q, r] = torch::linalg_qr(x.t());
    auto meshes = torch::meshgrid({torch::arange(2), torch::arange(3)}, "ij");
    return Tensors{values + 1,
                   indices,
                   top * 2,
                   where,
                   mean_var,
                   mean,
                   torch::mm(q, r),
                   meshes[0] + meshes[1],
                   torch::stack({x, x * 2}).sum(0),
                   torch::cat({x, values}, 0)};
  });
}

// Their kernels write the buffer through tensors that they make past the dispatcher, and read it past the dispatcher next.
TEST_P(ForeignTensorsTest, NestedTensorsWrittenInPlace) {
  LAZULI_CPU_ONLY("the CPU's kernels");
  ExpectSameAsEager([] {
    const torch::NoGradGuard no_grad;
    const auto x = torch::linspace(-1, 1, 24).view({2, 3, 4}) * 2;
    const auto mask = torch::tensor({true, true, false, true, true, true}).view({2, 3});
    auto nested = at::_nested_tensor_from_mask(x, mask, /*mask_check=*/false);
    Tensors all;
    for (int i = 0; i < 2; ++i) {
      nested.relu_();
      nested.add_(nested);
      const auto normed = torch::layer_norm(nested, {4}, torch::ones({4}) * 2, torch::zeros({4}));
      all.push_back(at::nested_to_padded_tensor(normed, 0));
      all.push_back(at::nested_to_padded_tensor(nested, 0));
    }
    return all;
  });
}

// What has no content needs none.
TEST_P(ForeignTensorsTest, CopiesToMetaCutNothing) {
  const DeviceMode mode(options());
  const StatsDelta stats;
  for (int i = 0; i < 3; ++i) {
    const auto y = torch::ones({4, 3}).t() * 2 + i;
    const auto meta = y.to(torch::kMeta, torch::kDouble);
    EXPECT_TRUE(meta.is_meta() && meta.sizes() == y.sizes() && meta.strides() == y.strides() && meta.dtype() == torch::kDouble);
    EXPECT_EQ(y.sum().item<float>(), 12 * (2 + i));
  }
  EXPECT_EQ(stats.fallbacks("aten::_to_copy"), 0);
  EXPECT_EQ(stats.uncut("aten::_to_copy"), 3);
}

// A Storage of the program's that a tensor is laid over.
TEST_P(ForeignTensorsTest, StoragesCopiedByLibTorch) {
  LAZULI_CPU_ONLY("the host reads memory");
  const DeviceMode mode(options());
  const auto x = torch::ones({4}) * 2;
  const c10::Storage source = x.storage();
  c10::Storage copy = torch::zeros({4}).storage();
  for (int i = 1; i < 4; ++i) {
    x.add_(1);
    lazuli::sync();
    at::storage_copy(copy, source);
    EXPECT_EQ(static_cast<const float*>(copy.data())[3], 2 + i);
  }
}

LAZULI_FOR_EACH_BACKEND(ForeignTensorsTest);

}  // namespace
}  // namespace lazuli::testing
