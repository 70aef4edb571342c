// Recurrent layers, attention, transformers and containers.

#include <torch/torch.h>

#include "tests/support/module_check.h"

namespace lazuli::testing {
namespace {

namespace nn = torch::nn;

const auto kSequenceSteps = [] { return Shapes({5, 2, 6}, {3, 4, 6}); };  // Steps, batch, features.

// The next cell of a chain of three, from the state of the last.
const auto kThreeCells = [](auto& cell, const Tensors& arguments) {
  auto state = cell->forward(arguments[0]);
  for (int i = 0; i < 2; ++i) state = cell->forward(arguments[0], state);
  return state;
};

// Not recorded with grad mode on.
const std::vector<std::string> kOneDnnLstm = {"aten::mkldnn_rnn_layer"};

// cuDNN's layers put their weights side by side in memory of their own.
ModuleRow OfCudnn(ModuleRow row) {
  row.gpu_fallbacks.emplace_back("aten::set_.source_Storage");
  return row;
}

const std::vector<ModuleRow> kRecurrent = {
    OfCudnn(Row(
        "RNN", [] { return nn::RNN(nn::RNNOptions(6, 8).num_layers(2)); }, kSequenceSteps())),
    OfCudnn(Row(
        "RNNReLU", [] { return nn::RNN(nn::RNNOptions(6, 8).nonlinearity(torch::kReLU).bidirectional(true)); }, kSequenceSteps())),
    OfCudnn(Row(
        "GRU", [] { return nn::GRU(nn::GRUOptions(6, 8).num_layers(2).dropout(0.2)); }, kSequenceSteps())),
    OfCudnn(Row(
        "GRUBidirectional", [] { return nn::GRU(nn::GRUOptions(6, 8).bidirectional(true).batch_first(true)); }, kSequenceSteps())),
    OfCudnn(Row(
        "LSTM", [] { return nn::LSTM(nn::LSTMOptions(6, 8).num_layers(2)); }, kSequenceSteps(), kOneDnnLstm)),
    OfCudnn(Row(
        "LSTMDropout", [] { return nn::LSTM(nn::LSTMOptions(6, 8).num_layers(2).dropout(0.2).bias(false)); }, kSequenceSteps(),
        kOneDnnLstm)),
    OfCudnn(Row(
        "LSTMBidirectional", [] { return nn::LSTM(nn::LSTMOptions(6, 8).bidirectional(true).batch_first(true)); }, kSequenceSteps(),
        kOneDnnLstm)),
    OfCudnn(Row(
        "LSTMProjected", [] { return nn::LSTM(nn::LSTMOptions(6, 8).proj_size(4)); }, kSequenceSteps())),
    RowOf(
        "RNNCell", [] { return nn::RNNCell(6, 8); }, kThreeCells, Shapes({4, 6}, {2, 6})),
    RowOf(
        "GRUCell", [] { return nn::GRUCell(6, 8); }, kThreeCells, Shapes({4, 6}, {2, 6})),
    RowOf(
        "LSTMCell", [] { return nn::LSTMCell(6, 8); }, kThreeCells, Shapes({4, 6}, {2, 6})),
};

torch::Tensor CausalMask(int64_t size) { return nn::TransformerImpl::generate_square_subsequent_mask(size); }

const auto kMaskedAttention = [](nn::MultiheadAttention& attention, const Tensors& arguments) {
  return attention->forward(arguments[0], arguments[1], arguments[1], /*key_padding_mask=*/{}, /*need_weights=*/true,
                            CausalMask(arguments[0].size(0)));
};
const auto kMaskedEncoder = [](auto& encoder, const Tensors& arguments) {
  return encoder->forward(arguments[0], CausalMask(arguments[0].size(0)));
};

const std::vector<Arguments> kThreeSequences = {{Normal({4, 2, 8}), Normal({3, 2, 8}), Normal({3, 2, 8})},
                                                {Normal({5, 3, 8}), Normal({5, 3, 8}), Normal({5, 3, 8})}};
const std::vector<Arguments> kTwoSequences = {{Normal({4, 2, 8}), Normal({4, 2, 8})}, {Normal({5, 3, 8}), Normal({5, 3, 8})}};

nn::TransformerEncoderLayer EncoderLayer() {
  return nn::TransformerEncoderLayer(nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16).dropout(0.1));
}
nn::TransformerDecoderLayer DecoderLayer() {
  return nn::TransformerDecoderLayer(nn::TransformerDecoderLayerOptions(8, 2).dim_feedforward(16).dropout(0.1).activation(torch::kGELU));
}

// Attention asks whether key and value are one: a read of data.
const std::vector<std::string> kAsksEqual = {"aten::equal"};

const std::vector<ModuleRow> kAttention = {
    Row<3>(
        "MultiheadAttention", [] { return nn::MultiheadAttention(8, 2); }, kThreeSequences),
    Row<3>(
        "MultiheadAttentionBiasKV",
        [] { return nn::MultiheadAttention(nn::MultiheadAttentionOptions(8, 2).add_bias_kv(true).add_zero_attn(true).dropout(0.1)); },
        kThreeSequences),
    RowOf(
        "MultiheadAttentionMasked", [] { return nn::MultiheadAttention(8, 4); }, kMaskedAttention, kTwoSequences),
    Row(
        "TransformerEncoderLayer", [] { return EncoderLayer(); }, Shapes({4, 2, 8}, {5, 3, 8})),
    RowOf(
        "TransformerEncoder", [] { return nn::TransformerEncoder(EncoderLayer(), 2); }, kMaskedEncoder, Shapes({4, 2, 8}, {5, 3, 8}),
        kAsksEqual),
    Row<2>(
        "TransformerDecoderLayer", [] { return DecoderLayer(); }, kTwoSequences, kAsksEqual),
    Row<2>(
        "TransformerDecoder", [] { return nn::TransformerDecoder(DecoderLayer(), 2); }, kTwoSequences, kAsksEqual),
    Row<2>(
        "Transformer",
        [] {
          return nn::Transformer(nn::TransformerOptions(8, 2).num_encoder_layers(1).num_decoder_layers(1).dim_feedforward(16).dropout(0.1));
        },
        kTwoSequences, kAsksEqual),
};

// Containers without a `forward`, called the way their documentation does.
struct ContainersImpl : nn::Module {
  ContainersImpl() {
    register_module("list", list);
    register_module("dict", dict);
    register_module("parameters", parameter_list);
    register_module("named", parameter_dict);
    for (int i = 0; i < 2; ++i) list->push_back(nn::Linear(6, 6));
    dict->update({{"act", nn::GELU().ptr()}, {"head", nn::Linear(6, 4).ptr()}});
    parameter_list->append(torch::randn({6}));
    parameter_dict->insert("scale", torch::randn({4}));
  }
  torch::Tensor forward(torch::Tensor x) {
    for (const auto& module : *list) x = module->as<nn::Linear>()->forward(x) * parameter_list[0];
    x = dict["act"]->as<nn::GELU>()->forward(x);
    return any.forward(dict["head"]->as<nn::Linear>()->forward(x)) * parameter_dict["scale"];
  }
  nn::ModuleList list;
  nn::ModuleDict dict;
  nn::ParameterList parameter_list;
  nn::ParameterDict parameter_dict;
  nn::AnyModule any{nn::Tanh()};
};
TORCH_MODULE(Containers);

const std::vector<ModuleRow> kContainers = {
    Row(
        "Sequential", [] { return nn::Sequential(nn::Linear(6, 8), nn::ReLU(), nn::Dropout(0.2), nn::Linear(8, 3)); },
        Shapes({4, 6}, {2, 3, 6})),
    Row(
        "ListsDictsAndAny", [] { return Containers(); }, Shapes({4, 6}, {2, 3, 6})),
};

LAZULI_TEST_MODULES(Recurrent, kRecurrent);
LAZULI_TEST_MODULES(Attention, kAttention);
LAZULI_TEST_MODULES(ContainersTest, kContainers);

}  // namespace
}  // namespace lazuli::testing
