// Residual networks.
#include "workload.h"

namespace workloads {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;

nn::Conv2d Conv(int64_t in, int64_t out, int64_t kernel, int64_t stride = 1) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

nn::ReLU Relu() { return nn::ReLU(nn::ReLUOptions(/*inplace=*/true)); }

// A basic block (ResNet-18) or a bottleneck (ResNet-50), and its shortcut.
class ResidualImpl : public nn::Module {
 public:
  ResidualImpl(int64_t channels, int64_t width, int64_t stride, bool bottleneck) {
    const int64_t out = bottleneck ? 4 * width : width;
    nn::Sequential body;
    if (bottleneck) {
      body = nn::Sequential(Conv(channels, width, 1), nn::BatchNorm2d(width), Relu(), Conv(width, width, 3, stride), nn::BatchNorm2d(width),
                            Relu(), Conv(width, out, 1), nn::BatchNorm2d(out));
    } else {
      body = nn::Sequential(Conv(channels, width, 3, stride), nn::BatchNorm2d(width), Relu(), Conv(width, out, 3), nn::BatchNorm2d(out));
    }
    body_ = register_module("body", body);
    if (stride != 1 || channels != out) {
      shortcut_ = register_module("shortcut", nn::Sequential(Conv(channels, out, 1, stride), nn::BatchNorm2d(out)));
    }
  }

  torch::Tensor forward(const torch::Tensor& x) { return (body_->forward(x) + (shortcut_ ? shortcut_->forward(x) : x)).relu_(); }

 private:
  nn::Sequential body_{nullptr}, shortcut_{nullptr};
};
TORCH_MODULE(Residual);

nn::Sequential ResNet(const std::vector<int64_t>& depths, bool bottleneck) {
  nn::Sequential model(Conv(3, 64, 7, 2), nn::BatchNorm2d(64), Relu(), nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).padding(1)));
  int64_t channels = 64, width = 64;
  for (size_t stage = 0; stage < depths.size(); ++stage, width *= 2) {
    for (int64_t block = 0; block < depths[stage]; ++block) {
      model->push_back(Residual(channels, width, stage > 0 && block == 0 ? 2 : 1, bottleneck));
      channels = bottleneck ? 4 * width : width;
    }
  }
  model->push_back(nn::AdaptiveAvgPool2d(nn::AdaptiveAvgPool2dOptions(1)));
  model->push_back(nn::Flatten());
  model->push_back(nn::Linear(channels, 1000));
  return model;
}

void ToChannelsLast(nn::Sequential& model) {
  const torch::NoGradGuard no_grad;
  for (auto& parameter : model->parameters()) {
    if (parameter.dim() == 4) parameter.set_data(parameter.contiguous(torch::MemoryFormat::ChannelsLast));
  }
}

// The model, where and as wide as `like` is.
nn::Sequential Like(const torch::Tensor& like, nn::Sequential model) {
  model->to(like.device(), like.scalar_type());
  return model;
}

Step Inference(nn::Sequential model, const torch::Tensor& inputs) {
  model->eval();
  return [=]() mutable {
    const torch::NoGradGuard no_grad;
    return model->forward(inputs);
  };
}

Step ResNet18Inference(torch::Device device) {
  const auto image = torch::randn({1, 3, 224, 224}, device);
  return Inference(Like(image, ResNet({2, 2, 2, 2}, false)), image);
}

nn::Sequential ResNet50(const torch::Tensor& images) {
  nn::Sequential model = Like(images, ResNet({3, 4, 6, 3}, true));
  ToChannelsLast(model);
  return model;
}

torch::Tensor Images(torch::Device device) {
  const auto images = torch::randn({device.is_cuda() ? 64 : 4, 3, 224, 224}, device);
  return images.to(device.is_cuda() ? torch::kBFloat16 : torch::kFloat).contiguous(torch::MemoryFormat::ChannelsLast);
}

Step ResNet50Inference(torch::Device device) {
  const auto images = Images(device);
  return Inference(ResNet50(images), images);
}

Step ResNet50Train(torch::Device device) {
  const auto inputs = Images(device);
  nn::Sequential model = ResNet50(inputs);
  const auto labels = torch::randint(0, 1000, {inputs.size(0)}, torch::TensorOptions(torch::kLong).device(device));
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(1e-4).momentum(0.9));
  return Trainer(std::move(optimizer), [=]() mutable { return F::cross_entropy(model->forward(inputs), labels); });
}

}  // namespace

std::vector<Workload> ImageWorkloads() {
  return {
      {"resnet18_infer", "ResNet-18 over one image of 224x224, contiguous, without grad", ResNet18Inference, 5, 20},
      {"resnet50_infer", "ResNet-50 in channels_last over 4 images of 224x224, without grad (64 in bfloat16)", ResNet50Inference, 4, 10},
      {"resnet50_train", "training step of ResNet-50 in channels_last, batch of 4 images, SGD with momentum (64 in bfloat16)",
       ResNet50Train, 4, 5},
  };
}

}  // namespace workloads
