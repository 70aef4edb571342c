#include "tests/support/test_device.h"

#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>

#include "tests/support/gpu.h"

namespace lazuli::testing {
namespace {

std::optional<torch::Device> test_device;

// The argument that says where `schema`'s results are, of operators that have nothing else to go by; -1 for others.
int DeviceArgument(const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  const auto holds_tensors = [](const c10::Argument& argument) { return argument.type()->str().find("Tensor") != std::string::npos; };
  if (std::any_of(arguments.begin(), arguments.end(), holds_tensors)) return -1;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() == "device" && arguments[i].type()->kind() == c10::TypeKind::OptionalType) return static_cast<int>(i);
  }
  return -1;
}

// What an operator calls in turn is as it would be: its kernels make tensors without a device that they fill on the CPU.
void CallBelow(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const CpuFactories below;
  op.callBoxed(stack);
}

// Only the program's own calls are given a device.
void CallOnTestDevice(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t first = stack->size() - op.schema().arguments().size();
  c10::IValue& device = (*stack)[first + static_cast<size_t>(DeviceArgument(op.schema()))];
  if (device.isNone()) device = *test_device;
  CallBelow(op, stack);
}

// Whether a call with `schema`'s arguments can go through a boxed kernel: those of names (Dimname) cannot, but only lead to others.
// Backward passes run the program's own code: its hooks, and its functions' gradients.
bool IsIntercepted(const c10::OperatorHandle& op) {
  const std::string& overload = op.operator_name().overload_name;
  const bool has_names = overload.find("Dimname") != std::string::npos || overload.find("names") != std::string::npos;
  return op.operator_name().name.rfind("aten::", 0) == 0 && op.operator_name().name != "aten::_backward" && !has_names;
}

// PreDispatch is above every key that a program may include, Lazuli's too, and kernels for it are nowhere else in LibTorch's C++.
void InterceptOperators() {
  static auto* const library = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::PreDispatch, __FILE__, __LINE__);
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op.has_value() || !IsIntercepted(*op)) continue;
    const std::string overload = name.overload_name.empty() ? "" : "." + name.overload_name;
    library->impl((name.name + overload).c_str(), DeviceArgument(op->schema()) < 0
                                                      ? torch::CppFunction::makeFromBoxedFunction<&CallBelow>()
                                                      : torch::CppFunction::makeFromBoxedFunction<&CallOnTestDevice>());
  }
}

}  // namespace

torch::Device TestDevice() {
  const bool active = c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::PreDispatch) &&
                      !c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::PreDispatch);
  return active ? *test_device : torch::Device(torch::kCPU);
}

std::string UseTestDevice(const std::string& name) {
  const torch::Device device(name);
  if (std::string why; device.is_cuda() && GpuArch(&why).empty()) return why;
  const bool first = !test_device.has_value();
  test_device = device;
  if (first) InterceptOperators();
  c10::impl::tls_set_dispatch_key_included(c10::DispatchKey::PreDispatch, true);
  // What is compared is the arithmetic of float: products of fewer bits would hide what else is wrong.
  at::globalContext().setAllowTF32CuDNN(false);
  at::globalContext().setAllowTF32CuBLAS(false);
  return "";
}

}  // namespace lazuli::testing
