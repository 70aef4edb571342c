// Operators of the program's own, with kernels for meta tensors, so that they are recorded: what a schema does not say of them.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include "tests/support/log_file.h"
#include "tests/support/same_as_eager.h"
#include "tests/support/test_device.h"

namespace lazuli::testing {
namespace {

Tensors kept;  // What operators go on holding.
torch::Tensor Kept(int step) { return kept.at(static_cast<size_t>(step)); }

// An operator "lazuli_own_<name>::call" with this schema and kernel, new for each test: what is known of one stays known.
template <class Kernel, class Meta>
c10::OperatorHandle Define(const std::string& name, const std::string& schema, const Kernel& kernel, const Meta& meta) {
  const std::string space = "lazuli_own_" + name;
  auto* library = new torch::Library(torch::Library::DEF, space, std::nullopt, __FILE__, __LINE__);
  library->def(("call" + schema).c_str());
  for (const torch::DeviceType device : {torch::kCPU, torch::kCUDA}) library->impl("call", torch::dispatch(device, kernel));
  library->impl("call", torch::dispatch(torch::kMeta, meta));
  return c10::Dispatcher::singleton().findSchemaOrThrow((space + "::call").c_str(), "");
}

torch::Tensor LikeOne(const torch::Tensor& x) { return torch::empty_like(x); }

std::optional<c10::OperatorHandle> cube;
torch::Tensor CallCube(const torch::Tensor& x) { return cube->typed<torch::Tensor(const torch::Tensor&)>().call(x); }
struct Cube : torch::autograd::Function<Cube> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x) {
    context->save_for_backward({x});
    const at::AutoDispatchBelowADInplaceOrView below;
    return CallCube(x);
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context, const torch::autograd::tensor_list& gradients) {
    const auto x = context->get_saved_variables()[0];
    return {3 * x * x * gradients[0]};
  }
};

class OwnOperatorsTest : public BackendTest {
 protected:
  // The first runs are watched.
  void ExpectSameInTime(const Program& program) const { ExpectSameInTime(program, options()); }
  void ExpectSameInTime(const Program& program, const Options& with) const { ExpectSameAsEager(program, with, /*runs=*/6); }
  void TearDown() override { kept.clear(); }
  std::string Name(const std::string& name) const { return name + "_" + GetParam(); }

  // Calls `op`, which keeps what `held` then finds, with a fresh result in each of some steps of a program with other work.
  template <class Op, class Held>
  void ExpectKept(const Op& op, const Held& held, const std::string& log_file = "") {
    const StatsDelta delta;
    const lazuli::DeviceMode mode(options().logs("graph_breaks").log_file(log_file));
    constexpr int kSteps = 4;
    for (int step = 0; step < kSteps; ++step) {
      const auto x = torch::full({100}, step) * 2;
      op(x);
      EXPECT_EQ(held(step).sum().template item<float>(), 200 * step);
      EXPECT_EQ((torch::ones({100}) * step + 1).sum().template item<float>(), 100 * (step + 1));
    }
    for (int step = 0; step < kSteps; ++step) EXPECT_EQ(held(step).sum().template item<float>(), 200 * step);
    EXPECT_GT(delta.of(&Stats::cache_hits), 0);
  }
};

TEST_P(OwnOperatorsTest, OneThatKeepsItsOperand) {
  const auto op = Define(
                      Name("keeps"), "(Tensor x) -> Tensor",
                      [](const torch::Tensor& x) {
                        kept.push_back(x);
                        return x + 1;
                      },
                      &LikeOne)
                      .typed<torch::Tensor(const torch::Tensor&)>();
  const LogFile log;
  ExpectKept([&](const torch::Tensor& x) { op.call(x); }, &Kept, log.path());
  EXPECT_EQ(CountOf(log.text(), "lazuli_own_" + Name("keeps") + "::call keeps its operands or results: it is not recorded"), 1);
}

