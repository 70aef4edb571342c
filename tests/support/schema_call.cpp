#include "tests/support/schema_call.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/List.h>
#include <ATen/core/stack.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <cstring>
#include <sstream>
#include <typeinfo>

#include "lazuli/lazuli.h"
#include "tests/support/differential.h"

namespace lazuli::testing {
namespace {

constexpr uint64_t kGeneratorSeed = 20240607;

// The default allocator, but memory is never zero by chance.
class FillingAllocator : public c10::Allocator {
 public:
  explicit FillingAllocator(c10::Allocator* inner) : inner_(inner) {}
  c10::DataPtr allocate(size_t size) override {
    c10::DataPtr memory = inner_->allocate(size);
    if (size != 0) std::memset(memory.get(), byte, size);
    return memory;
  }
  c10::DeleterFnPtr raw_deleter() const override { return inner_->raw_deleter(); }
  void copy_data(void* target, const void* source, std::size_t count) const override { std::memcpy(target, source, count); }
  int byte = 0;

 private:
  c10::Allocator* inner_;
};

// Without the addresses that LibTorch quotes when one error is wrapped in another.
std::string WithoutBacktrace(const std::string& message) { return message.substr(0, message.find("\nException raised from")); }

// Every tensor of a call in order, lists and all.
class ArgumentMaker {
 public:
  ArgumentMaker(const Tensors& storages, bool with_grad) : storages_(storages), with_grad_(with_grad) {}

  torch::jit::Stack MakeAll(const CallPlan& plan, int round) {
    torch::jit::Stack stack;
    for (const ArgPlan& arg : plan.args) stack.push_back(Make(arg, round));
    return stack;
  }

  Tensors tensors;
  std::vector<const TensorPlan*> plans;
  std::vector<bool> written;
  Tensors leaves;

 private:
  torch::Tensor MakeTensor(const TensorPlan& plan) {
    if (!plan.defined) return {};
    if (plan.same_as >= 0) return tensors[static_cast<size_t>(plan.same_as)];
    torch::Tensor storage = storages_[next_++];
    if (with_grad_ && (storage.is_floating_point() || storage.is_complex())) {
      storage = storage.detach().requires_grad_();
      leaves.push_back(storage);
      storage = storage * 1;
    } else if (plan.pending) {
      storage = storage.clone();
    }
    const bool is_window = storage.sizes() != plan.sizes || storage.strides() != plan.strides;
    torch::Tensor tensor = is_window ? storage.as_strided(plan.sizes, plan.strides, plan.offset) : storage;
    if (plan.named) {
      std::vector<torch::Dimname> names;
      for (size_t d = 0; d < plan.sizes.size(); ++d)
        names.push_back(torch::Dimname::fromSymbol(c10::Symbol::dimname("N" + std::to_string(d))));
      tensor = tensor.rename(names);
    }
    return tensor;
  }

  torch::Tensor Add(const TensorPlan& plan, bool is_written) {
    const torch::Tensor tensor = MakeTensor(plan);
    tensors.push_back(tensor);
    plans.push_back(&plan);
    written.push_back(is_written);
    return tensor;
  }

  c10::IValue Make(const ArgPlan& arg, int round) {
    switch (arg.kind) {
      case ArgPlan::Kind::kTensor: {
        const torch::Tensor tensor = Add(arg.tensors[0], arg.written);
        return tensor.defined() ? c10::IValue(tensor) : c10::IValue();
      }
      case ArgPlan::Kind::kTensorList: {
        c10::List<torch::Tensor> list;
        for (const TensorPlan& plan : arg.tensors) list.push_back(Add(plan, arg.written));
        return list;
      }
      case ArgPlan::Kind::kOptionalTensorList: {
        c10::List<std::optional<torch::Tensor>> list;
        for (const TensorPlan& plan : arg.tensors) {
          const torch::Tensor tensor = Add(plan, arg.written);
          list.push_back(tensor.defined() ? std::optional<torch::Tensor>(tensor) : std::nullopt);
        }
        return list;
      }
      case ArgPlan::Kind::kGenerator:
        return at::detail::createCPUGenerator(kGeneratorSeed);
      case ArgPlan::Kind::kValue:
        return arg.values[static_cast<size_t>(round) % arg.values.size()];
    }
    return {};
  }

