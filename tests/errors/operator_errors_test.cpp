// Errors of operators: eager's type and message, where eager raises them or at the cut, and nothing else lost.

#include <gmock/gmock.h>
#include <torch/library.h>

#include <limits>
#include <typeinfo>

#include "tests/support/log_file.h"
#include "tests/support/same_as_eager.h"
#include "tests/support/test_device.h"

namespace lazuli::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

torch::Tensor RefuseNegative(const torch::Tensor& x) {
  TORCH_CHECK_VALUE((x >= 0).all().item<bool>(), "refuse_negative: a value is negative");
  return x + 0;
}

TORCH_LIBRARY(lazuli_errors, m) {
  m.def("refuse_negative(Tensor x) -> Tensor");
  m.impl("refuse_negative", torch::kCPU, &RefuseNegative);
  m.impl("refuse_negative", torch::kMeta, [](const torch::Tensor& x) { return torch::empty_like(x); });
}

torch::Tensor CallRefuseNegative(const torch::Tensor& x) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("lazuli_errors::refuse_negative", "").typed<torch::Tensor(const torch::Tensor&)>();
  return op.call(x);
}

struct Caught {
  std::string type = "nothing";
  std::string message;
  bool operator==(const Caught& other) const { return type == other.type && message == other.message; }
  friend std::ostream& operator<<(std::ostream& stream, const Caught& caught) { return stream << caught.type << ": " << caught.message; }
};

Caught Catch(const std::function<void()>& program) {
  try {
    program();
  } catch (const c10::Error& error) {
    return {typeid(error).name(), error.what_without_backtrace()};
  } catch (const std::exception& error) {
    return {typeid(error).name(), error.what()};
  }
  return {};
}

class OperatorErrorsTest : public BackendTest {
 protected:
  // `bad` must throw the same eagerly and in the mode, at the operator itself; what was pending before is still right.
  void ExpectSameErrorAtOnce(const std::function<void(const torch::Tensor&)>& bad) const {
    const Caught eager = Catch([&] { bad(torch::ones({3, 4}) + 1); });
    ASSERT_NE(eager.type, "nothing");
    const lazuli::DeviceMode mode(options());
    for (int round = 0; round < 3; ++round) {
      const auto x = torch::ones({3, 4}) + 1;
      const auto y = x * 3;
      EXPECT_EQ(Catch([&] { bad(x); }), eager);
      EXPECT_EQ((y + x).sum().item<float>(), 96);
    }
  }

  // The same for errors that depend on values: raised at the cut, by sync() and by whoever asks for the failed result.
  void ExpectSameErrorAtTheCut(const std::function<torch::Tensor(const torch::Tensor&)>& bad,
                               const std::function<torch::Tensor(const torch::Tensor&)>& good) const {
    const Caught eager = Catch([&] { bad(torch::ones({3, 4}) + 1); });
    ASSERT_NE(eager.type, "nothing");
    const lazuli::DeviceMode mode(options());
    // With good values first, so that shapes are known and the bad call is recorded.
    for (int round = 0; round < 2; ++round) good(torch::ones({3, 4}) + 1).sum().item<float>();
    for (int round = 0; round < 3; ++round) {
      auto in_place = torch::zeros({3});
      const auto x = torch::ones({3, 4}) + 1;
      const auto before = x * 3;
      torch::Tensor failed;
      torch::Tensor dependent;
      ASSERT_EQ(Catch([&] {
                  failed = bad(x);
                  dependent = failed * 2;
                }),
                Caught())
          << "the operator ran at once";
      in_place.add_(5);
      const auto after = before + x;
      EXPECT_EQ(Catch([] { lazuli::sync(); }), eager);
      EXPECT_EQ(Catch([] { lazuli::sync(); }), Caught()) << "an error is raised twice by sync()";
      EXPECT_EQ(before.sum().item<float>(), 72);
      EXPECT_EQ(after.sum().item<float>(), 96);
      EXPECT_EQ(in_place.sum().item<float>(), 15);
      EXPECT_EQ(Catch([&] { failed.sum().item<float>(); }), eager);
      EXPECT_EQ(Catch([&] { dependent.data_ptr(); }), eager);
      EXPECT_GT(good(x).sum().item<float>(), 0);
    }
  }
};