TEST_P(OwnOperatorsTest, OneThatKeepsAWindowOfItsOperand) {
  const auto op = Define(
                      Name("window"), "(Tensor x) -> Tensor",
                      [](const torch::Tensor& x) {
                        kept.push_back(x.detach().view({10, 10}));
                        return x + 1;
                      },
                      &LikeOne)
                      .typed<torch::Tensor(const torch::Tensor&)>();
  ExpectKept([&](const torch::Tensor& x) { EXPECT_EQ(op.call(x).sum().item<float>(), x.sum().item<float>() + 100); }, &Kept);
}

TEST_P(OwnOperatorsTest, OneThatKeepsAListsTensor) {
  const auto op = Define(
      Name("list"), "(Tensor[] x) -> Tensor",
      [](const c10::List<torch::Tensor>& list) {
        kept.push_back(list.get(1));
        return list.get(0) + 1;
      },
      [](const c10::List<torch::Tensor>& list) { return torch::empty_like(list.get(0)); });
  const auto call = [&](const torch::Tensor& x) {
    torch::jit::Stack stack{std::vector<torch::Tensor>{x + 1, x}};
    op.callBoxed(&stack);
    EXPECT_EQ(stack[0].toTensor().sum().item<float>(), x.sum().item<float>() + 200);
  };
  ExpectKept(call, &Kept);
}

// Such as a buffer that is allocated once: writes of what it returned are seen by the next call.
TEST_P(OwnOperatorsTest, OneThatHoldsOnToItsResult) {
  const auto op = Define(
                      Name("result"), "(Tensor x) -> Tensor",
                      [](const torch::Tensor& x) {
                        if (kept.empty()) kept.push_back(torch::zeros_like(x));
                        return kept[0];
                      },
                      &LikeOne)
                      .typed<torch::Tensor(const torch::Tensor&)>();
  const lazuli::DeviceMode mode(options());
  const auto x = torch::ones({8});
  for (int step = 0; step < 4; ++step) {
    op.call(x * 2).add_(1);
    EXPECT_EQ(kept.at(0).sum().item<float>(), 8 * (step + 1));
  }
}

// They run eagerly twice, and are recorded from then on: those that compute from their operands, write them, or return pieces of one
// result.
TEST_P(OwnOperatorsTest, OnesThatKeepNothing) {
  LAZULI_CPU_ONLY("a kernel writes through pointers");
  using OneToOne = torch::Tensor(const torch::Tensor&);
  const auto twice = Define(
                         Name("twice"), "(Tensor x) -> Tensor", [](const torch::Tensor& x) { return x * 2; }, &LikeOne)
                         .typed<OneToOne>();
  const auto write = [](torch::Tensor& x) -> torch::Tensor& {
    for (int64_t i = 0; i < x.numel(); ++i) x.mutable_data_ptr<float>()[i] += 1;
    return x;
  };
  const auto more = Define(Name("more"), "(Tensor(a!) x) -> Tensor(a!)", write, [](torch::Tensor& x) -> torch::Tensor& {
                      return x;
                    }).typed<torch::Tensor&(torch::Tensor&)>();
  const auto halves = [](const torch::Tensor& x) {
    const auto both = (x * 3).chunk(2);
    return std::make_tuple(both[0], both[1]);
  };
  const auto split = Define(Name("split"), "(Tensor x) -> (Tensor, Tensor)", halves, [](const torch::Tensor& x) {
                       const auto half = torch::empty({x.size(0) / 2}, x.options());
                       return std::make_tuple(half, torch::empty_like(half));
                     }).typed<std::tuple<torch::Tensor, torch::Tensor>(const torch::Tensor&)>();
  const StatsDelta delta;
  const auto eager = [&] {
    int64_t count = 0;
    for (const char* name : {"twice", "more", "split"}) {
      const std::string op = "lazuli_own_" + Name(name) + "::call";
      count += delta.fallbacks(op) + delta.uncut(op);
    }
    return count;
  };
  const lazuli::DeviceMode mode(options());
  for (int step = 0; step < 4; ++step) {
    auto x = twice.call(torch::ones({8}) + step);
    more.call(x);
    const auto [a, b] = split.call(x);
    EXPECT_EQ((a + b).sum().item<float>(), 8 * 3 * (2 * (step + 1) + 1));
  }
  EXPECT_EQ(eager(), 3 * 2);
  EXPECT_GT(delta.of(&Stats::cache_hits), 0);
}