  const Tensors& storages_;
  const bool with_grad_;
  size_t next_ = 0;
};

void Flatten(const c10::IValue& value, Tensors* tensors, std::ostream* rest) {
  if (value.isTensor()) {
    tensors->push_back(value.toTensor());
  } else if (value.isTensorList()) {
    for (const torch::Tensor& tensor : value.toTensorVector()) tensors->push_back(tensor);
    *rest << "list of " << value.toTensorVector().size() << "; ";
  } else if (value.isTuple()) {
    for (const c10::IValue& element : value.toTupleRef().elements()) Flatten(element, tensors, rest);
  } else {
    *rest << value.tagKind() << " " << value << "; ";
  }
}

bool IsStrided(const torch::Tensor& tensor) { return tensor.defined() && tensor.layout() == torch::kStrided; }

bool IsDense(const TensorPlan& plan) {
  if (!plan.defined || plan.same_as >= 0) return false;
  int64_t elements = 1;
  for (size_t d = 0; d < plan.sizes.size(); ++d) {
    elements *= plan.sizes[d];
    if (plan.strides[d] == 0) return false;
  }
  return elements <= plan.elements;
}

// What a program might do next with results and arguments.
Tensors Continue(const CallPlan& plan, const Tensors& results, const ArgumentMaker& maker) {
  Tensors made;
  const uint64_t bits = plan.point.seed >> 20;
  if (bits % 2 == 0) {
    for (const torch::Tensor& result : results) {
      if (!IsStrided(result)) continue;
      const bool doubles = (result.is_floating_point() || result.is_complex()) && !result.has_names();
      made.push_back(doubles ? result * 2 : result.clone());
    }
  }
  if ((bits >> 1) % 2 == 0) {
    for (size_t i = 0; i < maker.tensors.size(); ++i) {
      if (!maker.written[i] && IsDense(*maker.plans[i]) && maker.plans[i]->sizes.size() > 0) maker.tensors[i].fill_(1);
    }
  }
  return made;
}

// Runs `work` and then settles what it left; errors go to the outcome.
template <class Work>
void Guarded(CallOutcome* outcome, const Work& work) {
  const auto note = [&](const char* type, const std::string& message) {
    outcome->error = std::string(type) + ": " + WithoutBacktrace(message);
  };
  try {
    work();
    lazuli::sync();
  } catch (const c10::Error& error) {
    note(typeid(error).name(), error.what_without_backtrace());
  } catch (const std::exception& error) {
    note(typeid(error).name(), error.what());
  }
  if (!outcome->error.empty()) {
    try {
      lazuli::sync();
    } catch (const std::exception&) {
    }
  }
}

Tensors Gradients(const Tensors& results, const Tensors& leaves) {
  torch::Tensor loss;
  for (const torch::Tensor& result : results) {
    if (!IsStrided(result) || !result.requires_grad()) continue;
    torch::Tensor term = (result * Constant(result.sizes(), result)).sum();
    if (term.is_complex()) term = torch::real(term);
    term = term.to(torch::kDouble);
    loss = loss.defined() ? loss + term : term;
  }
  if (!loss.defined() || leaves.empty()) return {};
  return torch::autograd::grad({loss}, leaves, {}, {}, false, /*allow_unused=*/true);
}

std::string DiffMeta(const torch::Tensor& expected, const torch::Tensor& actual) {
  std::ostringstream text;
  if (expected.scalar_type() != actual.scalar_type())
    text << "dtype: expected " << expected.scalar_type() << ", got " << actual.scalar_type();
  if (expected.sizes() != actual.sizes()) text << "sizes: expected " << expected.sizes() << ", got " << actual.sizes();
  if (expected.strides() != actual.strides()) text << " strides: expected " << expected.strides() << ", got " << actual.strides();
  if (expected.storage_offset() != actual.storage_offset()) text << " storage offset";
  if (expected.requires_grad() != actual.requires_grad()) text << " requires_grad";
  if (expected.is_conj() != actual.is_conj()) text << " conjugate bit";
  if (expected.is_neg() != actual.is_neg()) text << " negative bit";
  if (expected.has_names() != actual.has_names() || (expected.has_names() && expected.names() != actual.names())) text << " names";
  return text.str();
}

std::string DiffOne(const torch::Tensor& expected, const torch::Tensor& actual, const Tolerance& tolerance, bool values) {
  if (expected.defined() != actual.defined()) return expected.defined() ? "is undefined" : "is defined";
  if (!expected.defined()) return "";
  if (expected.layout() != actual.layout()) return "layout";
  if (!IsStrided(expected)) return values ? DiffOne(expected.to_dense(), actual.to_dense(), tolerance, values) : "";
  const std::string difference = DiffMeta(expected, actual);
  if (expected._is_zerotensor() != actual._is_zerotensor()) return "one of them is a tensor of zeros without memory";
  if (!difference.empty() || !values || expected._is_zerotensor()) return difference;
  return DiffTensors(expected.rename(std::nullopt), actual.rename(std::nullopt), tolerance);
}

Tolerance ToleranceOf(const torch::Tensor& tensor, bool exact) {
  if (exact || !tensor.defined()) return {};
  const bool narrow = tensor.scalar_type() == torch::kHalf || tensor.scalar_type() == torch::kBFloat16;
  return {narrow ? 2.0 : 64.0, narrow ? 2.0 : 64.0};
}

}  // namespace

void FillNewMemory(int byte) {
  static auto* allocator = [] {
    auto* made = new FillingAllocator(c10::GetCPUAllocator());
    c10::SetCPUAllocator(made, /*priority=*/100);
    return made;
  }();
  allocator->byte = byte;
}

torch::jit::Stack MakeStack(const CallPlan& plan, const Tensors& storages, int round) {
  return ArgumentMaker(storages, /*with_grad=*/false).MakeAll(plan, round);
}

CallOutcome Call(const CallPlan& plan, const Tensors& storages, int round) {
  CallOutcome outcome;
  ArgumentMaker maker(storages, /*with_grad=*/false);
  Tensors results, made;
  torch::jit::Stack stack;
  Guarded(&outcome, [&] {
    stack = maker.MakeAll(plan, round);
    torch::manual_seed(kGeneratorSeed);
    plan.op.callBoxed(stack);
    outcome.late = true;
    std::ostringstream rest;
    for (const c10::IValue& value : stack) Flatten(value, &results, &rest);
    outcome.rest = rest.str();
    made = Continue(plan, results, maker);
  });
  if (outcome.error.empty()) outcome.late = false;
  if (outcome.late) return outcome;
  if (outcome.error.empty()) {
    outcome.tensors = results;
    outcome.num_results = results.size();
    outcome.tensors.insert(outcome.tensors.end(), made.begin(), made.end());
  }
  outcome.tensors.insert(outcome.tensors.end(), maker.tensors.begin(), maker.tensors.end());
  for (const torch::Tensor& tensor : maker.tensors) {
    if (tensor.defined()) outcome.rest += "version " + std::to_string(tensor._version()) + "; ";
  }
  return outcome;
}

CallOutcome CallBackward(const CallPlan& plan, const Tensors& storages, int round) {
  CallOutcome outcome;
  ArgumentMaker maker(storages, /*with_grad=*/true);
  Tensors results, gradients;
  Guarded(&outcome, [&] {
    torch::jit::Stack stack = maker.MakeAll(plan, round);
    torch::manual_seed(kGeneratorSeed);
    plan.op.callBoxed(stack);
    std::ostringstream rest;
    for (const c10::IValue& value : stack) Flatten(value, &results, &rest);
    gradients = Gradients(results, maker.leaves);
  });
  if (!outcome.error.empty()) return outcome;
  outcome.num_results = results.size();
  outcome.tensors = results;
  outcome.tensors.insert(outcome.tensors.end(), gradients.begin(), gradients.end());
  outcome.has_gradients = !gradients.empty();
  return outcome;
}

std::string DiffOutcomes(const CallOutcome& expected, const CallOutcome& actual, bool exact, const std::vector<bool>& unstable) {
  if (expected.error != actual.error)
    return "eager " + (expected.error.empty() ? "works" : "throws '" + expected.error + "'") + ", lazy " +
           (actual.error.empty() ? "works" : std::string(actual.late ? "throws late '" : "throws '") + actual.error + "'");
  if (actual.late && !expected.late) return "";
  if (expected.rest != actual.rest) return "expected " + expected.rest + " got " + actual.rest;
  if (expected.tensors.size() != actual.tensors.size()) return "another number of tensors";
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < expected.tensors.size(); ++i) {
    const bool values = i >= unstable.size() || !unstable[i];
    const std::string difference = DiffOne(expected.tensors[i], actual.tensors[i], ToleranceOf(expected.tensors[i], exact), values);
    if (!difference.empty()) return (i < expected.num_results ? "result " : "tensor ") + std::to_string(i) + ": " + difference;
  }
  const auto strided = [](Tensors tensors) {
    for (torch::Tensor& tensor : tensors) {
      if (!IsStrided(tensor) || tensor._is_zerotensor()) tensor = torch::Tensor();
    }
    return tensors;
  };
  const auto want = AliasClasses(strided(expected.tensors)), got = AliasClasses(strided(actual.tensors));
  for (size_t i = 0; i < want.size(); ++i) {
    if (want[i] != got[i])
      return "tensor " + std::to_string(i) + " shares memory with tensor " + std::to_string(want[i]) + ", lazily with " +
             std::to_string(got[i]);
  }
  return "";
}

std::vector<bool> UnstableTensors(const CallOutcome& a, const CallOutcome& b) {
  std::vector<bool> unstable;
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < a.tensors.size(); ++i)
    unstable.push_back(i >= b.tensors.size() || !DiffOne(a.tensors[i], b.tensors[i], {}, true).empty());
  return unstable;
}

}  // namespace lazuli::testing