TEST_P(OperatorErrorsTest, ShapesThatDoNotFit) {
  ExpectSameErrorAtOnce([](const torch::Tensor& x) { x + torch::ones({5}); });
  ExpectSameErrorAtOnce([](const torch::Tensor& x) { torch::mm(x, x); });
  ExpectSameErrorAtOnce([](const torch::Tensor& x) { torch::cat({x, torch::ones({2, 2})}); });
  ExpectSameErrorAtOnce([](const torch::Tensor& x) { x.view({5, 5}); });
  ExpectSameErrorAtOnce([](const torch::Tensor& x) { torch::conv2d(x, torch::ones({1, 1, 3, 3})); });
  ExpectSameErrorAtOnce([](const torch::Tensor& x) { x.addmm(torch::ones({3, 2}), torch::ones({2, 5})); });
  ExpectSameErrorAtOnce([](const torch::Tensor& x) { x.addmm_(torch::ones({5, 2}), torch::ones({2, 4})); });
  ExpectSameErrorAtOnce([](const torch::Tensor& x) { torch::addmm(x.unsqueeze(0), torch::ones({3, 2}), torch::ones({2, 4}), 0); });
  ExpectSameErrorAtOnce([](const torch::Tensor& x) { torch::linear(x, torch::ones({5, 4}), torch::ones({4})); });
}

// Such a kernel may draw numbers, count its calls, or return as much as it likes: it runs when it is called.
TEST_P(OperatorErrorsTest, OperatorsWithoutAMetaKernelRunWhenCalled) {
  torch::Library library(torch::Library::DEF, "lazuli_unknown", std::nullopt, __FILE__, __LINE__);
  int64_t calls = 0;
  library.def("positive(Tensor x) -> Tensor");
  library.impl("positive", torch::dispatch(torch::kCPU, [&calls](const torch::Tensor& x) {
                 ++calls;
                 return x.masked_select(x > 0);
               }));
  const lazuli::DeviceMode mode(options());
  for (int64_t i = 0; i < 4; ++i) {
    torch::jit::Stack stack{torch::arange(4, torch::kFloat) - static_cast<double>(i)};
    c10::Dispatcher::singleton().findSchemaOrThrow("lazuli_unknown::positive", "").callBoxed(&stack);
    EXPECT_EQ(calls, i + 1);
    EXPECT_EQ(stack[0].toTensor().numel(), 3 - i);
  }
}

// A library that is unloaded takes its operators along, and the next one may have others of their names.
TEST_P(OperatorErrorsTest, OperatorsThatAreRegisteredAgain) {
  const lazuli::DeviceMode mode(options());
  const auto call = [](const torch::Tensor& x, int64_t factor) {
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("lazuli_again::scale", "");
    torch::jit::Stack stack{x};
    if (factor > 0) stack.emplace_back(factor);
    op.callBoxed(&stack);
    return stack[0].toTensor();
  };
  for (int round = 0; round < 3; ++round) {
    {
      torch::Library library(torch::Library::DEF, "lazuli_again", std::nullopt, __FILE__, __LINE__);
      library.def("scale(Tensor x) -> Tensor");
      library.impl("scale", torch::dispatch(torch::kCPU, [](const torch::Tensor& x) { return x * 2; }));
      for (int i = 0; i < 3; ++i) EXPECT_EQ(call(torch::ones({4}) + i, 0).sum().item<float>(), 8 * (i + 1));
    }
    torch::Library library(torch::Library::DEF, "lazuli_again", std::nullopt, __FILE__, __LINE__);
    library.def("other(Tensor x) -> Tensor");
    library.def("scale(Tensor x, int factor) -> Tensor");
    library.impl("scale", torch::dispatch(torch::kCPU, [](const torch::Tensor& x, int64_t factor) { return x * factor; }));
    for (int i = 0; i < 3; ++i) EXPECT_EQ(call(torch::ones({4}) + i, 3).sum().item<float>(), 12 * (i + 1));
  }
}

// A library with an operator that is recorded.
torch::Library MakeTwice(const std::string& name) {
  torch::Library library(torch::Library::DEF, name, std::nullopt, __FILE__, __LINE__);
  library.def("twice(Tensor x) -> Tensor");
  library.impl("twice", torch::dispatch(torch::kCPU, [](const torch::Tensor& x) { return x * 2; }));
  library.impl("twice", torch::dispatch(torch::kMeta, [](const torch::Tensor& x) { return torch::empty_like(x); }));
  return library;
}

