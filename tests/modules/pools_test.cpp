// Pooling, and what undoes it.

#include <torch/torch.h>

#include "tests/support/module_check.h"

namespace lazuli::testing {
namespace {

namespace nn = torch::nn;

// Pools with indices, and puts the results back.
template <class Pool, class Unpool>
auto ThereAndBack(Unpool unpool) {
  return [unpool](Pool& pool, const Tensors& arguments) mutable {
    const auto [pooled, indices] = pool->forward_with_indices(arguments[0]);
    return std::make_tuple(pooled, unpool->forward(pooled, indices));
  };
}

const auto kWithIndices = [](auto& pool, const Tensors& arguments) { return pool->forward_with_indices(arguments[0]); };

const std::vector<ModuleRow> kPools = {
    Row(
        "MaxPool1d", [] { return nn::MaxPool1d(2); }, Shapes({2, 3, 8}, {1, 2, 7})),
    Row(
        "MaxPool2d", [] { return nn::MaxPool2d(2); }, Shapes({2, 3, 8, 8}, {1, 2, 6, 7})),
    Row(
        "MaxPool2dCeilDilated", [] { return nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).padding(1).dilation(2).ceil_mode(true)); },
        Shapes({2, 3, 9, 8}, {1, 2, 8, 7})),
    Row(
        "MaxPool3d", [] { return nn::MaxPool3d(2); }, Shapes({1, 2, 4, 4, 6}, {2, 1, 5, 4, 4})),
    RowOf(
        "MaxPool1dWithIndices", [] { return nn::MaxPool1d(2); }, kWithIndices, Shapes({2, 3, 8}, {1, 2, 7})),
    RowOf(
        "MaxPool2dWithIndices", [] { return nn::MaxPool2d(2); }, kWithIndices, Shapes({2, 3, 8, 8}, {1, 2, 6, 7})),
    RowOf(
        "MaxPool3dWithIndices", [] { return nn::MaxPool3d(2); }, kWithIndices, Shapes({1, 2, 4, 4, 6}, {2, 1, 5, 4, 4})),
    Row(
        "AvgPool1d", [] { return nn::AvgPool1d(2); }, Shapes({2, 3, 8}, {1, 2, 7})),
    Row(
        "AvgPool2d", [] { return nn::AvgPool2d(nn::AvgPool2dOptions(3).stride(2).padding(1).count_include_pad(false)); },
        Shapes({2, 3, 8, 8}, {1, 2, 6, 7})),
    Row(
        "AvgPool3d", [] { return nn::AvgPool3d(2); }, Shapes({1, 2, 4, 4, 6}, {2, 1, 5, 4, 4})),
    Row(
        "LPPool1d", [] { return nn::LPPool1d(2, 3); }, Shapes({2, 3, 9}, {1, 2, 7})),
    Row(
        "LPPool2d", [] { return nn::LPPool2d(3, 2); }, Shapes({2, 3, 8, 8}, {1, 2, 6, 7})),
    Row(
        "LPPool3d", [] { return nn::LPPool3d(2, 2); }, Shapes({1, 2, 4, 4, 6}, {2, 1, 5, 4, 4})),
    Row(
        "FractionalMaxPool2d",
        [] {
          return nn::FractionalMaxPool2d(nn::FractionalMaxPool2dOptions(2).output_size(torch::ExpandingArray<2>({4, 4})));
        },
        Shapes({2, 3, 8, 8}, {1, 2, 9, 7})),
    RowOf(
        "FractionalMaxPool2dWithIndices",
        [] {
          return nn::FractionalMaxPool2d(nn::FractionalMaxPool2dOptions(2).output_ratio(torch::ExpandingArray<2, double>({0.5, 0.6})));
        },
        kWithIndices, Shapes({2, 3, 8, 8}, {1, 2, 9, 7})),
    Row(
        "FractionalMaxPool3d",
        [] {
          return nn::FractionalMaxPool3d(nn::FractionalMaxPool3dOptions(2).output_size(torch::ExpandingArray<3>({2, 3, 3})));
        },
        Shapes({1, 2, 5, 6, 6}, {2, 1, 6, 6, 7})),
    RowOf(
        "FractionalMaxPool3dWithIndices",
        [] {
          return nn::FractionalMaxPool3d(nn::FractionalMaxPool3dOptions(2).output_size(torch::ExpandingArray<3>({2, 3, 3})));
        },
        kWithIndices, Shapes({1, 2, 5, 6, 6}, {2, 1, 6, 6, 7})),
    Row(
        "AdaptiveAvgPool1d", [] { return nn::AdaptiveAvgPool1d(3); }, Shapes({2, 3, 8}, {1, 2, 7})),
    Row(
        "AdaptiveAvgPool2d",
        [] {
          return nn::AdaptiveAvgPool2d(nn::AdaptiveAvgPool2dOptions({3, 4}));
        },
        Shapes({2, 3, 8, 8}, {1, 2, 6, 7})),
    Row(
        "AdaptiveAvgPool2dOfOne", [] { return nn::AdaptiveAvgPool2d(1); }, Shapes({2, 3, 8, 8}, {1, 2, 6, 7})),
    Row(
        "AdaptiveAvgPool3d",
        [] {
          return nn::AdaptiveAvgPool3d(nn::AdaptiveAvgPool3dOptions({2, 2, 3}));
        },
        Shapes({1, 2, 4, 4, 6}, {2, 1, 5, 4, 4})),
    Row(
        "AdaptiveMaxPool1d", [] { return nn::AdaptiveMaxPool1d(3); }, Shapes({2, 3, 8}, {1, 2, 7})),
    Row(
        "AdaptiveMaxPool2d",
        [] {
          return nn::AdaptiveMaxPool2d(nn::AdaptiveMaxPool2dOptions({3, 4}));
        },
        Shapes({2, 3, 8, 8}, {1, 2, 6, 7})),
    Row(
        "AdaptiveMaxPool3d",
        [] {
          return nn::AdaptiveMaxPool3d(nn::AdaptiveMaxPool3dOptions({2, 2, 3}));
        },
        Shapes({1, 2, 4, 4, 6}, {2, 1, 5, 4, 4})),
    RowOf(
        "AdaptiveMaxPool1dWithIndices", [] { return nn::AdaptiveMaxPool1d(3); }, kWithIndices, Shapes({2, 3, 8}, {1, 2, 7})),
    RowOf(
        "AdaptiveMaxPool2dWithIndices", [] { return nn::AdaptiveMaxPool2d(2); }, kWithIndices, Shapes({2, 3, 8, 8}, {1, 2, 6, 7})),
    RowOf(
        "AdaptiveMaxPool3dWithIndices", [] { return nn::AdaptiveMaxPool3d(2); }, kWithIndices, Shapes({1, 2, 4, 4, 6}, {2, 1, 5, 4, 4})),
    RowOf(
        "MaxUnpool1d", [] { return nn::MaxPool1d(2); }, ThereAndBack<nn::MaxPool1d>(nn::MaxUnpool1d(2)), Shapes({2, 3, 8}, {1, 2, 6})),
    RowOf(
        "MaxUnpool2d", [] { return nn::MaxPool2d(2); }, ThereAndBack<nn::MaxPool2d>(nn::MaxUnpool2d(2)),
        Shapes({2, 3, 8, 8}, {1, 2, 6, 4})),
    RowOf(
        "MaxUnpool3d", [] { return nn::MaxPool3d(2); }, ThereAndBack<nn::MaxPool3d>(nn::MaxUnpool3d(2)),
        Shapes({1, 2, 4, 4, 6}, {2, 1, 2, 4, 4})),
};

LAZULI_TEST_MODULES(Pools, kPools);

}  // namespace
}  // namespace lazuli::testing
