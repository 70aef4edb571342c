// Networks of convolutions, whose images go channels last (codegen/passes/convolution_layout.h): what is put together, taken apart and
// read in other ways.

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/as_good_as_eager.h"
#include "tests/support/same_as_eager.h"
#include "tests/support/test_device.h"

namespace lazuli::testing {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using Net = std::function<torch::Tensor(torch::Tensor)>;

// A network of what `build` registers, which runs as the function that it returns, and two shapes of images.
struct Network {
  std::string name;
  std::function<Net(nn::ModuleListImpl*)> build;
  std::vector<std::vector<int64_t>> shapes;
  friend std::ostream& operator<<(std::ostream& stream, const Network& network) { return stream << network.name; }
};

// A convolution with its norm and activation.
nn::Sequential Layer(nn::ModuleListImpl* parts, int64_t in, int64_t out, int64_t size = 3, int64_t stride = 1, int64_t groups = 1) {
  nn::Sequential layer(nn::Conv2d(nn::Conv2dOptions(in, out, size).stride(stride).padding(size / 2).groups(groups).bias(false)),
                       nn::BatchNorm2d(out), nn::SiLU());
  parts->push_back(layer);
  return layer;
}

torch::Tensor Enlarge(const torch::Tensor& x) {
  return F::interpolate(x, F::InterpolateFuncOptions().scale_factor(std::vector<double>{2, 2}).mode(torch::kNearest));
}

const std::vector<Network> kNetworks = {
    {
        "SkipConnections",
        [](nn::ModuleListImpl* parts) -> Net {
          auto a = Layer(parts, 3, 16), b = Layer(parts, 16, 32), c = Layer(parts, 48, 16), d = Layer(parts, 16, 2, 1);
          return [=](const torch::Tensor& x) mutable {
            const auto wide = a->forward(x);
            const auto deep = b->forward(torch::max_pool2d(wide, 2));
            return d->forward(c->forward(torch::cat({Enlarge(deep), wide}, 1)));
          };
        },
        {{2, 3, 16, 16}, {1, 3, 8, 12}},
    },
    {
        "Pyramid",
        [](nn::ModuleListImpl* parts) -> Net {
          auto a = Layer(parts, 3, 16), b = Layer(parts, 16, 16, 3, 2), c = Layer(parts, 16, 8, 1);
          return [=](const torch::Tensor& x) mutable {
            const auto fine = a->forward(x);
            const auto options = F::InterpolateFuncOptions().size(fine.sizes().slice(2).vec()).mode(torch::kBilinear).align_corners(false);
            return c->forward(F::interpolate(b->forward(fine), options) + fine);
          };
        },
        {{2, 3, 16, 16}, {1, 3, 9, 12}},
    },
    {
        "DepthwiseWithResiduals",
        [](nn::ModuleListImpl* parts) -> Net {
          auto a = Layer(parts, 3, 16, 3, 2), b = Layer(parts, 16, 48, 1), c = Layer(parts, 48, 48, 3, 1, 48), d = Layer(parts, 48, 16, 1);
          return [=](const torch::Tensor& x) mutable {
            const auto h = a->forward(x);
            return torch::relu(h + d->forward(F::relu6(c->forward(b->forward(h)))));
          };
        },
        {{3, 3, 16, 16}, {2, 3, 14, 20}},
    },
    {
        "BranchesAndShuffledHalves",
        [](nn::ModuleListImpl* parts) -> Net {
          auto a = Layer(parts, 3, 16), b = Layer(parts, 16, 8, 1), c = Layer(parts, 16, 12), d = Layer(parts, 20, 20, 3, 1, 4);
          return [=](const torch::Tensor& x) mutable {
            const auto h = a->forward(x);
            const auto y = torch::cat({b->forward(h), c->forward(h)}, 1);
            const auto halves = d->forward(y).chunk(2, 1);
            const auto mixed = torch::cat({halves[0], halves[1] * torch::sigmoid(halves[0])}, 1);
            const auto sizes = mixed.sizes().vec();
            return mixed.view({sizes[0], 2, sizes[1] / 2, sizes[2], sizes[3]}).transpose(1, 2).reshape(sizes);
          };
        },
        {{2, 3, 12, 12}, {4, 3, 9, 7}},
    },
    {
        "GrowingConcatenations",
        [](nn::ModuleListImpl* parts) -> Net {
          auto a = Layer(parts, 4, 8), b = Layer(parts, 12, 8), c = Layer(parts, 20, 8);
          return [=](const torch::Tensor& x) mutable {
            const auto one = torch::cat({x, a->forward(x)}, 1);
            const auto two = torch::cat({one, b->forward(one)}, 1);
            return torch::avg_pool2d(c->forward(two), 2);
          };
        },
        {{2, 4, 12, 12}, {3, 4, 8, 10}},
    },
    {
        "Decoder",
        [](nn::ModuleListImpl* parts) -> Net {
          nn::Sequential net(nn::ConvTranspose2d(nn::ConvTranspose2dOptions(10, 32, 4).bias(false)), nn::BatchNorm2d(32), nn::ReLU(),
                             nn::ConvTranspose2d(nn::ConvTranspose2dOptions(32, 16, 4).stride(2).padding(1).bias(false)),
                             nn::BatchNorm2d(16), nn::ReLU(),
                             nn::ConvTranspose2d(nn::ConvTranspose2dOptions(16, 1, 4).stride(2).padding(1)), nn::Tanh());
          parts->push_back(net);
          return [=](const torch::Tensor& x) mutable { return net->forward(x); };
        },
        {{4, 10, 1, 1}, {2, 10, 1, 1}},
    },
    {
        "ClassifierWithDropout",
        [](nn::ModuleListImpl* parts) -> Net {
          nn::Conv2d a(1, 10, 5), b(10, 20, 5);
          nn::Linear c(320, 10);
          for (const auto& conv : {a, b}) parts->push_back(conv);
          parts->push_back(c);
          return [=](const torch::Tensor& x) mutable {
            auto h = torch::relu(torch::max_pool2d(a->forward(x), 2));
            h = torch::relu(torch::max_pool2d(torch::dropout(b->forward(h), 0.5, true), 2));
            return torch::log_softmax(c->forward(h.view({-1, 320})), 1);
          };
        },
        {{4, 1, 28, 28}, {20, 1, 28, 28}},
    },
    {
        "ChannelsAreWeighed",
        [](nn::ModuleListImpl* parts) -> Net {
          auto a = Layer(parts, 3, 16), b = Layer(parts, 16, 16);
          nn::Linear squeeze(16, 4), excite(4, 16);
          parts->push_back(squeeze);
          parts->push_back(excite);
          return [=](const torch::Tensor& x) mutable {
            const auto h = a->forward(x);
            const auto weights = torch::sigmoid(excite->forward(torch::relu(squeeze->forward(h.mean({2, 3})))));
            return torch::pixel_shuffle(b->forward(h * weights.unsqueeze(-1).unsqueeze(-1)), 2);
          };
        },
        {{2, 3, 10, 10}, {3, 3, 6, 8}},
    },
    {
        "WeightsArePutTogether",
        [](nn::ModuleListImpl* parts) -> Net {
          auto a = Layer(parts, 3, 16), b = Layer(parts, 24, 8, 1, 2), c = Layer(parts, 3, 12, 1, 2);
          nn::Conv2d left(nn::Conv2dOptions(16, 8, 3).bias(false)), right(nn::Conv2dOptions(16, 16, 3).bias(false));
          for (const auto& conv : {left, right}) parts->push_back(conv);
          return [=](const torch::Tensor& x) mutable {
            const auto weight = torch::cat({left->weight * 2, torch::tanh(right->weight)});
            const auto h = torch::relu(torch::conv2d(a->forward(x), weight, {}, 1, 1));
            return torch::cat({b->forward(h), c->forward(x)}, 1);
          };
        },
        {{2, 3, 12, 12}, {7, 3, 8, 16}},
    },
    {
        "PatchesAndRows",
        [](nn::ModuleListImpl* parts) -> Net {
          auto a = Layer(parts, 3, 16), b = Layer(parts, 16, 16);
          nn::LayerNorm norm(nn::LayerNormOptions({16}));
          parts->push_back(norm);
          return [=](const torch::Tensor& x) mutable {
            const auto h = b->forward(a->forward(x));
            const auto patches = h.unfold(2, 4, 4).unfold(3, 4, 4).sum({2, 3});
            const auto rows = norm->forward(h.flatten(2).transpose(1, 2)).mean(1);
            return torch::cat({patches.flatten(1), rows, h.slice(1, 3, 9).select(2, 1).flatten(1)}, 1);
          };
        },
        {{2, 3, 12, 12}, {3, 3, 8, 16}},
    },
};

class Networks : public ::testing::TestWithParam<Network> {};

// A result, and gradients of images, weights and norms, of which the statistics are kept.
TEST_P(Networks, TrainAsWellAsEager) {
  lazuli::reset();
  const Network& network = GetParam();
  for (const auto& shape : network.shapes) {
    const auto program = [&](torch::Dtype dtype) {
      torch::manual_seed(5);
      auto parts = std::make_shared<nn::ModuleListImpl>();
      const Net net = network.build(parts.get());
      const auto image = (torch::randn(shape) * 1.5).to(dtype).requires_grad_();
      parts->to(dtype);
      const auto result = net(image * 2);
      (result * torch::randn(result.sizes()).to(dtype)).sum().backward();
      Tensors results{result.detach(), image.grad()};
      for (const auto& weight : parts->parameters()) results.push_back(weight.grad());
      for (const auto& buffer : parts->buffers()) {
        if (buffer.is_floating_point()) results.push_back(buffer.clone());
      }
      return results;
    };
    const StatsDelta stats;
    const double allowed = OnGpu() ? 0x1p-9 : 0x1p-19;  // TF32, and a few roundings.
    ExpectAsGoodAsEager(program, torch::kFloat, Options().disk_cache(false), allowed);
    EXPECT_GE(stats.of(&Stats::programs_compiled), 1) << "nothing was compiled";
    EXPECT_GE(stats.of(&Stats::cache_hits), 1);
    EXPECT_EQ(stats.of(&Stats::compile_failures), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Modules, Networks, ::testing::ValuesIn(kNetworks),
                         [](const ::testing::TestParamInfo<Network>& info) { return info.param.name; });

}  // namespace
}  // namespace lazuli::testing