TEST_P(OwnOperatorsTest, OneThatWritesItsOperand) {
  const auto op = Define(
                      Name("writes"), "(Tensor x) -> Tensor",
                      [](const torch::Tensor& x) {
                        x.add_(1);
                        return x * 2;
                      },
                      &LikeOne)
                      .typed<torch::Tensor(const torch::Tensor&)>();
  ExpectSameInTime([&] {
    const auto x = torch::randn({5}) * 2, y = x.exp();
    const auto z = op.call(x);
    return Tensors{x + 1, y, z, y + op.call(y)};
  });
}

// Numbers come in program order, before those of later operators.
// LibTorch puts an operator's composite kernel at the keys of all devices that have none of their own.
TEST_P(OwnOperatorsTest, OnesWithACompositeKernelToo) {
  static int composite_calls, device_calls;
  const auto plus_one = [](const torch::Tensor& x) { return ++composite_calls, x + 1; };
  const auto plus_two = [](const torch::Tensor& x) { return ++device_calls, x + 2; };
  for (const auto composite : {c10::DispatchKey::CompositeImplicitAutograd, c10::DispatchKey::CompositeExplicitAutograd}) {
    for (const bool before : {true, false}) {
      SCOPED_TRACE(before);
      const std::string space = "lazuli_own_" + Name(c10::toString(composite)) + (before ? "_before" : "_after");
      std::optional<lazuli::DeviceMode> mode;
      if (!before) mode.emplace(options());
      auto* library = new torch::Library(torch::Library::DEF, space, std::nullopt, __FILE__, __LINE__);
      for (const char* name : {"both", "one"}) {
        library->def((std::string(name) + "(Tensor x) -> Tensor").c_str());
        library->impl(name, torch::dispatch(composite, plus_one));
      }
      for (const torch::DeviceType device : {torch::kCPU, torch::kCUDA}) library->impl("both", torch::dispatch(device, plus_two));
      library->impl("one", torch::dispatch(torch::kMeta, [](const torch::Tensor& x) { return torch::empty({5}, x.options()); }));
      if (before) mode.emplace(options());
      const auto call = [&](const char* name, const torch::Tensor& x) {
        const auto op = c10::Dispatcher::singleton().findSchemaOrThrow((space + "::" + name).c_str(), "");
        return op.typed<torch::Tensor(const torch::Tensor&)>().call(x);
      };
      for (int run = 0; run < 3; ++run) {
        composite_calls = device_calls = 0;
        const StatsDelta delta;
        EXPECT_EQ(call("both", torch::ones({3}) * 2).sum().item<float>(), 12);
        EXPECT_EQ(composite_calls, 0);
        EXPECT_EQ(device_calls, 1);
        EXPECT_EQ(call("one", torch::ones({3}) * 3).sum().item<float>(), 12);
        EXPECT_EQ(composite_calls, 1);
        EXPECT_EQ(call("one", torch::ones({2}, torch::kMeta)).size(0), 5);
        EXPECT_EQ(composite_calls, 1);
        EXPECT_EQ(delta.fallbacks(space + "::one"), 0);
      }
    }
  }
}

TEST_P(OwnOperatorsTest, OneThatDrawsNumbers) {
  const auto op = Define(
                      Name("draws"), "(Tensor x) -> Tensor", [](const torch::Tensor& x) { return x + torch::rand_like(x); }, &LikeOne)
                      .typed<torch::Tensor(const torch::Tensor&)>();
  const LogFile log;
  ExpectSameInTime(
      [&] {
        const auto x = torch::randn({5}) * 2, y = op.call(x), z = torch::rand({5}) + x;
        torch::manual_seed(7);
        return Tensors{x, y * 2, z, op.call(z) + torch::rand({5})};
      },
      options().logs("graph_breaks").log_file(log.path()));
  EXPECT_EQ(CountOf(log.text(), "lazuli_own_" + Name("draws") + "::call draws random numbers: it is not recorded"), 1);
}

