// Operations that look at, replace or share a tensor's memory.

#include <ATen/native/Resize.h>
#include <torch/torch.h>

#include "tests/support/same_as_eager.h"
#include "tests/support/test_device.h"

namespace lazuli::testing {
namespace {

class StorageTest : public BackendTest {};

TEST_P(StorageTest, OutArgument) {
  ExpectSameAsEager([] {
    auto a = torch::arange(6, torch::kFloat) + 1;
    auto b = a * 2;
    auto out = torch::empty({6});
    torch::add_out(out, a, b);
    auto resized = torch::empty({0});
    torch::mul_out(resized, a, out);
    auto strided = torch::zeros({6, 2});
    auto column = strided.select(1, 1);
    torch::sub_out(column, a, 3);
    return Tensors{out, resized, strided, out + resized};
  });
}

TEST_P(StorageTest, OutArgumentOfTheResultsShapeNeedsNoCut) {
  ExpectSameAsEager([] {
    auto a = torch::arange(6, torch::kFloat).view({2, 3}) + 1;
    auto b = a * 2;
    auto largest = a * 1.5;
    torch::max_out(largest, a, largest);
    torch::mul_out(a, a, b);
    auto sums = torch::zeros({2}) * 1;
    torch::sum_out(sums, a, 1);
    EXPECT_EQ(a._version(), 1);
    EXPECT_EQ(largest._version(), 1);
    return Tensors{a, b, largest, sums};
  });
  if (OnGpu()) return;  // An out= operator may run eagerly there.
  EXPECT_EQ(lazuli::stats().eager_fallbacks, (std::map<std::string, int64_t>{}));
}

// What is yet to read the memory comes first, however long the program has held the storage.
TEST_P(StorageTest, ResizingAStorageThatAPendingCopyIsYetToRead) {
  LAZULI_CPU_ONLY("resize_bytes_nocuda refuses a GPU's storages");
  ExpectSameAsEager([] {
    auto x = torch::arange(6, torch::kFloat) * 2;
    const c10::Storage storage = x.storage();
    x.data_ptr();
    auto copy = x.clone() + 1;
    at::native::resize_bytes_nocuda(storage, 0);
    at::native::resize_bytes_nocuda(storage, 24);
    x.fill_(3);
    return Tensors{copy, x + copy};
  });
}

// Both results in one place: which one stays is eager's affair.
TEST_P(StorageTest, OutArgumentsInTheSamePlace) {
  ExpectSameAsEager([] {
    auto x = torch::arange(6, torch::kFloat) - 2.5;
    auto both = torch::zeros({6}) * 1;
    at::log_sigmoid_forward_out(both, both, x);
    auto apart = torch::zeros({6}) * 1, buffer = torch::zeros({6}) * 1;
    at::log_sigmoid_forward_out(apart, buffer, x);
    return Tensors{both, apart, buffer};
  });
}

TEST_P(StorageTest, OutArgumentThatDoesNotFitIsEagers) {
  const auto error_of = [](const std::function<void(const torch::Tensor&, torch::Tensor&)>& call) {
    auto x = torch::arange(12, torch::kFloat) * 2;
    auto y = x * 3;
    try {
      call(x, y);
      y.sum().item<float>();
    } catch (const c10::Error& error) {
      return std::string(error.what_without_backtrace());
    }
    return std::string();
  };
  const std::function<void(const torch::Tensor&, torch::Tensor&)> calls[] = {
      [](const torch::Tensor& x, torch::Tensor& y) { torch::add_out(y, x, x.requires_grad_()); },
      [](const torch::Tensor& x, torch::Tensor& y) {
        auto window = y.slice(0, 2, 8);
        torch::exp_out(window, y.slice(0, 4, 10));
      },
      [](const torch::Tensor& x, torch::Tensor& y) {
        auto overlapping = y.slice(0, 0, 1).expand({12});
        torch::exp_out(overlapping, x);
      },
      [](const torch::Tensor& x, torch::Tensor& y) {
        auto ints = y.to(torch::kInt);
        torch::exp_out(ints, x);
      },
  };
  for (const auto& call : calls) {
    const std::string eager = error_of(call);
    EXPECT_NE(eager, "");
    const lazuli::DeviceMode mode(options());
    EXPECT_EQ(error_of(call), eager);
  }
}

TEST_P(StorageTest, ResizeOfPendingTensor) {
  ExpectSameAsEager([] {
    auto x = torch::arange(6, torch::kFloat) * 2;
    x.resize_({2, 3});
    auto grown = torch::ones({4}) + 1;
    grown.resize_({6});
    grown.slice(0, 4, 6).zero_();
    grown.add_(1);
    return Tensors{x, x + 1, grown};
  });
}

// An operator in place that gives what it writes another size, seen once before it could be recorded.
TEST_P(StorageTest, OperatorsThatResizeWhatTheyWrite) {
  ExpectSameAsEager([] {
    const auto a = torch::arange(30, torch::kFloat).view({2, 5, 3});
    const auto b = torch::arange(24, torch::kFloat).view({2, 3, 4});
    auto sum = torch::ones({}) * 3;
    sum.addbmm_(a, b, 0.5, 2);
    return Tensors{sum, sum + 1};
  });
}

TEST_P(StorageTest, SetReplacesMemory) {
  ExpectSameAsEager([] {
    auto a = torch::arange(6, torch::kFloat) + 1;
    auto b = torch::zeros({2, 2}) + 3;
    b.set_(a);
    a.mul_(10);
    auto c = torch::empty({0});
    c.set_(a.storage(), 2, {2}, {2});
    c.add_(1);
    return Tensors{a, b, c, b + 1};
  });
}

// Running statistics as Python's deepcopy makes them. Written once, they are tensors like any other.
TEST_P(StorageTest, BuffersOverACopiedStorage) {
  const auto x = torch::arange(24, torch::kFloat).view({6, 4}).sin();
  std::vector<c10::Storage> storages;  // Others hold them, too.
  const auto copied = [&](const torch::Tensor& source) {
    storages.push_back(source.clone().storage());
    return torch::empty({0}).set_(storages.back(), 0, {4}, {1});
  };
  const auto run = [&](const std::function<void()>& after_step) {
    const auto mean = copied(torch::zeros({4})), variance = copied(torch::ones({4}));
    Tensors results;
    for (int i = 0; i < 4; ++i) {
      results.push_back(std::get<0>(at::native_batch_norm(x * 2, {}, {}, mean, variance, /*training=*/true, 0.1, 1e-5)));
      after_step();
    }
    results.insert(results.end(), {mean, variance});
    return results;
  };
  const Tensors eager = run([] {});
  const lazuli::DeviceMode mode(options());
  const StatsDelta delta;
  const Tensors lazy = run([] { lazuli::sync(); });
  lazuli::sync();
  ExpectSame(eager, lazy, exact(), "results and statistics");
  // A shape function is asked on a GPU only after it foretold what was observed.
  EXPECT_LE(delta.fallbacks("aten::native_batch_norm"), OnGpu() ? 2 : 1);
}

TEST_P(StorageTest, DataPointerSeesEverythingRecordedBefore) {
  LAZULI_CPU_ONLY("the host reads memory");
  ExpectSameAsEager([] {
    auto x = torch::ones({4});
    x.add_(2);
    const float first = x.data_ptr<float>()[0];
    x.mul_(3);
    const auto accessor = x.accessor<float, 1>();
    return Tensors{torch::full({1}, first), torch::full({1}, accessor[3]), x};
  });
}

TEST_P(StorageTest, WriteThroughPointerBetweenOps) {
  LAZULI_CPU_ONLY("the host reads memory");
  ExpectSameAsEager([] {
    auto x = torch::ones({4}) + 1;
    float* p = x.data_ptr<float>();
    auto before = x * 1;
    before.data_ptr<float>();
    p[2] = 50;
    auto after = x * 2;
    return Tensors{before, after, x};
  });
}

TEST_P(StorageTest, PlainTensorsMadeBeforeTheModeAreWrittenInPlace) {
  LAZULI_CPU_ONLY("the host reads memory");
  const auto make = [] { return std::make_pair(torch::ones({3, 3}), torch::arange(9, torch::kFloat).view({3, 3})); };
  const auto work = [](torch::Tensor& a, torch::Tensor& b) {
    a.add_(b);
    b.t().mul_(2);
    a.addcmul_(b, b, 0.5);
  };
  auto [a, b] = make();
  work(a, b);
  auto [lazy_a, lazy_b] = make();
  const float* pointer = lazy_a.data_ptr<float>();
  const auto alias = lazy_a.view({9});
  const StatsDelta delta;
  {
    const lazuli::DeviceMode mode(options());
    work(lazy_a, lazy_b);
    EXPECT_EQ(delta.of(&Stats::traces), 0);
    // Asking for the pointer runs the writes, and the memory stays where it was.
    EXPECT_EQ(lazy_a.data_ptr<float>(), pointer);
    EXPECT_EQ(delta.cuts("data_ptr"), 1);
    EXPECT_EQ(pointer[8], a.data_ptr<float>()[8]);
    EXPECT_EQ((alias.accessor<float, 1>()[4]), a.data_ptr<float>()[4]);
  }
  ExpectSame(a, lazy_a, exact(), "a");
  ExpectSame(b, lazy_b, exact(), "b");
  ExpectSame(a.view({9}), alias, exact(), "alias");
}

TEST_P(StorageTest, ParameterAccessorAfterARecordedOptimizerStep) {
  LAZULI_CPU_ONLY("the host reads memory");
  const auto run = [](bool lazy, const Options& options) {
    torch::manual_seed(5);
    torch::nn::Linear layer(3, 2);
    torch::optim::SGD optimizer(layer->parameters(), torch::optim::SGDOptions(0.5));
    std::unique_ptr<lazuli::DeviceMode> mode;
    if (lazy) mode = std::make_unique<lazuli::DeviceMode>(options);
    layer->forward(torch::ones({4, 3})).sum().backward();
    optimizer.step();
    std::vector<float> values;
    const auto weights = layer->weight.accessor<float, 2>();
    for (int i = 0; i < 2; ++i) {
      for (int j = 0; j < 3; ++j) values.push_back(weights[i][j]);
    }
    return values;
  };
  const auto eager = run(false, options());
  const auto lazy = run(true, options());
  for (size_t i = 0; i < eager.size(); ++i) EXPECT_FLOAT_EQ(eager[i], lazy[i]);
}

TEST_P(StorageTest, DetachAndDataShareMemory) {
  ExpectSameAsEager([] {
    auto x = torch::arange(4, torch::kFloat).requires_grad_();
    auto y = x * 2;
    auto detached = y.detach();
    detached.add_(1);
    auto data = y.data();
    data.mul_(3);
    auto variable = y.variable_data();
    return Tensors{y, detached, data, variable, y.sum()};
  });
}

TEST_P(StorageTest, SetDataOfPlainAndPendingTensors) {
  ExpectSameAsEager([] {
    auto parameter = torch::ones({3}).requires_grad_();
    auto pending = torch::arange(3, torch::kFloat) * 4;
    parameter.set_data(pending);
    pending.add_(1);
    auto loss = (parameter * parameter).sum();
    loss.backward();
    auto second = torch::zeros({3}) + 1;
    second.set_data(parameter.detach() * 2);
    second.sub_(1);
    return Tensors{parameter, parameter.grad(), pending, second};
  });
}

TEST_P(StorageTest, ModuleMovedToAnotherDtype) {
  ExpectSameAsEager([] {
    torch::nn::Linear layer(4, 3);
    auto x = torch::randn({2, 4});
    auto y = layer->forward(x);
    layer->to(torch::kDouble);
    auto z = layer->forward(x.to(torch::kDouble));
    return Tensors{y, z, layer->weight};
  });
}

TEST_P(StorageTest, SwappingContentsKeepsIdentity) {
  ExpectSameAsEager([] {
    auto a = torch::zeros({3}) + 1;
    auto b = torch::zeros({3}) + 2;
    std::swap(a, b);
    a.add_(10);
    auto moved = std::move(b);
    moved.mul_(7);
    return Tensors{a, moved, a + moved};
  });
}

TEST_P(StorageTest, ANestedTensorOverWhatIsPending) {
  ExpectSameAsEager([] {
    const auto rows = torch::arange(12, torch::kFloat).view({3, 4}) + 1;
    const auto sizes = torch::full({3, 1}, 4, at::TensorOptions(torch::kLong).device(torch::kCPU));
    const auto strides = torch::full({3, 1}, 1, at::TensorOptions(torch::kLong).device(torch::kCPU));
    const auto offsets = torch::arange(3, at::TensorOptions(torch::kLong).device(torch::kCPU)) * 4;
    Tensors parts = at::_nested_view_from_buffer(rows.reshape(-1), sizes, strides, offsets).unbind();
    for (torch::Tensor& part : parts) part = part * 2;
    return parts;
  });
}

TEST_P(StorageTest, NothingThatIsCopied) {
  ExpectSameAsEager([] {
    const auto stacked = torch::stack({torch::ones({0}), torch::ones({0})}).clone();
    const auto joined = torch::cat({torch::ones({0, 4, 4}) * 2, torch::ones({0, 4, 1}) * 2}, -1).clone();
    return Tensors{stacked, joined, torch::ones({2}) + 1};
  });
}

// Windows that are alike in the runs that made a program, and differ in a later one.
TEST_P(StorageTest, WindowsThatBecomeDifferent) {
  for (const int64_t n : {12, 10, 8, 7, 9, 12, 5}) {
    torch::manual_seed(1);
    const auto x = torch::randn({n});
    const auto eager = torch::cat({x.slice(0, 0, n / 2), x.slice(0, 0, (n + 1) / 2)}) + 1;
    const lazuli::DeviceMode mode(options());
    const auto y = x + 0;
    const auto lazy = torch::cat({y.slice(0, 0, n / 2), y.slice(0, 0, (n + 1) / 2)});
    ExpectSame(eager, lazy.clone() + 1, exact(), "of " + std::to_string(n));
  }
}

LAZULI_FOR_EACH_BACKEND(StorageTest);

}  // namespace
}  // namespace lazuli::testing