// Traces of such operators may be compiled when the library is gone.
TEST_P(OperatorErrorsTest, OperatorsThatAreGoneWhenTheirTraceIsCompiled) {
  const lazuli::DeviceMode mode(options().compile_wait_ms(0));
  constexpr int kLibraries = 20;
  for (int i = 0; i < kLibraries; ++i) {
    const std::string name = "lazuli_gone_" + std::to_string(i);
    {
      const torch::Library library = MakeTwice(name);
      const auto op = c10::Dispatcher::singleton().findSchemaOrThrow((name + "::twice").c_str(), "");
      for (int run = 0; run < 3; ++run) {
        torch::jit::Stack stack{torch::ones({100 + i}) + 1};
        op.callBoxed(&stack);
        EXPECT_EQ((stack[0].toTensor() + 1).sum().item<float>(), 5 * (100 + i));
      }
    }
    EXPECT_EQ((torch::ones({5}) + 1).sum().item<float>(), 10);
  }
  lazuli::wait_for_compiles();
}

TEST_P(OperatorErrorsTest, OperatorsThatAreGoneWhenTheirTraceRuns) {
  const lazuli::DeviceMode mode(options());
  for (int run = 0; run < 3; ++run) {
    torch::jit::Stack stack{torch::ones({4}) + 1};
    {
      const torch::Library library = MakeTwice("lazuli_left");
      const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("lazuli_left::twice", "");
      for (int call = 0; call < 3; ++call) op.callBoxed(&stack);  // The first two run at once.
    }
    const torch::Tensor result = stack[0].toTensor();
    EXPECT_THAT([&] { result.sum().item<float>(); }, ThrowsMessage<c10::Error>(HasSubstr("its library was unloaded before")));
    EXPECT_EQ((torch::ones({5}) + 1).sum().item<float>(), 10);
  }
}

TEST_P(OperatorErrorsTest, InPlaceResultThatDoesNotFit) {
  ExpectSameErrorAtOnce([](const torch::Tensor& x) { x.select(1, 0).add_(torch::ones({7, 3})); });
  ExpectSameErrorAtOnce([](const torch::Tensor& x) { (x.to(torch::kInt)).add_(1.5); });
  ExpectSameErrorAtOnce([](const torch::Tensor& x) { x.expand({2, 3, 4}).add_(1); });
  ExpectSameErrorAtOnce([](const torch::Tensor& x) { x.copy_(torch::ones({9})); });
}

// Even if its shapes are known.
TEST_P(OperatorErrorsTest, RunningSumOfAnotherDtypeInPlace) {
  const lazuli::DeviceMode mode(options());
  const auto x = torch::ones({5, 7}, torch::kHalf);
  for (int run = 0; run < 3; ++run) {
    const auto y = x + x;
    y.cumsum_(1);
    lazuli::sync();
  }
  const auto bad = [&] {
    const auto y = x + x;
    y.cumsum_(1, torch::kFloat);
    lazuli::sync();
  };
  EXPECT_THROW(bad(), c10::Error);
}

TEST_P(OperatorErrorsTest, DtypesThatDoNotFit) {
  ExpectSameErrorAtOnce([](const torch::Tensor& x) { torch::cross_entropy_loss(x, torch::zeros({3}, torch::kInt)); });
  ExpectSameErrorAtOnce([](const torch::Tensor& x) { torch::mm(x, torch::ones({4, 3}, torch::kDouble)); });
  ExpectSameErrorAtOnce([](const torch::Tensor& x) { (x > 0).mean(); });
  ExpectSameErrorAtOnce([](const torch::Tensor& x) { torch::embedding(x, x); });
}

TEST_P(OperatorErrorsTest, DimensionsOutOfRange) {
  ExpectSameErrorAtOnce([](const torch::Tensor& x) { x.sum(5); });
  ExpectSameErrorAtOnce([](const torch::Tensor& x) { x.select(0, 8); });
  ExpectSameErrorAtOnce([](const torch::Tensor& x) { x.transpose(0, 3); });
  ExpectSameErrorAtOnce([](const torch::Tensor& x) { x.softmax(4); });
}