// LibTorch warns of such operators: autograd follows what their kernels call, so that they have gradients all the same.
TEST_P(OwnOperatorsTest, OnesWithoutAKernelForAutograd) {
  const auto op =
      Define(
          Name("sine"), "(Tensor x, Tensor y) -> Tensor", [](const torch::Tensor& x, const torch::Tensor& y) { return x.sin() * y; },
          [](const torch::Tensor& x, const torch::Tensor& /*y*/) { return torch::empty_like(x); })
          .typed<torch::Tensor(const torch::Tensor&, const torch::Tensor&)>();
  ExpectSameInTime([&] {
    auto x = torch::randn({6}).requires_grad_(), y = torch::randn({6}).requires_grad_();
    const auto z = op.call(x * 2, y);
    (z.exp() + op.call(x.detach() + 1, y.detach())).sum().backward();
    torch::Tensor sum;
    {
      const torch::NoGradGuard no_grad;
      sum = op.call(x, y) + 1;
    }
    return Tensors{z.detach(), x.grad(), y.grad(), sum};
  });
}

// These have one, which keeps what it needs itself: their kernels are recorded.
TEST_P(OwnOperatorsTest, OnesWithAKernelForAutograd) {
  const std::string space = "lazuli_own_" + Name("cube");
  cube = Define(
      Name("cube"), "(Tensor x) -> Tensor", [](const torch::Tensor& x) { return x * x * x; }, &LikeOne);
  torch::Library library(torch::Library::IMPL, space, c10::DispatchKey::Autograd, __FILE__, __LINE__);
  library.impl("call", [](const torch::Tensor& x) { return Cube::apply(x); });
  const auto program = [] {
    auto x = torch::randn({6}).requires_grad_();
    CallCube(x * 2).sum().backward();
    return Tensors{x.grad()};
  };
  {
    const lazuli::DeviceMode mode(options());
    for (int run = 0; run < 2; ++run) program();
  }
  const StatsDelta delta;
  ExpectSameAsEager(program);
  EXPECT_EQ(delta.fallbacks(space + "::call"), 0);
}

// Their kernels count what they write, bring an operand back, or change its size.
TEST_P(OwnOperatorsTest, OnesThatDoMoreToTheirOperands) {
  const auto twice = Define(
                         Name("inplace"), "(Tensor(a!) x) -> Tensor(a!)", [](torch::Tensor& x) -> torch::Tensor& { return x.mul_(2); },
                         [](torch::Tensor& x) -> torch::Tensor& { return x; })
                         .typed<torch::Tensor&(torch::Tensor&)>();
  const auto same = Define(
                        Name("same"), "(Tensor x) -> Tensor", [](const torch::Tensor& x) { return x.contiguous(); }, &LikeOne)
                        .typed<torch::Tensor(const torch::Tensor&)>();
  const auto grow = [](torch::Tensor& x) -> torch::Tensor& {
    x.resize_({x.size(0) + 1});
    x[-1].fill_(3);
    return x;
  };
  const auto longer = Define(Name("grow"), "(Tensor(a!) x) -> Tensor(a!)", grow, [](torch::Tensor& x) -> torch::Tensor& {
                        x.resize_({x.size(0) + 1});
                        return x;
                      }).typed<torch::Tensor&(torch::Tensor&)>();
  ExpectSameInTime([&] {
    auto x = torch::ones({4}) * 3, y = torch::ones({4}) * 2, z = torch::ones({2, 3}) * 2;
    twice.call(x);
    longer.call(y);
    same.call(z).add_(5);
    return Tensors{x + 1, torch::tensor(static_cast<int64_t>(x._version())), y * 2, z * 3};
  });
}

