// Layers with weights, and those that only move elements.

#include <torch/torch.h>

#include "tests/support/module_check.h"

namespace lazuli::testing {
namespace {

namespace nn = torch::nn;

const std::vector<ModuleRow> kLayers = {
    Row(
        "Linear", [] { return nn::Linear(8, 5); }, Shapes({4, 8}, {2, 3, 8})),
    Row(
        "LinearWithoutBias", [] { return nn::Linear(nn::LinearOptions(8, 5).bias(false)); }, Shapes({4, 8}, {6, 8})),
    Row<2>("Bilinear", [] { return nn::Bilinear(4, 6, 5); }, {{Normal({3, 4}), Normal({3, 6})}, {Normal({5, 4}), Normal({5, 6})}}),
    Row(
        "Identity", [] { return nn::Identity(); }, Shapes({4, 8}, {6, 8})),
    Row(
        "Flatten", [] { return nn::Flatten(); }, Shapes({4, 8, 2}, {3, 2, 2, 2})),
    Row(
        "Unflatten",
        [] {
          return nn::Unflatten(nn::UnflattenOptions(1, {2, 4}));
        },
        Shapes({4, 8}, {6, 8, 3})),
    Row(
        "Functional", [] { return nn::Functional(torch::relu); }, Shapes({4, 8}, {6, 8})),
    Row(
        "Conv1d", [] { return nn::Conv1d(nn::Conv1dOptions(3, 6, 3).padding(1).stride(2)); }, Shapes({2, 3, 12}, {4, 3, 9})),
    Row(
        "Conv2d", [] { return nn::Conv2d(nn::Conv2dOptions(3, 6, 3).padding(1)); }, Shapes({2, 3, 8, 8}, {3, 3, 6, 7})),
    Row(
        "Conv2dDilatedGroups", [] { return nn::Conv2d(nn::Conv2dOptions(4, 8, 3).dilation(2).groups(2).bias(false)); },
        Shapes({2, 4, 9, 9}, {1, 4, 8, 10})),
    Row(
        "Conv2dReflectPadded", [] { return nn::Conv2d(nn::Conv2dOptions(3, 4, 3).padding(1).padding_mode(torch::kReflect)); },
        Shapes({2, 3, 8, 8}, {3, 3, 6, 7})),
    Row(
        "Conv3d", [] { return nn::Conv3d(nn::Conv3dOptions(2, 4, 3).padding(1)); }, Shapes({2, 2, 4, 5, 6}, {1, 2, 5, 4, 4})),
    Row(
        "ConvTranspose1d", [] { return nn::ConvTranspose1d(nn::ConvTranspose1dOptions(3, 5, 4).stride(2)); }, Shapes({2, 3, 6}, {3, 3, 5})),
    Row(
        "ConvTranspose2d", [] { return nn::ConvTranspose2d(nn::ConvTranspose2dOptions(3, 5, 3).stride(2).padding(1).output_padding(1)); },
        Shapes({2, 3, 5, 5}, {1, 3, 4, 6})),
    Row(
        "ConvTranspose3d", [] { return nn::ConvTranspose3d(nn::ConvTranspose3dOptions(2, 3, 2)); },
        Shapes({1, 2, 3, 4, 3}, {2, 2, 3, 3, 3})),
    Row("Embedding", [] { return nn::Embedding(10, 6); }, {{Index(10, {4})}, {Index(10, {3, 5})}}),
    Row("EmbeddingPadded", [] { return nn::Embedding(nn::EmbeddingOptions(10, 6).padding_idx(2)); },
        {{Index(10, {9})}, {Index(10, {3, 5})}}),
    Row("EmbeddingMaxNorm", [] { return nn::Embedding(nn::EmbeddingOptions(10, 6).max_norm(1.0)); },
        {{Index(10, {9})}, {Index(10, {3, 5})}}),
    Row("EmbeddingBagMean", [] { return nn::EmbeddingBag(10, 6); }, {{Index(10, {3, 4})}, {Index(10, {2, 5})}}),
    Row("EmbeddingBagSum", [] { return nn::EmbeddingBag(nn::EmbeddingBagOptions(10, 6).mode(torch::kSum)); },
        {{Index(10, {3, 4})}, {Index(10, {2, 5})}}),
    Row("EmbeddingBagMax", [] { return nn::EmbeddingBag(nn::EmbeddingBagOptions(10, 6).mode(torch::kMax)); },
        {{Index(10, {3, 4})}, {Index(10, {2, 5})}}),
    Row(
        "PixelShuffle", [] { return nn::PixelShuffle(2); }, Shapes({2, 8, 3, 3}, {1, 4, 5, 2})),
    Row(
        "PixelUnshuffle", [] { return nn::PixelUnshuffle(2); }, Shapes({2, 2, 4, 6}, {1, 3, 2, 2})),
    Row(
        "UpsampleNearest1d", [] { return nn::Upsample(nn::UpsampleOptions().scale_factor(std::vector<double>{2}).mode(torch::kNearest)); },
        Shapes({2, 3, 5}, {1, 3, 4})),
    Row(
        "UpsampleNearest2d",
        [] {
          return nn::Upsample(nn::UpsampleOptions().scale_factor(std::vector<double>{2, 3}).mode(torch::kNearest));
        },
        Shapes({2, 3, 4, 4}, {1, 3, 3, 5})),
    Row(
        "UpsampleLinear",
        [] { return nn::Upsample(nn::UpsampleOptions().size(std::vector<int64_t>{9}).mode(torch::kLinear).align_corners(false)); },
        Shapes({2, 3, 5}, {1, 3, 4})),
    Row(
        "UpsampleBilinear",
        [] {
          return nn::Upsample(nn::UpsampleOptions().size(std::vector<int64_t>{7, 9}).mode(torch::kBilinear).align_corners(true));
        },
        Shapes({2, 3, 4, 4}, {1, 3, 3, 5})),
    Row(
        "UpsampleBicubic",
        [] {
          return nn::Upsample(nn::UpsampleOptions().scale_factor(std::vector<double>{2, 2}).mode(torch::kBicubic).align_corners(false));
        },
        Shapes({2, 3, 4, 4}, {1, 3, 3, 5})),
    Row(
        "UpsampleTrilinear",
        [] {
          return nn::Upsample(nn::UpsampleOptions().size(std::vector<int64_t>{4, 5, 6}).mode(torch::kTrilinear).align_corners(false));
        },
        Shapes({1, 2, 2, 3, 3}, {2, 2, 3, 2, 4})),
    Row(
        "Fold",
        [] {
          return nn::Fold(nn::FoldOptions({4, 5}, {2, 2}));
        },
        Shapes({2, 12, 12}, {3, 8, 12})),
    Row(
        "Unfold",
        [] {
          return nn::Unfold(nn::UnfoldOptions({2, 2}).padding(1));
        },
        Shapes({2, 3, 4, 5}, {1, 2, 6, 4})),
    Row<2>("CosineSimilarity", [] { return nn::CosineSimilarity(nn::CosineSimilarityOptions().dim(1)); },
           {{Normal({4, 6}), Normal({4, 6})}, {Normal({3, 5, 2}), Normal({3, 5, 2})}}),
    Row<2>("PairwiseDistance", [] { return nn::PairwiseDistance(); }, {{Normal({4, 6}), Normal({4, 6})}, {Normal({3, 5}), Normal({3, 5})}}),
    Row<2>("PairwiseDistanceP1", [] { return nn::PairwiseDistance(nn::PairwiseDistanceOptions().p(1).keepdim(true)); },
           {{Normal({4, 6}), Normal({4, 6})}, {Normal({3, 5}), Normal({3, 5})}}),
    Row(
        "ZeroPad1d", [] { return nn::ZeroPad1d(2); }, Shapes({2, 3, 5}, {1, 2, 4})),
    Row(
        "ZeroPad2d", [] { return nn::ZeroPad2d(nn::ZeroPad2dOptions({1, 2, 0, 1})); }, Shapes({2, 3, 5, 4}, {1, 2, 4, 4})),
    Row(
        "ZeroPad3d", [] { return nn::ZeroPad3d(1); }, Shapes({1, 2, 3, 3, 3}, {2, 1, 2, 3, 4})),
    Row(
        "ConstantPad1d", [] { return nn::ConstantPad1d(nn::ConstantPad1dOptions(2, 3.5)); }, Shapes({2, 3, 5}, {1, 2, 4})),
    Row(
        "ConstantPad2d", [] { return nn::ConstantPad2d(nn::ConstantPad2dOptions({1, -1, 2, 0}, -1)); }, Shapes({2, 3, 5, 4}, {1, 2, 4, 4})),
    Row(
        "ConstantPad3d", [] { return nn::ConstantPad3d(nn::ConstantPad3dOptions(1, 0.5)); }, Shapes({1, 2, 3, 3, 3}, {2, 1, 2, 3, 4})),
    Row(
        "ReflectionPad1d", [] { return nn::ReflectionPad1d(2); }, Shapes({2, 3, 5}, {1, 2, 4})),
    Row(
        "ReflectionPad2d", [] { return nn::ReflectionPad2d(2); }, Shapes({2, 3, 5, 4}, {1, 2, 4, 4})),
    Row(
        "ReflectionPad3d", [] { return nn::ReflectionPad3d(1); }, Shapes({1, 2, 3, 3, 3}, {2, 1, 2, 3, 4})),
    Row(
        "ReplicationPad1d", [] { return nn::ReplicationPad1d(2); }, Shapes({2, 3, 5}, {1, 2, 4})),
    Row(
        "ReplicationPad2d", [] { return nn::ReplicationPad2d(2); }, Shapes({2, 3, 5, 4}, {1, 2, 4, 4})),
    Row(
        "ReplicationPad3d", [] { return nn::ReplicationPad3d(1); }, Shapes({1, 2, 3, 3, 3}, {2, 1, 2, 3, 4})),
};

LAZULI_TEST_MODULES(Layers, kLayers);

}  // namespace
}  // namespace lazuli::testing