TEST_P(OperatorErrorsTest, ErrorsOfAutograd) {
  ExpectSameErrorAtOnce([](const torch::Tensor& x) { x.sum().backward(); });
  ExpectSameErrorAtOnce([](const torch::Tensor& x) { (x * torch::ones({4}).requires_grad_()).backward(); });
}

TEST_P(OperatorErrorsTest, ItemOfManyElements) {
  ExpectSameErrorAtOnce([](const torch::Tensor& x) { x.item(); });
}

TEST_P(OperatorErrorsTest, IndexOutOfRangeAtTheCut) {
  const auto take = [](const torch::Tensor& x, int64_t row) { return x.index({torch::full({2}, row, torch::kLong)}); };
  ExpectSameErrorAtTheCut([&](const torch::Tensor& x) { return take(x, 7); }, [&](const torch::Tensor& x) { return take(x, 2); });
}

TEST_P(OperatorErrorsTest, EmbeddingOutOfRangeAtTheCut) {
  const auto take = [](const torch::Tensor& x, int64_t row) { return torch::embedding(x, torch::full({2}, row, torch::kLong)); };
  ExpectSameErrorAtTheCut([&](const torch::Tensor& x) { return take(x, 3); }, [&](const torch::Tensor& x) { return take(x, 2); });
}

TEST_P(OperatorErrorsTest, TargetsThatAreNoSharesAtTheCut) {
  const auto loss = [](const torch::Tensor& p, const torch::Tensor& target) { return torch::binary_cross_entropy(p, target); };
  ExpectSameErrorAtTheCut([&](const torch::Tensor& x) { return loss(x / 4, x); },
                          [&](const torch::Tensor& x) { return loss(x / 4, x / 8); });
  ExpectSameErrorAtTheCut([&](const torch::Tensor& x) { return loss(x, x / 4); },
                          [&](const torch::Tensor& x) { return loss(x / 8, x / 4); });
}

TEST_P(OperatorErrorsTest, NumbersThatAreNaN) {
  ExpectSameErrorAtOnce([](const torch::Tensor& x) { torch::huber_loss(x, x, at::Reduction::Mean, NAN); });
  ExpectSameErrorAtOnce([](const torch::Tensor& x) { torch::cdist(x, x, NAN); });
}

torch::Tensor ZeroAnd(int64_t index) { return torch::tensor({int64_t{0}, index}); }

// Operators that kernels do, between others in the same kernel.
TEST_P(OperatorErrorsTest, BadIndicesInsideKernels) {
  using torch::indexing::Slice;
  using Lookup = std::function<torch::Tensor(const torch::Tensor&, int64_t)>;
  const std::vector<Lookup> lookups = {
      [](const torch::Tensor& x, int64_t i) { return torch::embedding(x, ZeroAnd(i)).relu() + 1; },
      [](const torch::Tensor& x, int64_t i) { return torch::embedding(x, ZeroAnd(i).to(torch::kInt)) * 2; },
      [](const torch::Tensor& x, int64_t i) { return x.index_select(1, ZeroAnd(i)) + 1; },
      [](const torch::Tensor& x, int64_t i) {
        return x.gather(1, torch::stack({ZeroAnd(i), ZeroAnd(i)})) * 2;
      },
      [](const torch::Tensor& x, int64_t i) {
        return x.index({Slice(), ZeroAnd(i)}) * 2;
      },
      [](const torch::Tensor& x, int64_t i) {
        return x.index({ZeroAnd(1), ZeroAnd(i)}) * 2;
      },
      [](const torch::Tensor& x, int64_t i) { return torch::nll_loss(-x.narrow(0, 0, 2), ZeroAnd(i)) + 1; },
      [](const torch::Tensor& x, int64_t i) { return torch::cross_entropy_loss(x.narrow(0, 0, 2), ZeroAnd(i), {}, at::Reduction::None); },
      [](const torch::Tensor& x, int64_t i) { return torch::cross_entropy_loss(x.narrow(0, 0, 2), ZeroAnd(i)) * 2; },
      [](const torch::Tensor& x, int64_t i) {
        const auto rows = x.narrow(0, 0, 2);
        const auto logits = torch::matmul(torch::cat({rows, rows, rows}).view({2, 3, 4}), torch::eye(4));
        return torch::cross_entropy_loss(logits.slice(1, 0, 2).reshape({4, 4}), torch::cat({ZeroAnd(i), ZeroAnd(i)})) * 2;
      },
  };
  for (size_t i = 0; i < lookups.size(); ++i) {
    SCOPED_TRACE(i);
    for (const int64_t bad : {int64_t{4}, int64_t{-5}, int64_t{1} << 40, std::numeric_limits<int64_t>::min()}) {
      if (i == 1 && bad != static_cast<int32_t>(bad)) continue;
      ExpectSameErrorAtTheCut([&](const torch::Tensor& x) { return lookups[i](x, bad); },
                              [&](const torch::Tensor& x) { return lookups[i](x, 2); });
    }
  }
}

