// Shape functions of layers: convolution, normalisation, embedding, attention.
#include <ATen/CompositeExplicitAutogradFunctions.h>
#include <ATen/ops/gelu_backward_meta_dispatch.h>
#include <ATen/ops/gelu_meta_dispatch.h>
#include <c10/util/irange.h>

#include <numeric>

#include "tracer/shape_function_table.h"

namespace lazuli::tracer {
namespace {

// (input, weight, bias?, stride, padding, dilation, transposed, output_padding, groups) of a convolution.
struct Convolution {
  at::Tensor input, weight;
  std::vector<int64_t> stride, padding, dilation, output_padding;
  bool transposed;
  int64_t groups;
  at::MemoryFormat format = at::MemoryFormat::Contiguous;  // Of all results.
  size_t spatial() const { return stride.size(); }
};

// Positional arguments from `at` on, after the tensors. False where ATen would refuse them, or choose another layout than the default.
bool ReadConvolution(Args args, size_t at, Convolution* conv) {
  conv->stride = IntsArg(args[at]);
  conv->padding = IntsArg(args[at + 1]);
  conv->dilation = IntsArg(args[at + 2]);
  conv->transposed = args[at + 3].toBool();
  conv->output_padding = IntsArg(args[at + 4]);
  conv->groups = args[at + 5].toInt();
  // One number stands for all dimensions.
  const size_t n = static_cast<size_t>(std::max<int64_t>(conv->input.dim() - 2, 0));
  for (auto* numbers : {&conv->stride, &conv->padding, &conv->dilation, &conv->output_padding}) {
    if (numbers->size() == 1) numbers->resize(n, numbers->front());
  }
  if (conv->spatial() != n) return false;
  const at::Tensor& input = conv->input;
  const at::Tensor& weight = conv->weight;
  if (n < 1 || n > 3 || conv->padding.size() != n || conv->dilation.size() != n || conv->output_padding.size() != n) return false;
  if (!HaveOneFloatDtype({input, weight}) || input.dim() != static_cast<int64_t>(n) + 2 || weight.dim() != input.dim()) return false;
  if (input.numel() == 0 || weight.numel() == 0 || conv->groups < 1 || weight.size(0) % conv->groups != 0) return false;
  const auto input_format = FormatOf(input), weight_format = FormatOf(weight);
  if (!input_format.has_value() || !weight_format.has_value()) return false;
  conv->format = *input_format == at::MemoryFormat::Contiguous ? *weight_format : *input_format;
  const int64_t channels = conv->transposed ? weight.size(0) : weight.size(1) * conv->groups;
  for (const auto d : c10::irange(n)) {
    const bool odd_output = conv->output_padding[d] != 0 && !conv->transposed;
    if (conv->stride[d] < 1 || conv->padding[d] < 0 || conv->dilation[d] < 1 || conv->output_padding[d] < 0 || odd_output) return false;
  }
  return input.size(1) == channels;
}

// Output sizes; empty where a kernel is larger than its padded input. https://pytorch.org/docs/stable/generated/torch.nn.Conv2d.html and
// ConvTranspose2d.
std::vector<int64_t> OutputSizes(const Convolution& conv) {
  std::vector<int64_t> sizes = {conv.input.size(0), conv.transposed ? conv.weight.size(1) * conv.groups : conv.weight.size(0)};
  for (const auto d : c10::irange(conv.spatial())) {
    const int64_t in = conv.input.size(static_cast<int64_t>(d) + 2);
    const int64_t span = conv.dilation[d] * (conv.weight.size(static_cast<int64_t>(d) + 2) - 1) + 1;
    int64_t out;
    if (conv.transposed) {
      if (conv.output_padding[d] >= std::max(conv.stride[d], conv.dilation[d])) return {};
      out = (in - 1) * conv.stride[d] - 2 * conv.padding[d] + span + conv.output_padding[d];
    } else {
      if (in + 2 * conv.padding[d] < span) return {};
      out = (in + 2 * conv.padding[d] - span) / conv.stride[d] + 1;
    }
    if (out < 1) return {};
    sizes.push_back(out);
  }
  return sizes;
}

// Whether a result of these sizes may lie in either format: which one it gets depends on the library that computes it.
bool IsAmbiguous(const Convolution& conv, at::IntArrayRef sizes) {
  return conv.format == at::MemoryFormat::ChannelsLast && Fresh(sizes, at::kFloat).is_contiguous(conv.format);
}

// An affine parameter of a norm over `count` channels: absent, or fitting.
bool FitsChannels(const at::Tensor& parameter, int64_t count) {
  return !parameter.defined() || (parameter.dim() == 1 && parameter.size(0) == count);
}

// Sizes of layer norm's statistics: those of the input, normalised dimensions as 1. Empty when arguments do not fit.
std::vector<int64_t> StatisticsSizes(const at::Tensor& input, at::IntArrayRef normalized) {
  const int64_t outer = input.dim() - static_cast<int64_t>(normalized.size());
  if (normalized.empty() || outer < 0 || !input.sizes().slice(outer).equals(normalized)) return {};
  std::vector<int64_t> sizes = input.sizes().vec();
  std::fill(sizes.begin() + outer, sizes.end(), 1);
  return sizes;
}

bool FitsShape(const at::Tensor& parameter, at::IntArrayRef sizes) { return !parameter.defined() || parameter.sizes().equals(sizes); }

at::Tensor FreshIf(bool wanted, at::IntArrayRef sizes, at::ScalarType dtype, at::MemoryFormat format = at::MemoryFormat::Contiguous) {
  return wanted ? Fresh(sizes, dtype, format) : at::Tensor();
}

// Halves are not the CPU's.
bool IsAttention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
  return AreAttentionHeads(query, key, value) && query.scalar_type() != at::kHalf;
}

Shapes ConvolutionShape(Args args) {
  Convolution conv{TensorArg(args[0]), TensorArg(args[1]), {}, {}, {}, {}, false, 1};
  const at::Tensor bias = TensorArg(args[2]);
  if (!ReadConvolution(args, 3, &conv) || !HaveOneFloatDtype({conv.input, bias})) return {};
  const std::vector<int64_t> sizes = OutputSizes(conv);
  if (sizes.empty() || !FitsChannels(bias, sizes[1]) || IsAmbiguous(conv, sizes)) return {};
  return {Fresh(sizes, conv.input.scalar_type(), conv.format)};
}

// (grad_output, input, weight, bias_sizes?, stride, padding, dilation, transposed, output_padding, groups, output_mask)
Shapes ConvolutionBackwardShape(Args args) {
  const at::Tensor grad = TensorArg(args[0]);
  Convolution conv{TensorArg(args[1]), TensorArg(args[2]), {}, {}, {}, {}, false, 1};
  if (!ReadConvolution(args, 4, &conv) || !HaveOneFloatDtype({conv.input, grad})) return {};
  const std::vector<int64_t> sizes = OutputSizes(conv);
  if (sizes.empty() || !grad.sizes().equals(sizes) || !FormatOf(grad).has_value()) return {};
  const std::vector<bool> mask = MaskArg(args[10]);
  // Some kernels compute the weight's gradient along with the bias's, wanted or not.
  if (mask[2] && !mask[1]) return {};
  if ((mask[0] && IsAmbiguous(conv, conv.input.sizes())) || (mask[1] && IsAmbiguous(conv, conv.weight.sizes()))) return {};
  const auto dtype = conv.input.scalar_type();
  return {FreshIf(mask[0], conv.input.sizes(), dtype, conv.format), FreshIf(mask[1], conv.weight.sizes(), dtype, conv.format),
          FreshIf(mask[2], {sizes[1]}, dtype)};
}

// (input, normalized_shape, weight?, bias?, eps)
Shapes LayerNormShape(Args args) {
  const at::Tensor input = TensorArg(args[0]);
  const std::vector<int64_t> normalized = IntsArg(args[1]);
  const at::Tensor weight = TensorArg(args[2]);
  const at::Tensor bias = TensorArg(args[3]);
  const std::vector<int64_t> statistics = StatisticsSizes(input, normalized);
  if (!HaveOneFloatDtype({input, weight, bias}) || statistics.empty() || !FitsShape(weight, normalized) || !FitsShape(bias, normalized)) {
    return {};
  }
  const auto dtype = input.scalar_type();
  return {Fresh(input.sizes(), dtype), Fresh(statistics, dtype), Fresh(statistics, dtype)};
}

// (grad_out, input, normalized_shape, mean, rstd, weight?, bias?, output_mask)
Shapes LayerNormBackwardShape(Args args) {
  const at::Tensor grad = TensorArg(args[0]);
  const at::Tensor input = TensorArg(args[1]);
  const std::vector<int64_t> normalized = IntsArg(args[2]);
  const at::Tensor weight = TensorArg(args[5]);
  const at::Tensor bias = TensorArg(args[6]);
  const bool one_dtype = HaveOneFloatDtype({grad, input, TensorArg(args[3]), TensorArg(args[4]), weight, bias});
  if (!one_dtype || !grad.sizes().equals(input.sizes()) || StatisticsSizes(input, normalized).empty() || !FitsShape(weight, normalized) ||
      !FitsShape(bias, normalized)) {
    return {};
  }
  const std::vector<bool> mask = MaskArg(args[7]);
  if ((mask[1] && !weight.defined()) || (mask[2] && !bias.defined())) return {};
  const auto dtype = input.scalar_type();
  return {FreshIf(mask[0], input.sizes(), dtype), FreshIf(mask[1], normalized, dtype), FreshIf(mask[2], normalized, dtype)};
}

// (input, weight?, bias?, running_mean?, running_var?, training, momentum, eps)
Shapes BatchNormShape(Args args) {
  const at::Tensor input = TensorArg(args[0]);
  const auto format = FormatOf(input);
  if (input.dim() < 2 || input.numel() == 0 || !format.has_value()) return {};
  const int64_t channels = input.size(1);
  for (const auto i : c10::irange(1, 5)) {
    const at::Tensor tensor = TensorArg(args[i]);
    if (!HaveOneFloatDtype({input, tensor}) || !FitsChannels(tensor, channels)) return {};
  }
  const bool training = args[5].toBool();
  if (!training && (!TensorArg(args[3]).defined() || !TensorArg(args[4]).defined())) return {};
  const int64_t saved = training ? channels : 0;
  const auto dtype = input.scalar_type();
  return {Fresh(input.sizes(), dtype, *format), Fresh({saved}, dtype), Fresh({saved}, dtype)};
}

// (grad_out, input, weight?, running_mean?, running_var?, save_mean?, save_invstd?, train, eps, output_mask)
Shapes BatchNormBackwardShape(Args args) {
  const at::Tensor grad = TensorArg(args[0]);
  const at::Tensor input = TensorArg(args[1]);
  if (input.dim() < 2 || input.numel() == 0 || !grad.sizes().equals(input.sizes())) return {};
  const auto format = FormatOf(input);
  if (!format.has_value() || !FormatOf(grad).has_value()) return {};
  const int64_t channels = input.size(1);
  for (const auto i : c10::irange(2, 7)) {
    if (!HaveOneFloatDtype({grad, input, TensorArg(args[i])})) return {};
  }
  if (!FitsChannels(TensorArg(args[2]), channels)) return {};
  const std::vector<bool> mask = MaskArg(args[9]);
  const auto dtype = input.scalar_type();
  return {FreshIf(mask[0], input.sizes(), dtype, *format), FreshIf(mask[1], {channels}, dtype), FreshIf(mask[2], {channels}, dtype)};
}

// (input, weight?, bias?, N, C, HxW, group, eps)
Shapes GroupNormShape(Args args) {
  const at::Tensor input = TensorArg(args[0]);
  const at::Tensor weight = TensorArg(args[1]);
  const at::Tensor bias = TensorArg(args[2]);
  const int64_t batch = args[3].toInt();
  const int64_t channels = args[4].toInt();
  const int64_t groups = args[6].toInt();
  if (!HaveOneFloatDtype({input, weight, bias}) || input.numel() == 0 || groups < 1 || channels % groups != 0 ||
      !HasDefaultStrides(input) || input.numel() != batch * channels * args[5].toInt() || !FitsChannels(weight, channels) ||
      !FitsChannels(bias, channels)) {
    return {};
  }
  const auto dtype = input.scalar_type();
  return {Fresh(input.sizes(), dtype), Fresh({batch, groups}, dtype), Fresh({batch, groups}, dtype)};
}

// (grad_out, input, mean, rstd, weight?, N, C, HxW, group, output_mask)
Shapes GroupNormBackwardShape(Args args) {
  const at::Tensor grad = TensorArg(args[0]);
  const at::Tensor input = TensorArg(args[1]);
  const at::Tensor weight = TensorArg(args[4]);
  const int64_t channels = args[6].toInt();
  if (!HaveOneFloatDtype({grad, input, TensorArg(args[2]), TensorArg(args[3]), weight}) || !grad.sizes().equals(input.sizes()) ||
      input.numel() == 0 || !HasDefaultStrides(input) || !HasDefaultStrides(grad) || !FitsChannels(weight, channels)) {
    return {};
  }
  const std::vector<bool> mask = MaskArg(args[9]);
  if ((mask[1] || mask[2]) && !weight.defined()) return {};
  const auto dtype = input.scalar_type();
  return {FreshIf(mask[0], input.sizes(), dtype), FreshIf(mask[1], {channels}, dtype), FreshIf(mask[2], {channels}, dtype)};
}

// (weight, indices, padding_idx, scale_grad_by_freq, sparse)
Shapes EmbeddingShape(Args args) {
  const at::Tensor weight = TensorArg(args[0]);
  const at::Tensor indices = TensorArg(args[1]);
  if (weight.dim() != 2 || !IsIndex(indices)) return {};
  std::vector<int64_t> sizes = indices.sizes().vec();
  sizes.push_back(weight.size(1));
  return {Fresh(sizes, weight.scalar_type())};
}

// (grad_output, indices, num_weights, padding_idx, scale_grad_by_freq)
Shapes EmbeddingBackwardShape(Args args) {
  const at::Tensor grad = TensorArg(args[0]);
  const at::Tensor indices = TensorArg(args[1]);
  if (!HaveOneFloatDtype({grad}) || !IsIndex(indices)) return {};
  if (grad.dim() != indices.dim() + 1 || !grad.sizes().slice(0, indices.dim()).equals(indices.sizes())) return {};
  return {Fresh({args[2].toInt(), grad.size(-1)}, grad.scalar_type())};
}

// (query, key, value, dropout_p, is_causal, attn_mask?, scale?)
Shapes FlashAttentionShape(Args args) {
  const at::Tensor query = TensorArg(args[0]);
  const at::Tensor mask = TensorArg(args[5]);
  if (!IsAttention(query, TensorArg(args[1]), TensorArg(args[2])) || args[3].toDouble() != 0) return {};
  if (mask.defined() && (args[4].toBool() || (mask.scalar_type() != at::kFloat && mask.scalar_type() != query.scalar_type()) ||
                         (mask.dim() != 2 && mask.dim() != 4))) {
    return {};
  }
  const auto statistics = query.scalar_type() == at::kBFloat16 ? at::kFloat : query.scalar_type();
  const at::Tensor logsumexp = Fresh({query.size(0), query.size(2), query.size(1)}, statistics).transpose(1, 2);
  return {at::compositeexplicitautograd::empty_like(query), logsumexp};
}

// (grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, attn_mask?, scale?)
Shapes FlashAttentionBackwardShape(Args args) {
  const at::Tensor query = TensorArg(args[1]);
  const at::Tensor key = TensorArg(args[2]);
  const at::Tensor value = TensorArg(args[3]);
  if (!IsAttention(query, key, value) || !HaveOneFloatDtype({TensorArg(args[0]), query, TensorArg(args[4])})) return {};
  return {FreshHeads(query), FreshHeads(key), FreshHeads(value)};
}

// (input, weight, weight, bias, bias, hx, cx, reverse, batch_sizes, mode, hidden_size, num_layers, has_biases, bidirectional, batch_first,
// train), without grad mode: one direction of one layer over [time, batch, features]. Results, both states, and no workspace.
Shapes RnnLayerShape(Args args) {
  constexpr int64_t kLstm = 2;  // Of at::native's RNN modes, the one that oneDNN computes.
  const at::Tensor input = TensorArg(args[0]), hx = TensorArg(args[5]), cx = TensorArg(args[6]);
  const int64_t hidden = args[10].toInt();
  if (args[9].toInt() != kLstm || !IntsArg(args[8]).empty()) return {};
  if (input.dim() != 3 || input.scalar_type() != at::kFloat || hidden < 1) return {};
  const std::vector<int64_t> expected[] = {input.sizes().vec(), {4 * hidden, input.size(2)}, {4 * hidden, hidden},   {4 * hidden},
                                           {4 * hidden},        {input.size(1), hidden},     {input.size(1), hidden}};
  for (size_t i = 0; i < std::size(expected); ++i) {
    const at::Tensor tensor = TensorArg(args[i]);
    if (!IsPlainFloat(tensor) || tensor.scalar_type() != at::kFloat || !tensor.sizes().equals(expected[i])) return {};
  }
  return {Fresh({input.size(0), input.size(1), hidden}, at::kFloat), Fresh(hx.sizes(), at::kFloat), Fresh(cx.sizes(), at::kFloat),
          at::Tensor()};
}

// The Meta kernels take any name and dtype for granted.
bool IsKindOfGelu(const c10::IValue& approximate) { return approximate.toStringRef() == "none" || approximate.toStringRef() == "tanh"; }

Shapes GeluShape(Args args) {
  const at::Tensor self = args[0].toTensor();
  if (!HaveOneFloatDtype({self}) || !IsKindOfGelu(args[1])) return {};
  return {at::meta::gelu(self, args[1].toStringRef())};
}

Shapes GeluBackwardShape(Args args) {
  const at::Tensor grad = args[0].toTensor(), self = args[1].toTensor();
  if (!HaveOneFloatDtype({grad, self}) || !IsKindOfGelu(args[2])) return {};
  return {at::meta::gelu_backward(grad, self, args[2].toStringRef())};
}

}  // namespace

void AddLayerShapes(ShapeTable* table) {
  const std::pair<const char*, Shapes (*)(Args)> rows[] = {
      {"aten::gelu", GeluShape},
      {"aten::gelu_backward", GeluBackwardShape},
      {"aten::embedding", EmbeddingShape},
      {"aten::embedding_dense_backward", EmbeddingBackwardShape},
      {"aten::convolution", ConvolutionShape},
      {"aten::convolution_backward", ConvolutionBackwardShape},
      {"aten::native_layer_norm", LayerNormShape},
      {"aten::native_layer_norm_backward", LayerNormBackwardShape},
      {"aten::native_batch_norm", BatchNormShape},
      {"aten::_native_batch_norm_legit", BatchNormShape},
      {"aten::native_batch_norm_backward", BatchNormBackwardShape},
      {"aten::native_group_norm", GroupNormShape},
      {"aten::native_group_norm_backward", GroupNormBackwardShape},
      {"aten::mkldnn_rnn_layer", RnnLayerShape},
      {"aten::_scaled_dot_product_flash_attention_for_cpu", FlashAttentionShape},
      {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", FlashAttentionBackwardShape},
  };
  for (const auto& [name, function] : rows) table->emplace(name, function);
}

}  // namespace lazuli::tracer
