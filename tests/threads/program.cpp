// A program that does its work on threads, and knows nothing of Lazuli. Prints numbers; run eagerly and under LAZULI_THREADS=1 by run.py.

#include <ATen/Parallel.h>
#include <pthread.h>
#include <torch/torch.h>

#include <cstdio>
#include <future>
#include <thread>

namespace {

// `steps` of training on a generator of its own.
double Train(int64_t seed, int steps, std::vector<torch::Tensor>* parameters) {
  auto generator = torch::make_generator<at::CPUGeneratorImpl>(seed);
  auto weight = (torch::randn({8, 4}, generator) * 0.3).requires_grad_();
  auto bias = torch::zeros({4}).requires_grad_();
  torch::optim::Adam optimizer({weight, bias}, 0.01);
  double last = 0;
  for (int step = 0; step < steps; ++step) {
    const auto input = torch::randn({16, 8}, generator);
    const auto loss = (torch::tanh(input.matmul(weight) + bias) - 0.5).pow(2).mean();
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    last = loss.item<double>();
  }
  *parameters = {weight, bias};
  return last;
}

// Pending work at the end of a thread is for others to read.
torch::Tensor Pending(double scale) { return (torch::arange(6, torch::kFloat) * scale).exp().add_(1); }

void* ExitInTheMiddle(void* result) {
  *static_cast<torch::Tensor*>(result) = Pending(0.3);
  pthread_exit(result);
}

double Parallel() {
  const auto x = torch::arange(64, torch::kFloat) * 0.5;
  std::vector<double> sums(8);
  at::parallel_for(0, 8, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) sums[i] = (x.slice(0, 8 * i, 8 * i + 8) * 2).sum().item<double>();
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

struct Squares : torch::data::Dataset<Squares> {
  torch::data::Example<> get(size_t index) override {
    const auto x = torch::full({4}, static_cast<double>(index));
    return {x * x, x + 1};
  }
  c10::optional<size_t> size() const override { return 12; }
};

double Load() {
  auto loader = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(Squares().map(torch::data::transforms::Stack<>()),
                                                                                        torch::data::DataLoaderOptions(4).workers(2));
  double total = 0;
  for (auto& batch : *loader) total += (batch.data * batch.target).sum().item<double>();
  return total;
}

}  // namespace

int main() {
  std::vector<std::vector<torch::Tensor>> parameters(3);
  std::vector<double> losses(3);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] { losses[i] = Train(static_cast<int64_t>(i) + 1, 12, &parameters[i]); });
  }
  for (auto& thread : threads) thread.join();
  for (size_t i = 0; i < 3; ++i) std::printf("loss %.5f sum %.5f\n", losses[i], parameters[i][0].sum().item<double>());

  torch::Tensor left, nested;
  pthread_t plain;
  pthread_create(&plain, nullptr, &ExitInTheMiddle, &left);
  pthread_join(plain, nullptr);
  std::thread([&] { std::thread([&] { nested = Pending(0.1); }).join(); }).join();
  std::printf("left %.5f nested %.5f\n", left.sum().item<double>(), nested.sum().item<double>());

  auto future = std::async(std::launch::async, [] { return Parallel(); });
  std::printf("parallel %.5f\n", future.get());
  std::printf("loaded %.5f\n", Load());
  return 0;
}