TEST_P(OperatorErrorsTest, BadTargetOfAGradient) {
  const auto gradient = [](const torch::Tensor& x, int64_t target) {
    const auto one = torch::ones({});
    return at::nll_loss_backward(one, x.narrow(0, 0, 2), ZeroAnd(target), {}, at::Reduction::Mean, -100, one + 1).abs();
  };
  ExpectSameErrorAtTheCut([&](const torch::Tensor& x) { return gradient(x, 4); }, [&](const torch::Tensor& x) { return gradient(x, 3); });
}

// One kernel makes both what depends on the index and what does not.
TEST_P(OperatorErrorsTest, OnlyWhatDependsOnABadIndexIsLost) {
  const auto table = torch::arange(12, torch::kFloat).reshape({3, 4});
  const auto other = torch::rand({3, 4});
  const auto run = [&](int64_t index, torch::Tensor* fine, torch::Tensor* failed, torch::Tensor* updated) {
    const auto indices = torch::tensor({int64_t{0}, int64_t{1}, index, int64_t{3}}).expand({3, 4});
    *fine = other * 3;
    *failed = table.gather(1, indices) + *fine;
    updated->add_(*fine);
    lazuli::sync();
  };
  const Caught eager = Catch([&] { table.gather(1, torch::full({3, 4}, 7, torch::kLong)); });
  ASSERT_NE(eager.type, "nothing");
  const lazuli::DeviceMode mode(options());
  for (const int64_t index : {2, 2, 7, 2, 7}) {
    torch::Tensor fine, failed, updated = torch::ones({3, 4});
    const Caught caught = Catch([&] { run(index, &fine, &failed, &updated); });
    EXPECT_EQ(caught, index == 2 ? Caught() : eager);
    EXPECT_TRUE(fine.equal(other * 3));
    EXPECT_TRUE(updated.equal(other * 3 + 1));
    EXPECT_EQ(Catch([&] { failed.sum().item<float>(); }), index == 2 ? Caught() : eager);
    if (index == 2) {
      EXPECT_TRUE(failed.equal(table + other * 3));
    }
  }
}

// Eagerly an operator fails whether or not its result is used.
TEST_P(OperatorErrorsTest, FailuresNobodyLooksAt) {
  const auto take = [](const torch::Tensor& x, int64_t row) { x.index({torch::full({2}, row, torch::kLong)}); };
  const auto factor = [](const torch::Tensor& x, int64_t sign) { torch::linalg_cholesky(torch::eye(3) * sign * x[0][0]); };
  const auto refuse = [](const torch::Tensor& x, int64_t sign) { CallRefuseNegative(x * sign); };
  const auto count = [](const torch::Tensor& x, int64_t sign) { torch::histc(x / (sign + 1), 3); };
  const auto scatter = [](const torch::Tensor& x, int64_t sign) { x.masked_scatter(x * sign < 0, torch::ones({2})); };
  const auto loss = [](const torch::Tensor& x, int64_t sign) { torch::binary_cross_entropy(x / 2, x * sign); };
  const std::vector<std::function<void(const torch::Tensor&, int64_t)>> programs = {
      [&](const torch::Tensor& x, int64_t sign) { take(x, sign > 0 ? 1 : 9); }, factor, refuse, count, scatter, loss};
  for (const auto& program : programs) {
    const Caught eager = Catch([&] { program(torch::ones({3, 4}), -1); });
    ASSERT_NE(eager.type, "nothing");
    const lazuli::DeviceMode mode(options());
    for (const int64_t sign : {1, 1, -1, 1, -1}) {
      EXPECT_EQ(Catch([&] {
                  program(torch::ones({3, 4}), sign);
                  lazuli::sync();
                }),
                sign > 0 ? Caught() : eager);
    }
  }
}

