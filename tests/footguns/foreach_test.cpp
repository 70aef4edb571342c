// Operators on lists of tensors (_foreach_add_): what the list operator does to each tensor is recorded, whatever the tensors are.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_neg.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <functional>

#include "tests/support/error_of.h"
#include "tests/support/same_as_eager.h"
#include "tests/support/test_device.h"

namespace lazuli::testing {
namespace {

class ForeachTest : public BackendTest {};

// Every operator on lists that returns its results, or writes the first list.
std::vector<c10::OperatorHandle> ListOperators() {
  std::vector<c10::OperatorHandle> operators;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name.rfind("aten::_foreach_", 0) != 0) continue;
    const auto op = c10::Dispatcher::singleton().findOp(name);
    if (!op.has_value() || !op->hasSchema()) continue;
    const auto& arguments = op->schema().arguments();
    const bool is_out = std::any_of(arguments.begin(), arguments.end(), [](const c10::Argument& arg) { return arg.is_out(); });
    // A GPU's kernels round powers otherwise than those for one tensor, whose pieces are recorded.
    if (is_out || (OnGpu() && name.name.rfind("aten::_foreach_pow", 0) == 0)) continue;
    operators.push_back(*op);
  }
  return operators;
}

enum class Layout { kDense, kStrided, kOverlapping };

// Positive numbers below 1; three of them, the first with other strides than its sizes suggest.
Tensors Operands(torch::ScalarType dtype, Layout layout) {
  const auto options = torch::TensorOptions(TestDevice());
  const auto number = [&](torch::IntArrayRef sizes) {
    const auto values = torch::rand(sizes, options) * 0.8 + 0.1;
    return c10::isIntegralType(dtype, true) ? (values * 9).to(dtype) + 1 : values.to(dtype);
  };
  if (layout == Layout::kStrided) return {number({4, 3}).t(), number({10}).slice(0, 1, 10, 2), number({})};
  if (layout == Layout::kOverlapping) {
    const auto shared = number({9});
    return {shared.slice(0, 0, 5), shared.slice(0, 3, 9), number({2, 2})};
  }
  return {number({3, 4}), number({5}), number({})};
}

bool IsListOf(const c10::Argument& arg, c10::TypeKind kind) {
  return arg.type()->kind() == c10::TypeKind::ListType && arg.type()->containedTypes()[0]->kind() == kind;
}

// Calls it with such operands. What the program sees: results, or what was written, and how often that was.
Tensors Call(const c10::OperatorHandle& op, torch::ScalarType dtype, Layout layout) {
  torch::jit::Stack stack;
  Tensors written;
  for (const c10::Argument& arg : op.schema().arguments()) {
    if (IsListOf(arg, c10::TypeKind::TensorType)) {
      const Tensors list = Operands(dtype, layout);
      if (written.empty()) written = list;
      stack.emplace_back(list);
    } else if (IsListOf(arg, c10::TypeKind::NumberType)) {
      c10::List<at::Scalar> numbers;
      for (const double number : {0.5, 2.0, 0.25}) {
        numbers.push_back(c10::isIntegralType(dtype, true) ? at::Scalar(static_cast<int64_t>(number * 4)) : at::Scalar(number));
      }
      stack.emplace_back(numbers);
    } else if (arg.type()->kind() == c10::TypeKind::TensorType) {
      const bool one_each = op.schema().name().find("addc") != std::string::npos;
      stack.emplace_back(one_each ? torch::full({3}, 2, torch::kCPU).to(dtype) : torch::full({}, 2, TestDevice()).to(dtype));
    } else if (arg.default_value().has_value()) {
      stack.push_back(*arg.default_value());
    } else if (arg.type()->kind() == c10::TypeKind::NumberType) {
      stack.emplace_back(c10::isIntegralType(dtype, true) ? at::Scalar(3) : at::Scalar(0.75));
    } else {
      ADD_FAILURE() << op.schema() << ": argument " << arg.name() << " of a type that this test does not know";
    }
  }
  op.callBoxed(stack);
  Tensors seen = stack.empty() ? written : stack[0].toTensorVector();
  if (OnGpu()) return seen;  // Some of its kernels do not count what they write.
  std::vector<int64_t> versions;
  for (const Tensors& list : {written, Tensors(seen)}) {
    for (const torch::Tensor& tensor : list) versions.push_back(tensor._version());
  }
  seen.push_back(torch::tensor(versions, torch::kCPU));
  return seen;
}

// Those that eager mode takes such operands for: an integer's square root in place is an error.
std::vector<c10::OperatorHandle> OperatorsFor(torch::ScalarType dtype, Layout layout) {
  std::vector<c10::OperatorHandle> operators;
  for (const c10::OperatorHandle& op : ListOperators()) {
    if (ErrorOf([&] { Call(op, dtype, layout); }) == "no error") operators.push_back(op);
  }
  return operators;
}

Tensors CallAll(const std::vector<c10::OperatorHandle>& operators, torch::ScalarType dtype, Layout layout) {
  Tensors all;
  for (const c10::OperatorHandle& op : operators) {
    for (const torch::Tensor& tensor : Call(op, dtype, layout)) all.push_back(tensor);
  }
  return all;
}

