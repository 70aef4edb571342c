#include "tracer/attention_dropout.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/philox.h"
#include "tracer/captured_memory.h"
#include "tracer/dispatcher.h"

namespace lazuli::tracer {
namespace {

// The numbers of a sequence that a kernel takes for queries and keys of [batch, heads, length, width].
uint64_t ForEachWeight(const at::Tensor& query, const at::Tensor& key) {
  return static_cast<uint64_t>(query.size(0) * query.size(1) * query.size(2) * key.size(2));
}
uint64_t ForEachHead(const at::Tensor& query, const at::Tensor& /*key*/) {
  constexpr int64_t kLanes = 32;
  return static_cast<uint64_t>(query.size(0) * query.size(1) * kLanes);
}

struct Row {
  const char* name;
  uint64_t (*numbers)(const at::Tensor& query, const at::Tensor& key);
  runtime::TakenAsThought taken = {};

  std::string aten() const { return std::string("aten::") + name; }
  std::string own() const { return AttentionWithDropout(name); }
};

Row rows[] = {{"_scaled_dot_product_flash_attention", ForEachHead},
              {"_scaled_dot_product_cudnn_attention", ForEachWeight},
              {"_scaled_dot_product_efficient_attention", ForEachWeight}};

// A row whose operators are there.
struct Kernel {
  Row* row = nullptr;
  const codegen::OpInfo* aten = nullptr;
  const codegen::OpInfo* own = nullptr;
};

// The one of which `which` is `info`; null: none.
const Kernel* FindKernel(const codegen::OpInfo* Kernel::*which, const codegen::OpInfo& info) {
  static const auto* kernels = [] {
    auto* found = new std::vector<Kernel>;
    for (Row& row : rows) {
      const Kernel kernel{&row, codegen::FindOpInfo(row.aten()), codegen::FindOpInfo(row.own())};
      if (kernel.aten != nullptr && kernel.own != nullptr) found->push_back(kernel);
    }
    return found;
  }();
  const auto it = std::find_if(kernels->begin(), kernels->end(), [&](const Kernel& kernel) { return kernel.*which == &info; });
  return it == kernels->end() ? nullptr : &*it;
}

void CallWithNumbers(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const Kernel* const kernel = FindKernel(&Kernel::own, codegen::GetOpInfo(op));
  const auto offset = static_cast<uint64_t>(torch::jit::pop(*stack).toScalar().toLong());
  const auto seed = static_cast<uint64_t>(torch::jit::pop(*stack).toScalar().toLong());
  const runtime::NumbersOfCalls numbers(runtime::PhiloxState{seed, offset});
  kernel->aten->handle.callBoxed(stack);
}

}  // namespace

std::string AttentionWithDropout(const char* kernel) { return std::string("lazuli::") + kernel + "_dropout"; }

bool RecordAttentionDropout(Recorder* recorder, const codegen::OpInfo& info, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const Kernel* const kernel = recorder == nullptr ? nullptr : FindKernel(&Kernel::aten, info);
  if (kernel == nullptr || IsBeingCaptured(keys)) return false;
  Row& row = *kernel->row;
  const auto args = torch::jit::last(*stack, info.num_args);
  const at::Tensor query = args[0].toTensor(), key = args[1].toTensor();
  const auto is_plain = [](const at::Tensor& heads) {
    return heads.defined() && heads.is_cuda() && heads.layout() == c10::kStrided && heads.dim() == 4;
  };
  if (!is_plain(query) || !is_plain(key) || !(args[static_cast<size_t>(info.dropout_arg)].toDouble() > 0)) return false;
  const uint64_t numbers = row.numbers(query, key);
  const auto known = row.taken.known();
  if (known == runtime::TakenAsThought::Known::kNo) return false;
  if (known == runtime::TakenAsThought::Known::kNothing) {
    row.taken.Watch(numbers, [&] { RunEagerly(recorder, info, keys, stack); });
    return true;
  }
  const auto taken = runtime::TakeRandomNumbers(query.device(), numbers);
  if (!taken.has_value()) return false;
  torch::jit::push(*stack, at::Scalar(static_cast<int64_t>(taken->seed)), at::Scalar(static_cast<int64_t>(taken->offset)));
  RecordOrRun(*kernel->own, keys, stack);
  return true;
}

TORCH_LIBRARY_FRAGMENT(lazuli, m) {
  for (const Row& row : rows) {
    const auto kernel = c10::Dispatcher::singleton().findSchema({row.aten(), ""});
    if (!kernel.has_value()) continue;
    std::vector<c10::Argument> arguments = kernel->schema().arguments();
    for (const char* name : {"seed", "offset"}) {
      arguments.emplace_back(name, c10::NumberType::get(), std::nullopt, std::nullopt, /*kwarg_only=*/true);
    }
    // A graph's launches would all draw the same numbers.
    m.def(c10::FunctionSchema(row.own(), "", std::move(arguments), kernel->schema().returns()), {at::Tag::cudagraph_unsafe});
  }
}
TORCH_LIBRARY_IMPL(lazuli, CUDA, m) {
  for (const Row& row : rows) m.impl(row.own().c_str(), torch::CppFunction::makeFromBoxedFunction<&CallWithNumbers>());
}

}  // namespace lazuli::tracer