TEST_P(OperatorErrorsTest, NumbersThatDoNotFitIntegers) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double number : {infinity, 1e30}) {
    ExpectSameErrorAtOnce([&](const torch::Tensor& x) { x.to(torch::kInt).fill_(number); });
    ExpectSameErrorAtOnce([&](const torch::Tensor& x) { x.to(torch::kLong).masked_fill(x > 1, number); });
    ExpectSameErrorAtOnce([&](const torch::Tensor& x) { x.to(torch::kLong).masked_fill_(x > 1, number); });
    ExpectSameErrorAtOnce([&](const torch::Tensor&) { torch::full({3}, number, torch::kLong); });
    ExpectSameErrorAtOnce([&](const torch::Tensor& x) { torch::full_like(x, number, torch::kShort); });
  }
  ExpectSameErrorAtOnce([](const torch::Tensor& x) { x.to(torch::kByte).fill_(300); });
  ExpectSameErrorAtOnce([](const torch::Tensor& x) { x.to(torch::kByte).fill_(-1.5); });
}

TEST_P(OperatorErrorsTest, ComplexNumbersAmongRealOperands) {
  const c10::complex<double> number(1, 2);
  ExpectSameErrorAtOnce([number](const torch::Tensor& x) { torch::addcmul(x, x, x, number); });
  ExpectSameErrorAtOnce([number](const torch::Tensor& x) { torch::addcdiv(x, x, x, number); });
  ExpectSameErrorAtOnce([number](const torch::Tensor& x) { torch::lerp(x, x, number); });
  ExpectSameErrorAtOnce([number](const torch::Tensor& x) { x.clone().addcmul_(x, x, number); });
  ExpectSameAsEager([number] {
    const auto x = torch::linspace(1, 2, 6).to(torch::kComplexFloat) * 2;
    return Tensors{torch::addcmul(x, x, x, number), torch::lerp(x, x + 1, number), torch::full_like(x, number) + x};
  });
}

TEST_P(OperatorErrorsTest, KernelThatLacksADtype) {
  ExpectSameErrorAtOnce([](const torch::Tensor& x) { x.bitwise_or(1); });
  ExpectSameErrorAtOnce([](const torch::Tensor& x) { torch::gcd(x, x); });
  ExpectSameErrorAtOnce([](const torch::Tensor& x) { torch::gelu(x.to(torch::kLong)); });
  ExpectSameErrorAtOnce([](const torch::Tensor& x) { x.to(torch::kComplexHalf).sum(); });
  ExpectSameErrorAtOnce([](const torch::Tensor& x) { torch::mm(x, x.t().to(torch::kDouble)); });
}

TEST_P(OperatorErrorsTest, InPlaceKernelsThatChecksComeFrom) {
  ExpectSameErrorAtOnce([](const torch::Tensor& x) { x.index_fill_(0, torch::zeros({1}, torch::kLong), x); });
  ExpectSameErrorAtOnce([](const torch::Tensor& x) { x.masked_fill_(torch::ones({7}, torch::kBool), 1); });
  ExpectSameErrorAtOnce([](const torch::Tensor& x) { x.sum(0).expand({3, 4}).fill_(torch::ones({})); });
}

TEST_P(OperatorErrorsTest, NumberThatWasFineBefore) {
  const auto backward = [](const torch::Tensor& x, double slope) {
    return torch::leaky_relu_backward(x, x, slope, /*self_is_result=*/true);
  };
  const lazuli::DeviceMode mode(options());
  for (int round = 0; round < 4; ++round) {
    const auto x = torch::ones({3, 4}) + 1;
    EXPECT_EQ(backward(x, 0.1 * (round + 1)).sum().item<float>(), 24);
  }
  const auto x = torch::ones({3, 4}) + 1;
  EXPECT_THROW(backward(x, -0.5), c10::Error);
  EXPECT_EQ(x.sum().item<float>(), 24);
}

TEST_P(OperatorErrorsTest, OperatorOfAnotherLibraryThrowsInsideATrace) {
  ExpectSameErrorAtTheCut([](const torch::Tensor& x) { return CallRefuseNegative(x - 10); },
                          [](const torch::Tensor& x) { return CallRefuseNegative(x); });
}

