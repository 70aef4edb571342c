// Habits of single ATen kernels that a recorder must know of.

#include "tests/support/same_as_eager.h"

namespace lazuli::testing {
namespace {

class KernelsTest : public BackendTest {};

TEST_P(KernelsTest, CompositeOutOperatorsResizeTheirResult) {
  ExpectSameAsEager([] {
    const auto x = torch::arange(12, torch::kFloat).view({3, 4}) * 1;
    auto difference = torch::zeros({2}) * 1;
    at::rsub_out(difference, x, x * 2);
    auto products = torch::zeros({1}) * 1;
    at::inner_out(products, x, x);
    auto stacked = torch::zeros({0}) * 1;
    at::stack_out(stacked, {x, x});
    return Tensors{difference + 1, products * 2, stacked * 3};
  });
}

TEST_P(KernelsTest, OperatorChangesTheListThatItGets) {
  ExpectSameAsEager([] {
    const auto x = torch::rand({5, 6}) * 1;
    const auto rows = torch::randint(-9, 9, {4}) * 1;
    const auto columns = torch::randint(-9, 9, {4}) * 1;
    const auto mask = torch::rand({4}) > 0.5;
    return Tensors{at::_unsafe_masked_index(x, mask, {rows, columns}, 0) * 2};
  });
}

TEST_P(KernelsTest, NamesOfDimensionsSurvive) {
  const lazuli::DeviceMode mode(options());
  const auto x = (torch::ones({2, 3}) * 2)
                     .rename({{torch::Dimname::fromSymbol(torch::Symbol::dimname("rows")),
                               torch::Dimname::fromSymbol(torch::Symbol::dimname("columns"))}});
  const auto sums = (x + x).sum(x.names()[0]);
  ASSERT_TRUE(sums.has_names());
  EXPECT_EQ(sums.names()[0].symbol().toUnqualString(), std::string("columns"));
  EXPECT_EQ(sums.rename(std::nullopt)[2].item<float>(), 8);
}

TEST_P(KernelsTest, CopiesThatKeepTheirSourcesOffset) {
  ExpectSameAsEager([] {
    const auto x = (torch::arange(20, torch::kFloat) * 1).slice(0, 4, 16).view({3, 4});
    return Tensors{x.slice_scatter(torch::ones({3, 2}), 1, 1, 3), x.select_scatter(torch::ones({4}), 0, 1), x * 2};
  });
}

TEST_P(KernelsTest, AllocationsWhoseElementsOverlap) {
  ExpectSameAsEager([] {
    auto x = torch::empty_strided({3, 4}, {0, 1}).zero_();
    return Tensors{x + 1, x.expand({2, 3, 4}) * 2};
  });
}

TEST_P(KernelsTest, ScatterFromItselfIsAnError) {
  const lazuli::DeviceMode mode(options());
  auto x = torch::arange(4) * 1;
  EXPECT_THROW(x.scatter_add_(0, torch::zeros({4}, torch::kLong), x), c10::Error);
  EXPECT_EQ(x.sum().item<int64_t>(), 6);
}

LAZULI_FOR_EACH_BACKEND(KernelsTest);

}  // namespace
}  // namespace lazuli::testing
