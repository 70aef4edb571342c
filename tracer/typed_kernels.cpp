#include <ATen/ops/arange_ops.h>
#include <ATen/ops/empty_ops.h>
#include <ATen/ops/empty_strided_ops.h>
#include <ATen/ops/eye_ops.h>
#include <ATen/ops/full_ops.h>
#include <ATen/ops/ones_ops.h>
#include <ATen/ops/zeros_ops.h>

#include <algorithm>

#include "codegen/ir/replaced_kernels.h"
#include "codegen/lower.h"
#include "tracer/typed_direct.h"
#include "tracer/typed_kernel.h"

namespace lazuli::tracer {

#define LAZULI_DECLARE_SHARD(n) \
  void RegisterShard##n(torch::Library* library, torch::Library* generic, absl::flat_hash_set<std::string>* names);
LAZULI_DECLARE_SHARD(0)
LAZULI_DECLARE_SHARD(1)
LAZULI_DECLARE_SHARD(2)
LAZULI_DECLARE_SHARD(3)
LAZULI_DECLARE_SHARD(4)
LAZULI_DECLARE_SHARD(5)
#undef LAZULI_DECLARE_SHARD
void RegisterForeachKernels(torch::Library* library, torch::Library* generic, absl::flat_hash_set<std::string>* names);

bool KeepsSizes(const codegen::OpInfo& info) {
  const auto& arguments = info.schema().arguments();
  const bool has_device = std::any_of(arguments.begin(), arguments.end(), [](const c10::Argument& arg) { return arg.name() == "device"; });
  return codegen::IsFreePointwise(codegen::FindRowByName(info.name)) && !info.is_random && !has_device;
}

absl::flat_hash_set<std::string> RegisterTypedKernels(torch::Library* library, torch::Library* generic) {
  absl::flat_hash_set<std::string> names;
  RegisterShard0(library, generic, &names);
  RegisterShard1(library, generic, &names);
  RegisterShard2(library, generic, &names);
  RegisterShard3(library, generic, &names);
  RegisterShard4(library, generic, &names);
  RegisterShard5(library, generic, &names);
  RegisterForeachKernels(library, generic, &names);
  return names;
}

template <class Op>
void RegisterFactory(torch::Library* library) {
  const codegen::OpInfo& info = InfoOf<Op>();
  if (codegen::IsKernelReplaced(info.handle) || codegen::IsAutogradReplaced(info.handle)) return;
  library->impl(info.name.c_str(), TORCH_FN((&FactoryKernel<Op, typename Op::schema>::Call)));
}

template <class... Ops>
void RegisterFactoriesOf(torch::Library* library) {
  (RegisterFactory<Ops>(library), ...);
}

void RegisterFactories(torch::Library* library) {
  using namespace at::_ops;
  RegisterFactoriesOf<empty_memory_format, empty_strided, zeros, ones, full, arange, arange_start, arange_start_step, eye, eye_m>(library);
}

}  // namespace lazuli::tracer