// What is written beside a place that is none: eager's error, and nothing else lost.
TEST_P(OperatorErrorsTest, BadPlacesToWriteTo) {
  const auto at = [](int64_t place) { return torch::tensor({int64_t{0}, place, int64_t{1}}); };
  const auto rows = [](const torch::Tensor& x) { return torch::cat({x.slice(0, 0, 1), x.slice(0, 0, 1), x.slice(0, 1, 2)}, 0) * 2; };
  using Write = std::function<torch::Tensor(const torch::Tensor&, int64_t)>;
  const std::vector<Write> writes = {
      [&](const torch::Tensor& x, int64_t place) { return x.index_add(0, at(place), rows(x)); },
      [&](const torch::Tensor& x, int64_t place) { return (x * 0).index_add_(0, at(place), rows(x)); },
      [&](const torch::Tensor& x, int64_t place) { return (x * 0).index_copy_(0, at(place), rows(x)); },
      [&](const torch::Tensor& x, int64_t place) {
        return (x * 0).scatter_add_(0, at(place).unsqueeze(1).expand({3, 4}), rows(x));
      },
      [&](const torch::Tensor& x, int64_t place) {
        return x.scatter(0, at(place).unsqueeze(1).expand({3, 4}), 1.5);
      },
      [&](const torch::Tensor& x, int64_t place) { return (x * 0).scatter_(1, at(place + (place > 2 ? 1 : -1)).unsqueeze(1), 2); },
      [&](const torch::Tensor& x, int64_t place) {
        return x.scatter_add(1, at(place + (place > 2 ? 1 : -1)).unsqueeze(1), rows(x).slice(1, 0, 1));
      },
      [&](const torch::Tensor& x, int64_t place) { return x.index_put({at(place)}, rows(x), true); },
      [&](const torch::Tensor& x, int64_t place) {
        return (x * 0).index_put_({at(place), at(1)}, rows(x).select(1, 0), false);
      },
  };
  for (const Write& write : writes) {
    for (const int64_t place : {3, -4}) {
      ExpectSameErrorAtTheCut([&](const torch::Tensor& x) { return write(x, place); }, [&](const torch::Tensor& x) { return write(x, 2); });
    }
  }
}

TEST_P(OperatorErrorsTest, NamesOfApproximationsAreChecked) {
  const lazuli::DeviceMode mode(options());
  for (int round = 0; round < 4; ++round) {
    const auto x = torch::ones({5}) * 2;
    EXPECT_THROW(at::gelu(x, "sinh"), c10::Error);
    EXPECT_THROW(at::gelu_backward(x, x, "sinh"), c10::Error);
    EXPECT_NEAR(at::gelu(x, "tanh")[0].item<float>(), 1.9546, 1e-3);
  }
}

// The CPU's kernel refuses what the Meta kernel takes.
TEST_P(OperatorErrorsTest, FactorsWithoutPivotsAreRefusedWhenCalled) {
  LAZULI_CPU_ONLY("GPUs have a kernel");
  const lazuli::DeviceMode mode(options());
  for (int round = 0; round < 4; ++round) {
    const auto x = torch::eye(3) * 2;
    EXPECT_THROW(at::linalg_lu_factor_ex(x, /*pivot=*/false), c10::Error);
    EXPECT_EQ(std::get<0>(at::linalg_lu_factor_ex(x, /*pivot=*/true))[0][0].item<float>(), 2);
  }
}

TEST_P(OperatorErrorsTest, ErrorAtTheEndOfAModeIsLogged) {
  const LogFile log;
  torch::Tensor good;
  torch::Tensor bad;
  {
    const lazuli::DeviceMode mode(options().log_file(log.path()));
    for (int64_t row : {1, 9}) {
      good = torch::ones({3}) + 1;
      bad = (torch::ones({3, 4}) * 2).index({torch::full({2}, row, torch::kLong)});
      if (row == 1) lazuli::sync();
    }
  }
  EXPECT_THAT(log.text(), HasSubstr("[lazuli] error in work that was pending at the end of the mode: "));
  EXPECT_THAT(log.text(), HasSubstr("out of bounds for dimension 0 with size 3"));
  EXPECT_EQ(good.sum().item<float>(), 6);
  EXPECT_THROW(bad.sum(), c10::Error);
}

LAZULI_FOR_EACH_BACKEND(OperatorErrorsTest);

}  // namespace
}  // namespace lazuli::testing
