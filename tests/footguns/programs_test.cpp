// What whole programs do: modules moved and cloned, data loaded, generators, utilities, modes on several threads.

#include <ATen/CPUGeneratorImpl.h>
#include <torch/torch.h>

#include <optional>
#include <sstream>
#include <thread>

#include "tests/support/same_as_eager.h"
#include "tests/support/test_device.h"

namespace lazuli::testing {
namespace {

namespace nn = torch::nn;

class ProgramsTest : public BackendTest {};

TEST_P(ProgramsTest, ModeOnASecondThreadWhileTheFirstIsInOne) {
  const auto work = [](double scale) {
    auto x = torch::arange(6, torch::kFloat) * scale;
    for (int i = 0; i < 3; ++i) x = (x + 1).relu().mul_(0.5);
    return x;
  };
  const auto first = work(1);
  const auto second = work(2);
  const lazuli::DeviceMode outer(options());
  const lazuli::DeviceMode nested(options());
  const StatsDelta delta;
  auto pending = work(1);
  torch::Tensor other;
  TestThread([&] {
    EXPECT_FALSE(lazuli::is_enabled());
    const lazuli::DeviceMode own(options());
    other = work(2);
    // Another mode's pending work is read, and written.
    other.add_(pending.sum());
    pending.add_(1);
  }).join();
  EXPECT_TRUE(lazuli::is_enabled());
  ExpectSame(first + 1, pending, exact(), "first");
  ExpectSame(second + first.sum(), other, exact(), "second");
  EXPECT_GE(delta.of(&Stats::traces), 2);
}

TEST_P(ProgramsTest, ModesEndInTheOrderOfUnwinding) {
  auto x = torch::ones({3});
  const auto thrower = [&] {
    const lazuli::DeviceMode outer(options());
    try {
      const lazuli::DeviceMode inner(options());
      x.add_(1);
      torch::ones({2, 3}).mm(torch::ones({2, 3}));
    } catch (const c10::Error&) {
      EXPECT_TRUE(lazuli::is_enabled());
      x.mul_(2);
      throw std::runtime_error("out");
    }
  };
  EXPECT_THROW(thrower(), std::runtime_error);
  EXPECT_FALSE(lazuli::is_enabled());
  EXPECT_EQ(x.sum().item<float>(), 12);
  std::optional<lazuli::DeviceMode> held;
  held.emplace(options());
  auto moved = std::make_unique<lazuli::DeviceMode>(options());
  const auto owner = std::move(moved);
  held.reset();
  EXPECT_FALSE(lazuli::is_enabled()) << "only the outermost mode ends recording";
  EXPECT_EQ((x + 1).sum().item<float>(), 15);
}

TEST_P(ProgramsTest, ModulesMovedClonedAndSwapped) {
  ExpectSameAsEager([] {
    nn::Sequential model(nn::Linear(4, 4), nn::BatchNorm1d(4));
    const auto x = torch::randn({6, 4});
    auto y = model->forward(x);
    y.sum().backward();
    const auto copy = std::dynamic_pointer_cast<nn::SequentialImpl>(model->clone());
    {
      const torch::NoGradGuard no_grad;
      model[0]->as<nn::Linear>()->weight.mul_(3);
    }
    const auto cloned = copy->forward(x);
    model->to(torch::kDouble);
    const auto in_double = model->forward(x.to(torch::kDouble));
    model->to(torch::kFloat);
    model->zero_grad();
    auto& first = model[0]->as<nn::Linear>()->weight;
    auto& second = copy->ptr<nn::LinearImpl>(0)->weight;
    std::swap(first, second);
    model->eval();
    return Tensors{y, cloned, in_double, model->forward(x), copy->forward(x), first, second};
  });
}

TEST_P(ProgramsTest, GeneratorsOfTheProgram) {
  LAZULI_CPU_ONLY("generators are of one device");
  ExpectSameAsEager([] {
    auto generator = torch::make_generator<at::CPUGeneratorImpl>(7);
    auto a = torch::randn({4}, generator) * 2;
    auto twin = generator.clone();
    auto b = torch::rand({4}, generator) + a;
    auto c = torch::rand({4}, twin) + a;
    const auto state = generator.get_state();
    auto d = torch::empty({6}).normal_(0, 1, generator) * 3;
    generator.set_state(state);
    auto e = torch::empty({6}).normal_(0, 1, generator) * 3;
    torch::manual_seed(11);
    auto f = torch::randperm(9) * 2;
    auto g = nn::functional::dropout(torch::ones({8}) * 2, nn::functional::DropoutFuncOptions().p(0.5));
    {
      const std::lock_guard<std::mutex> lock(generator.mutex());
      generator.set_current_seed(3);
    }
    auto h = torch::bernoulli(torch::full({8}, 0.4) * 1, generator);
    auto i = torch::multinomial(torch::rand({5}) + 0.1, 2, false, generator);
    return Tensors{a, b, c, d, e, b - c, d - e, f, g, h, i, torch::rand({2}, twin)};
  });
}

TEST_P(ProgramsTest, DropoutInsideAFusedChain) {
  ExpectSameAsEager([] {
    auto x = torch::randn({16, 8}).requires_grad_();
    Tensors out;
    for (int i = 0; i < 3; ++i) {
      auto y = torch::dropout(torch::tanh(x * 2) + 1, 0.4, true) * 3;
      y.sum().backward();
      out.push_back(y.detach());
    }
    out.push_back(x.grad());
    return out;
  });
}

TEST_P(ProgramsTest, GradientUtilities) {
  ExpectSameAsEager([] {
    nn::Sequential model(nn::Linear(4, 8), nn::Tanh(), nn::Linear(8, 2));
    const auto x = torch::randn({5, 4});
    Tensors out;
    for (int i = 0; i < 2; ++i) {
      model->zero_grad();
      model->forward(x).pow(2).sum().backward();
      const double norm = nn::utils::clip_grad_norm_(model->parameters(), 0.1);
      nn::utils::clip_grad_value_(model->parameters(), 0.02);
      auto flat = nn::utils::parameters_to_vector(model->parameters()).detach() * 0.9;
      nn::utils::vector_to_parameters(flat, model->parameters());
      flat.zero_();
      out.push_back(torch::full({1}, norm));
    }
    for (const auto& parameter : model->parameters()) out.insert(out.end(), {parameter.detach().clone(), parameter.grad().clone()});
    return out;
  });
}

TEST_P(ProgramsTest, PackedSequences) {
  ExpectSameAsEager([] {
    nn::GRU gru(nn::GRUOptions(3, 5).batch_first(true));
    const auto padded = torch::randn({3, 4, 3}) * 2;
    const auto lengths = torch::tensor({4, 2, 3});
    const auto packed = nn::utils::rnn::pack_padded_sequence(padded, lengths, /*batch_first=*/true, /*enforce_sorted=*/false);
    const auto [output, state] = gru->forward_with_packed_input(packed);
    const auto [unpacked, sizes] = nn::utils::rnn::pad_packed_sequence(output, /*batch_first=*/true);
    unpacked.pow(2).sum().backward();
    const auto joined = nn::utils::rnn::pad_sequence({torch::ones({2}) * 2, torch::ones({3}) * 3}, true);
    return Tensors{unpacked, sizes, state, gru->parameters()[0].grad(), joined};
  });
}

// Gives tensors that are pending in the mode of the thread that made the set, and makes more in the worker.
struct PendingSet : torch::data::Dataset<PendingSet> {
  explicit PendingSet(torch::Tensor in_rows) : rows(std::move(in_rows)) {}
  torch::data::Example<> get(size_t index) override {
    const auto row = rows[static_cast<int64_t>(index)];
    return {row * 2, (row.sum() > 0).to(torch::kFloat)};
  }
  c10::optional<size_t> size() const override { return static_cast<size_t>(rows.size(0)); }
  torch::Tensor rows;
};

TEST_P(ProgramsTest, DataLoaderWorkersOverPendingTensors) {
  ExpectSameAsEager([] {
    auto rows = torch::arange(24, torch::kFloat).view({12, 2}) * 0.5;
    rows.sub_(3);
    auto data = PendingSet(rows).map(torch::data::transforms::Stack<>());
    auto loader = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(std::move(data),
                                                                                          torch::data::DataLoaderOptions(4).workers(2));
    Tensors out;
    auto weight = torch::ones({2, 1}).requires_grad_();
    for (auto& batch : *loader) {
      batch.data.add_(1);
      (batch.data.matmul(weight).squeeze(1) * batch.target).sum().backward();
      out.push_back(batch.data);
    }
    out.push_back(weight.grad());
    return out;
  });
}

TEST_P(ProgramsTest, ArchivesOfPendingTensorsAndState) {
  ExpectSameAsEager([] {
    std::vector<torch::Tensor> state;
    for (int i = 0; i < 3; ++i) state.push_back(torch::full({2, 2}, i) * 1.5);
    state[1].add_(state[0]);
    std::stringstream stream;
    torch::save(state, stream);
    for (auto& tensor : state) tensor.zero_();
    std::vector<torch::Tensor> loaded;
    torch::load(loaded, stream);
    loaded[2].mul_(2);
    torch::serialize::OutputArchive out;
    out.write("pending", loaded[2] + 1);
    std::stringstream second;
    out.save_to(second);
    torch::serialize::InputArchive in;
    in.load_from(second);
    torch::Tensor read;
    in.read("pending", read);
    return Tensors{state[0], loaded[0], loaded[1], loaded[2], read};
  });
}

TEST_P(ProgramsTest, PrintingEveryDtype) {
  const auto print = [] {
    std::ostringstream stream;
    auto x = torch::arange(6, torch::kFloat).view({2, 3}) * 1.25;
    stream << x << x.to(torch::kInt) << (x > 2) << torch::complex(x, x) << x.sum() << x.slice(0, 0, 0) << x.to(torch::kHalf).select(0, 1);
    torch::print(stream, x, 40);
    stream << x.toString() << x.sizes() << x.options();
    return stream.str();
  };
  const std::string eager = print();
  for (int round = 0; round < 2; ++round) {
    const lazuli::DeviceMode mode(options());
    EXPECT_EQ(print(), eager);
  }
}

LAZULI_FOR_EACH_BACKEND(ProgramsTest);

}  // namespace
}  // namespace lazuli::testing
