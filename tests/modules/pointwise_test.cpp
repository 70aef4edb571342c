// Activations, normalisations and dropouts.

#include <torch/torch.h>

#include "tests/support/module_check.h"

namespace lazuli::testing {
namespace {

namespace nn = torch::nn;

const auto kRows = [] { return Shapes({4, 6}, {3, 2, 5}); };
const auto kImages = [] { return Shapes({3, 4, 5, 6}, {2, 4, 3, 3}); };
const auto kVolumes = [] { return Shapes({2, 4, 3, 3, 2}, {3, 4, 2, 2, 2}); };

const std::vector<ModuleRow> kActivations = {
    Row(
        "ELU", [] { return nn::ELU(nn::ELUOptions().alpha(1.5)); }, kRows()),
    Row(
        "SELU", [] { return nn::SELU(); }, kRows()),
    Row(
        "CELU", [] { return nn::CELU(nn::CELUOptions().alpha(0.5)); }, kRows()),
    Row(
        "GELU", [] { return nn::GELU(); }, kRows()),
    Row(
        "GELUTanh", [] { return nn::GELU(nn::GELUOptions().approximate("tanh")); }, kRows()),
    Row(
        "GLU", [] { return nn::GLU(nn::GLUOptions(1)); }, kRows()),
    Row(
        "Hardshrink", [] { return nn::Hardshrink(); }, kRows()),
    Row(
        "Hardtanh", [] { return nn::Hardtanh(); }, kRows()),
    Row(
        "HardtanhInplace",
        [] {
          return nn::Sequential(nn::Identity(), nn::Linear(nn::LinearOptions(6, 6)), nn::Hardtanh(nn::HardtanhOptions().inplace(true)));
        },
        Shapes({4, 6}, {3, 6})),
    Row(
        "LeakyReLU", [] { return nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.2)); }, kRows()),
    Row(
        "LogSigmoid", [] { return nn::LogSigmoid(); }, kRows()),
    Row(
        "LogSoftmax", [] { return nn::LogSoftmax(1); }, kRows()),
    Row(
        "Softmax", [] { return nn::Softmax(1); }, kRows()),
    Row(
        "Softmin", [] { return nn::Softmin(1); }, kRows()),
    Row(
        "Softmax2d", [] { return nn::Softmax2d(); }, kImages()),
    Row(
        "Softplus", [] { return nn::Softplus(nn::SoftplusOptions().beta(2).threshold(1)); }, kRows()),
    Row(
        "Softshrink", [] { return nn::Softshrink(0.3); }, kRows()),
    Row(
        "Softsign", [] { return nn::Softsign(); }, kRows()),
    Row(
        "PReLU", [] { return nn::PReLU(); }, kRows()),
    Row(
        "PReLUPerChannel", [] { return nn::PReLU(nn::PReLUOptions().num_parameters(4)); }, kImages()),
    Row(
        "ReLU", [] { return nn::ReLU(); }, kRows()),
    Row(
        "ReLUInplace", [] { return nn::Sequential(nn::Linear(6, 6), nn::ReLU(nn::ReLUOptions().inplace(true))); }, Shapes({4, 6}, {3, 6})),
    Row(
        "ReLU6", [] { return nn::ReLU6(); }, kRows()),
    Row(
        "RReLU", [] { return nn::RReLU(); }, kRows()),
    Row(
        "SiLU", [] { return nn::SiLU(); }, kRows()),
    Row(
        "Mish", [] { return nn::Mish(); }, kRows()),
    Row(
        "Sigmoid", [] { return nn::Sigmoid(); }, kRows()),
    Row(
        "Tanh", [] { return nn::Tanh(); }, kRows()),
    Row(
        "Tanhshrink", [] { return nn::Tanhshrink(); }, kRows()),
    Row(
        "Threshold", [] { return nn::Threshold(0.1, -2); }, kRows()),
};

const std::vector<ModuleRow> kNorms = {
    Row(
        "BatchNorm1d", [] { return nn::BatchNorm1d(4); }, Shapes({6, 4}, {3, 4, 5})),
    Row(
        "BatchNorm2d", [] { return nn::BatchNorm2d(4); }, kImages()),
    ReadingNumbers(Row(
        "BatchNorm2dCumulative", [] { return nn::BatchNorm2d(nn::BatchNorm2dOptions(4).momentum(std::nullopt).affine(false)); },
        kImages())),
    Row(
        "BatchNorm2dWithoutStatistics", [] { return nn::BatchNorm2d(nn::BatchNorm2dOptions(4).track_running_stats(false)); }, kImages()),
    Row(
        "BatchNorm3d", [] { return nn::BatchNorm3d(4); }, kVolumes()),
    Row(
        "InstanceNorm1d", [] { return nn::InstanceNorm1d(4); }, Shapes({6, 4, 7}, {3, 4, 5})),
    Row(
        "InstanceNorm2d", [] { return nn::InstanceNorm2d(nn::InstanceNorm2dOptions(4).affine(true)); }, kImages()),
    Row(
        "InstanceNorm2dTracking", [] { return nn::InstanceNorm2d(nn::InstanceNorm2dOptions(4).track_running_stats(true)); }, kImages()),
    Row(
        "InstanceNorm3d", [] { return nn::InstanceNorm3d(4); }, kVolumes()),
    Row(
        "LayerNorm", [] { return nn::LayerNorm(nn::LayerNormOptions({6})); }, Shapes({4, 6}, {3, 2, 6})),
    Row(
        "LayerNormOfTwo",
        [] {
          return nn::LayerNorm(nn::LayerNormOptions({2, 6}).elementwise_affine(false));
        },
        Shapes({4, 2, 6}, {3, 2, 2, 6})),
    Row(
        "GroupNorm", [] { return nn::GroupNorm(2, 4); }, kImages()),
    Row(
        "LocalResponseNorm", [] { return nn::LocalResponseNorm(3); }, kImages()),
    Row(
        "CrossMapLRN2d", [] { return nn::CrossMapLRN2d(3); }, kImages()),
};

const std::vector<ModuleRow> kDropouts = {
    Row(
        "Dropout", [] { return nn::Dropout(0.3); }, kRows()),
    Row(
        "DropoutInplace", [] { return nn::Sequential(nn::Linear(6, 6), nn::Dropout(nn::DropoutOptions(0.3).inplace(true))); },
        Shapes({4, 6}, {3, 6})),
    Row(
        "Dropout2d", [] { return nn::Dropout2d(0.4); }, kImages()),
    Row(
        "Dropout3d", [] { return nn::Dropout3d(0.4); }, kVolumes()),
    Row(
        "AlphaDropout", [] { return nn::AlphaDropout(0.3); }, kRows()),
    Row(
        "FeatureAlphaDropout", [] { return nn::FeatureAlphaDropout(0.3); }, kImages()),
};

LAZULI_TEST_MODULES(Activations, kActivations);
LAZULI_TEST_MODULES(Norms, kNorms);
LAZULI_TEST_MODULES(Dropouts, kDropouts);

}  // namespace
}  // namespace lazuli::testing
