// Every loss module.

#include <torch/torch.h>

#include "tests/support/module_check.h"

namespace lazuli::testing {
namespace {

namespace nn = torch::nn;

const std::vector<Arguments> kTwoNormals = {{Normal({4, 6}), Normal({4, 6})}, {Normal({3, 2, 5}), Normal({3, 2, 5})}};
const std::vector<Arguments> kTwoUnits = {{Unit({4, 6}), Unit({4, 6})}, {Unit({3, 2, 5}), Unit({3, 2, 5})}};
const std::vector<Arguments> kLogitsAndUnits = {{Normal({4, 6}), Unit({4, 6})}, {Normal({3, 2, 5}), Unit({3, 2, 5})}};
const std::vector<Arguments> kClasses = {{Normal({4, 6}), Index(6, {4})}, {Normal({3, 6, 5}), Index(6, {3, 5})}};
const std::vector<Arguments> kRowClasses = {{Normal({4, 6}), Index(6, {4})}, {Normal({3, 6}), Index(6, {3})}};
const std::vector<Arguments> kSigns = {{Normal({4, 6}), Sign({4, 6})}, {Normal({3, 5}), Sign({3, 5})}};
const std::vector<Arguments> kPairsAndSigns = {{Normal({4, 6}), Normal({4, 6}), Sign({4})}, {Normal({3, 5}), Normal({3, 5}), Sign({3})}};
const std::vector<Arguments> kRanks = {{Normal({4}), Normal({4}), Sign({4})}, {Normal({3, 5}), Normal({3, 5}), Sign({3, 5})}};
const std::vector<Arguments> kTriplets = {{Normal({4, 6}), Normal({4, 6}), Normal({4, 6})},
                                          {Normal({3, 5}), Normal({3, 5}), Normal({3, 5})}};

// Log probabilities of 8 steps; targets of 3 out of 5 labels.
const auto kCtc = [](nn::CTCLoss& loss, const Tensors& arguments) {
  const int64_t batch = arguments[0].size(1);
  return loss->forward(arguments[0].log_softmax(2), arguments[1] + 1, torch::full({batch}, arguments[0].size(0), torch::kLong),
                       torch::full({batch}, 3, torch::kLong));
};

const std::vector<ModuleRow> kLosses = {
    Row<2>(
        "L1Loss", [] { return nn::L1Loss(); }, kTwoNormals),
    Row<2>(
        "L1LossUnreduced", [] { return nn::L1Loss(nn::L1LossOptions(torch::kNone)); }, kTwoNormals),
    Row<2>(
        "MSELoss", [] { return nn::MSELoss(); }, kTwoNormals),
    Row<2>(
        "MSELossSum", [] { return nn::MSELoss(nn::MSELossOptions(torch::kSum)); }, kTwoNormals),
    Row<2>(
        "BCELoss", [] { return nn::BCELoss(); }, kTwoUnits),
    Row<2>(
        "BCEWithLogitsLoss", [] { return nn::BCEWithLogitsLoss(); }, kLogitsAndUnits),
    Row<2>(
        "BCEWithLogitsLossWeighted",
        [] { return nn::BCEWithLogitsLoss(nn::BCEWithLogitsLossOptions().pos_weight(torch::full({1}, 2.0)).reduction(torch::kSum)); },
        kLogitsAndUnits),
    Row<2>("KLDivLoss", [] { return nn::KLDivLoss(nn::KLDivLossOptions().reduction(torch::kBatchMean)); },
           {{Normal({4, 6}), Simplex({4, 6})}, {Normal({3, 5}), Simplex({3, 5})}}),
    Row<2>(
        "HuberLoss", [] { return nn::HuberLoss(nn::HuberLossOptions().delta(0.7)); }, kTwoNormals),
    Row<2>(
        "SmoothL1Loss", [] { return nn::SmoothL1Loss(nn::SmoothL1LossOptions().beta(0.5)); }, kTwoNormals),
    Row<2>(
        "PoissonNLLLoss", [] { return nn::PoissonNLLLoss(nn::PoissonNLLLossOptions().full(true)); }, kLogitsAndUnits),
    Row<2>(
        "NLLLoss", [] { return nn::NLLLoss(); }, kClasses),
    Row<2>(
        "NLLLossWeighted", [] { return nn::NLLLoss(nn::NLLLossOptions().weight(torch::linspace(0.5, 1.5, 6)).ignore_index(2)); }, kClasses),
    Row<2>(
        "CrossEntropyLoss", [] { return nn::CrossEntropyLoss(); }, kClasses),
    Row<2>("CrossEntropyLossSmoothed",
           [] { return nn::CrossEntropyLoss(nn::CrossEntropyLossOptions().label_smoothing(0.1).weight(torch::linspace(0.5, 1.5, 6))); },
           kClasses, {"aten::masked_select"}),
    Row<2>("CrossEntropyLossOfProbabilities", [] { return nn::CrossEntropyLoss(); },
           {{Normal({4, 6}), Simplex({4, 6})}, {Normal({3, 5}), Simplex({3, 5})}}),
    Row<2>(
        "HingeEmbeddingLoss", [] { return nn::HingeEmbeddingLoss(); }, kSigns),
    Row<2>(
        "SoftMarginLoss", [] { return nn::SoftMarginLoss(); }, kSigns),
    Row<2>(
        "MultiMarginLoss", [] { return nn::MultiMarginLoss(); }, kRowClasses),
    Row<2>(
        "MultiMarginLossSquared", [] { return nn::MultiMarginLoss(nn::MultiMarginLossOptions().p(2).margin(0.8)); }, kRowClasses),
    Row<2>("MultiLabelMarginLoss", [] { return nn::MultiLabelMarginLoss(); },
           {{Normal({4, 6}), Index(6, {4, 6})}, {Normal({3, 5}), Index(5, {3, 5})}}),
    Row<2>(
        "MultiLabelSoftMarginLoss", [] { return nn::MultiLabelSoftMarginLoss(); }, kLogitsAndUnits),
    Row<3>(
        "CosineEmbeddingLoss", [] { return nn::CosineEmbeddingLoss(nn::CosineEmbeddingLossOptions().margin(0.1)); }, kPairsAndSigns),
    Row<3>(
        "MarginRankingLoss", [] { return nn::MarginRankingLoss(nn::MarginRankingLossOptions().margin(0.3)); }, kRanks),
    Row<3>(
        "TripletMarginLoss", [] { return nn::TripletMarginLoss(); }, kTriplets),
    Row<3>(
        "TripletMarginLossSwapped", [] { return nn::TripletMarginLoss(nn::TripletMarginLossOptions().swap(true).p(1)); }, kTriplets),
    Row<3>(
        "TripletMarginWithDistanceLoss", [] { return nn::TripletMarginWithDistanceLoss(); }, kTriplets),
    RowOf("CTCLoss", [] { return nn::CTCLoss(); }, kCtc, {{Normal({8, 2, 6}), Index(5, {2, 3})}, {Normal({9, 3, 6}), Index(5, {3, 3})}}),
    Row<2>("AdaptiveLogSoftmaxWithLoss",
           [] {
             return nn::AdaptiveLogSoftmaxWithLoss(nn::AdaptiveLogSoftmaxWithLossOptions(8, 12, {4, 8}).div_value(2));
           },
           {{Normal({20, 8}), Cycle(12, 20)}, {Normal({16, 8}), Cycle(12, 16)}}, {"aten::_local_scalar_dense", "aten::nonzero"}),
};

LAZULI_TEST_MODULES(Losses, kLosses);

}  // namespace
}  // namespace lazuli::testing