TEST_P(ForeachTest, EveryOperator) {
  for (const auto dtype : {torch::kFloat, torch::kDouble, torch::kBFloat16, torch::kLong}) {
    SCOPED_TRACE(c10::toString(dtype));
    const auto operators = OperatorsFor(dtype, Layout::kDense);
    EXPECT_GT(operators.size(), dtype == torch::kLong ? 80u : 130u);
    ExpectSameAsEager([&] { return CallAll(operators, dtype, Layout::kDense); });
  }
}

TEST_P(ForeachTest, EveryOperatorOfStridedTensors) {
  const auto operators = OperatorsFor(torch::kFloat, Layout::kStrided);
  ExpectSameAsEager([&] { return CallAll(operators, torch::kFloat, Layout::kStrided); });
}

TEST_P(ForeachTest, ListsOfTensorsThatShareMemory) {
  auto operators = OperatorsFor(torch::kFloat, Layout::kOverlapping);
  // A GPU's kernels write all tensors of a list at once.
  const auto writes = [](const c10::OperatorHandle& op) { return op.schema().returns().empty(); };
  if (OnGpu()) operators.erase(std::remove_if(operators.begin(), operators.end(), writes), operators.end());
  ExpectSameAsEager([&] { return CallAll(operators, torch::kFloat, Layout::kOverlapping); });
}

TEST_P(ForeachTest, OfSeveralTypes) {
  ExpectSameAsEager([] {
    Tensors list{torch::rand({3}), torch::rand({2, 2}).to(torch::kDouble), torch::rand({4}).to(torch::kBFloat16)};
    torch::_foreach_mul_(list, 0.3);
    torch::_foreach_add_(list, list, 2);
    torch::_foreach_addcdiv_(list, list, torch::_foreach_add(list, 1.0), std::vector<at::Scalar>{0.1, 0.2, 0.3});
    return list;
  });
}

TEST_P(ForeachTest, GradientsGoThroughThem) {
  ExpectSameAsEager([] {
    Tensors leaves{torch::rand({3}).requires_grad_(), torch::rand({2, 2}).requires_grad_()};
    const Tensors results = torch::_foreach_mul(torch::_foreach_add(leaves, 0.5), leaves);
    (results[0].sum() + results[1].square().sum()).backward();
    {
      const torch::NoGradGuard no_grad;
      torch::_foreach_add_(leaves, Tensors{leaves[0].grad(), leaves[1].grad()}, -0.1);
    }
    return Tensors{leaves[0].grad(), leaves[1].grad(), leaves[0].detach(), leaves[1].detach()};
  });
}

// One boxed call would hold as many operands; recorded one by one they are fused with what else is done to each.
TEST_P(ForeachTest, AreRecordedOneByOne) {
  const Tensors tensors{torch::rand({3}), torch::rand({4})};
  const lazuli::DeviceMode mode(options());
  for (int run = 0; run < 3; ++run) {
    const StatsDelta delta;
    torch::_foreach_mul_(tensors, 0.5);
    const auto more = torch::_foreach_add(tensors, 1.0);
    EXPECT_EQ(delta.of(&Stats::traces), 0);
    lazuli::sync();
    EXPECT_EQ(delta.of(&Stats::ops_recorded), 4);
    EXPECT_EQ(delta.of(&Stats::traces), 1);
    EXPECT_EQ(delta.of(&Stats::cache_hits), run > 0);
    EXPECT_EQ(delta.fallbacks("aten::_foreach_mul_.Scalar") + delta.fallbacks("aten::mul_.Tensor"), 0);
  }
}

// LibTorch's kernels for lists on a GPU put one error in other words than those that go element by element.
std::string InOneWording(std::string error) {
  const std::string slow = "but it has", fast = "but has";
  if (const size_t at = error.find(slow); at != std::string::npos) error.replace(at, slow.size(), fast);
  return error;
}

TEST_P(ForeachTest, SaysWhatEagerModeSays) {
  const Tensors two{torch::rand({3}), torch::rand({4})}, one{torch::rand({3})}, none;
  Tensors unwritable;
  {
    const c10::InferenceMode inference;
    unwritable = {torch::ones({3})};
  }
  const std::vector<std::function<void()>> calls = {
      [&] { torch::_foreach_add_(two, one); },
      [&] { torch::_foreach_add_(none, 1); },
      [&] { torch::_foreach_add_(none, one); },
      [&] { torch::_foreach_mul(one, none); },
      [&] { torch::_foreach_mul_(two, std::vector<at::Scalar>{1.0}); },
      [&] { torch::_foreach_add_(two, torch::ones({3})); },
      [&] { torch::_foreach_mul(two, torch::ones({1})); },
      [&] { torch::_foreach_mul_(Tensors{torch::ones({3}, torch::kLong)}, 0.5); },
      [&] {
        torch::_foreach_mul_(Tensors{torch::ones({3}).expand({2, 3}), torch::ones({3})}, 0.5);
      },
      [&] { torch::_foreach_neg(Tensors{torch::ones({2}, torch::kBool)}); },
      [&] { torch::_foreach_add_(unwritable, 1.0); },
      [&] { torch::_foreach_add_(Tensors{torch::ones({3}).requires_grad_()}, 1.0); },
  };
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::string eager = ErrorOf(calls[i]);
    ASSERT_NE(eager, "no error") << i;
    const lazuli::DeviceMode mode(options());
    EXPECT_EQ(InOneWording(ErrorOf(calls[i])), InOneWording(eager)) << i;
  }
}

LAZULI_FOR_EACH_BACKEND(ForeachTest);

}  // namespace
}  // namespace lazuli::testing
