// Gradients of what is read slice by slice: sums of tensors that are zero elsewhere, which are put together instead.

#include <torch/torch.h>

#include "tests/support/same_as_eager.h"

namespace lazuli::testing {
namespace {

class SlicesTest : public BackendTest {};

// Numbers between slices may not be mistaken for sizes that change: 532 - 11 is the first that stands for one.
TEST_P(SlicesTest, FarFromEachOtherInTensorsOfAnySize) {
  ExpectSameAsEager([] {
    Tensors all;
    for (const int64_t rows : {4, 7, 9, 12, 5}) {
      const auto x = torch::linspace(-1, 1, rows * 600).view({rows, 600}).requires_grad_();
      const auto y = x * 2;
      all.push_back(torch::autograd::grad({(y.select(1, 10) * 3).sum() + (y.select(1, 532) * 5).sum()}, {x})[0]);
      all.push_back(torch::autograd::grad({(x.select(1, 599) * 3).sum() + (x.slice(1, 20, 78) * 2).sum()}, {x})[0]);
    }
    return all;
  });
}

TEST_P(SlicesTest, EmptyOnesAndOthersOfTheSameBegin) {
  ExpectSameAsEager([] {
    const auto x = torch::linspace(-1, 1, 40).view({4, 10}).requires_grad_();
    const auto loss = (x.slice(1, 3, 3) * 2).sum() + (x.slice(1, 3, 5) * 2).sum() + (x.select(1, 7) * 3).sum() + x.slice(1, 10, 10).sum();
    return torch::autograd::grad({loss}, {x});
  });
}

// The same step twice, on top of what all of it gives, in numbers whose sum depends on the order.
TEST_P(SlicesTest, AddUpInEagersOrder) {
  ExpectSameAsEager([] {
    const auto x = torch::linspace(-1, 1, 40).view({4, 10}).requires_grad_();
    const auto y = x * 1.3f;
    auto loss = (y * y).sum();
    for (int64_t t = 0; t < 10; ++t) loss = loss + (y.select(1, t) * (0.1 * t + 1e-3)).sum() * 1e3 + y.select(1, t).sin().sum();
    return torch::autograd::grad({loss}, {x});
  });
}

// A sum of gradients that goes on in place after a slice's own was made.
TEST_P(SlicesTest, OfWhatProductsReadAfterwards) {
  ExpectSameAsEager([] {
    const auto x = torch::linspace(-1, 1, 48).view({6, 8}).requires_grad_(), w = torch::linspace(-2, 1, 40).view({5, 8}).requires_grad_();
    const auto y = torch::mm(x, w.t());
    return torch::autograd::grad({(y * y).sum() + (y.slice(1, 1) * 2).sum()}, {x, w});
  });
}

LAZULI_FOR_EACH_BACKEND(SlicesTest);

}  // namespace
}  // namespace lazuli::testing
