#include "codegen/passes/convolutions.h"

#include <algorithm>
#include <optional>
#include <string>

#include "codegen/ir/dtypes.h"

namespace lazuli::codegen {
namespace {

// Channels for which cuDNN's kernels of channels last are worth copies of all that they take and give, and for which they are faster.
constexpr int64_t kLeastChannels = 32, kLeastChannelsOfFloats = 64, kFewestChannels = 16;
// Channels up to which oneDNN gains most.
constexpr int64_t kFewChannelsOnCpu = 32;

// What is known of a convolution's size.
struct Channels {
  int64_t in = 0, least = 0;  // Of the input, and of input and output.
  int64_t groups = 1;
  bool depthwise = false;
  int64_t window = 1;  // The longer side of its weights.
};

// Measured with an H100's cuDNN 9, forwards and backwards: from these numbers of channels on. Its gradients of large windows' weights in
// floats take several times as long as ATen's do, some of those of groups in halves as well.
std::optional<int> GainOnGpu(const Channels& channels, bool half, bool backward) {
  constexpr int64_t kLargeWindow = 6, kFewestOfGroup = 4;
  const int64_t least = half ? kLeastChannels : kLeastChannelsOfFloats;
  if (channels.groups == 1) return channels.least >= least ? 4 : channels.least >= kFewestChannels ? 2 : 0;
  const bool gains = channels.depthwise ? channels.in >= kFewestChannels && (half || !backward || channels.window < kLargeWindow)
                                        : !half && channels.in >= kFewestOfGroup * channels.groups;
  return gains ? std::optional(4) : std::nullopt;
}

// Measured with oneDNN, AVX2 and AVX-512: one of many channels does as well in either order.
int GainOnCpu(const Channels& channels) { return channels.least <= kFewChannelsOnCpu || channels.groups > 1 ? 2 : 1; }

// With AVX-512 oneDNN 3 writes past its scratch memory where images lie channels last, of few channels: in the gradient of weights of one
// pixel that step over some.
bool OverrunsOnCpu(const TraceOp& op, bool backward, const TensorRef& weight, const Channels& channels) {
  constexpr int64_t kChannelsOfVector = 16;
  const std::vector<int64_t> strides = op.args[backward ? 4 : 3].value.toIntVector();
  const bool steps = std::any_of(strides.begin(), strides.end(), [](int64_t stride) { return stride != 1; });
  return steps && weight.sizes[2] * weight.sizes[3] == 1 && channels.in < kChannelsOfVector;
}

std::optional<Convolution> FindConvolution(const Graph& graph, NodeId n, const ConvolutionLayoutOptions& options) {
  const Node& node = graph.nodes[n];
  if (node.kind != Node::Kind::kExtern || !node.versions.empty()) return std::nullopt;
  Convolution conv;
  conv.node = n;
  conv.backward = node.op.info->name == "aten::convolution_backward";
  if (!conv.backward && node.op.info->name != "aten::convolution") return std::nullopt;
  conv.input = conv.backward ? 1 : 0;
  const TensorRef& input = RefOf(node.op, conv.input);
  const TensorRef& weight = RefOf(node.op, conv.input + 1);
  if (input.sizes.size() != 4 || weight.sizes.size() != 4 || input.dtype != weight.dtype) return std::nullopt;
  // ATen could not tell the order of a weight of one number a channel.
  if (weight.sizes[1] == 1 && weight.sizes[2] * weight.sizes[3] == 1) return std::nullopt;
  const TraceArg& groups = node.op.args[conv.backward ? 9 : 8];
  if (groups.kind != TraceArg::Kind::kConst || !groups.value.isInt()) return std::nullopt;
  const bool transposed = node.op.args[conv.backward ? 7 : 6].value.toBool(), half = IsHalf(input.dtype);
  Channels channels;
  channels.in = graph.symbols.Hint(input.sizes[1]);
  channels.least = std::min(channels.in, graph.symbols.Hint(weight.sizes[transposed ? 1 : 0]));
  channels.groups = groups.value.toInt();
  channels.depthwise = channels.groups == channels.in && weight.sizes[1] == 1;
  channels.window = graph.symbols.Hint(std::max(weight.sizes[2], weight.sizes[3]));
  std::optional<int> gain;
  if (node.op.device.is_cpu() && options.cpu && input.dtype == c10::kFloat && !OverrunsOnCpu(node.op, conv.backward, weight, channels)) {
    gain = GainOnCpu(channels);
  }
  if (node.op.device.is_cuda() && (half ? options.halves : options.floats && input.dtype == c10::kFloat)) {
    gain = GainOnGpu(channels, half, conv.backward);
  }
  if (!gain.has_value()) return std::nullopt;
  conv.gain = *gain;
  conv.copies_weight = node.op.device.is_cpu();
  return conv;
}

}  // namespace

std::vector<Convolution> FindConvolutions(const Graph& graph, const ConvolutionLayoutOptions& options) {
  std::vector<Convolution> convolutions;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const auto conv = FindConvolution(graph, static_cast<NodeId>(n), options);
    if (conv.has_value()) convolutions.push_back(*conv);
  }
  return convolutions;
}

}  // namespace lazuli::codegen