TEST_P(OwnOperatorsTest, OneThatComputesGradientsItself) {
  const auto forces = [](const torch::Tensor& x) {
    const auto position = x.detach().clone().requires_grad_();
    return -torch::autograd::grad({position.pow(3).sum()}, {position})[0];
  };
  const auto op = Define(Name("forces"), "(Tensor x) -> Tensor", forces, &LikeOne).typed<torch::Tensor(const torch::Tensor&)>();
  ExpectSameInTime([&] {
    const auto x = torch::randn({6}) + 1;
    return Tensors{op.call(x) * 2, op.call(x * 2) + x};
  });
}

// What the kernel calls is cast, as in eager mode.
TEST_P(OwnOperatorsTest, OneUnderAutocast) {
  LAZULI_CPU_ONLY("autocast of the CPU");
  const auto op =
      Define(
          Name("product"), "(Tensor x, Tensor y) -> Tensor", [](const torch::Tensor& x, const torch::Tensor& y) { return x.mm(y); },
          [](const torch::Tensor& x, const torch::Tensor& y) {
            return torch::empty({x.size(0), y.size(1)}, x.options());
          })
          .typed<torch::Tensor(const torch::Tensor&, const torch::Tensor&)>();
  ExpectSameInTime([&] {
    const auto x = torch::randn({4, 5}), y = torch::randn({5, 6});
    const auto plain = op.call(x * 2, y);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    const auto cast = op.call(x * 2, y);
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    return Tensors{plain + 1, cast + 1};
  });
}

// Eager mode never asks their kernels for meta tensors.
TEST_P(OwnOperatorsTest, OnesThatForetellOtherResults) {
  const auto transposed =
      Define(
          Name("transposed"), "(Tensor x) -> Tensor", [](const torch::Tensor& x) { return x.t().contiguous().t() * 2; }, &LikeOne)
          .typed<torch::Tensor(const torch::Tensor&)>();
  const auto wide = Define(
                        Name("wide"), "(Tensor x) -> Tensor", [](const torch::Tensor& x) { return x.to(torch::kDouble); }, &LikeOne)
                        .typed<torch::Tensor(const torch::Tensor&)>();
  const auto counted =
      Define(
          Name("counted"), "(Tensor x) -> (Tensor, int)",
          [](const torch::Tensor& x) { return std::make_tuple(x + 1, static_cast<int64_t>(x.count_nonzero().item<int64_t>())); },
          [](const torch::Tensor& x) { return std::make_tuple(torch::empty_like(x), int64_t{0}); })
          .typed<std::tuple<torch::Tensor, int64_t>(const torch::Tensor&)>();
  ExpectSameInTime([&] {
    const auto x = torch::randn({4, 5}) * 2;
    const auto [more, number] = counted.call(x);
    return Tensors{transposed.call(x), wide.call(x) * 2, more * 2, torch::tensor(number)};
  });
}

// How many results there are is in the data (which boxes are kept): their kernels for meta tensors cannot say, and one run tells nothing
// of the next.
TEST_P(OwnOperatorsTest, OnesWhoseMetaKernelsSayNothing) {
  const auto positive = [](const torch::Tensor& x) { return (x > 0).nonzero().flatten(); };
  const auto throws = [](const torch::Tensor&) -> torch::Tensor { TORCH_CHECK(false, "its size is in the data"); };
  const auto kept = Define(Name("kept"), "(Tensor x) -> Tensor", positive, throws).typed<torch::Tensor(const torch::Tensor&)>();
  const StatsDelta delta;
  const lazuli::DeviceMode mode(options());
  for (int step = 0; step < 8; ++step) {
    const auto x = torch::remainder(torch::arange(40) * 7 + step * step, 5 + step) - 3;
    EXPECT_TRUE(torch::equal(kept.call(x * 1), positive(x))) << step;
  }
  EXPECT_GE(delta.fallbacks("lazuli_own_" + Name("kept") + "::call"), 6);
  EXPECT_GE(delta.of(&Stats::cache_hits), 1);
}

LAZULI_FOR_EACH_BACKEND(OwnOperatorsTest);

}  // namespace
}  // namespace lazuli::testing
