// One shard of the typed kernels: each translation unit typed_kernels_<n>.cpp instantiates every kShards-th row of typed_ops.def, so that
// no file takes minutes to compile.
#pragma once

#include <ATen/Operators.h>

#include "codegen/ir/replaced_kernels.h"
#include "tracer/above_autograd.h"
#include "tracer/replaced_kernels.h"
#include "tracer/typed_direct.h"
#include "tracer/typed_kernel.h"

namespace lazuli::tracer {

constexpr int kShards = 6;

// Calls of `Called` are recorded as `Op`.
template <class Called, class Op, int kShard>
void RegisterTyped(torch::Library* library, torch::Library* generic, absl::flat_hash_set<std::string>* names) {
  using Schema = typename Called::schema;
  using Kernel = TypedKernel<Op, Schema, Called>;
  const codegen::OpInfo& called = InfoOf<Called>();
  if (codegen::IsKernelReplaced(called.handle) || codegen::IsKernelReplaced(InfoOf<Op>().handle)) return;
  library->impl(called.name.c_str(), TORCH_FN((&Kernel::Call)));
  if constexpr (GoesPastAutograd<Schema>::value) {
    if (!codegen::IsAutogradReplaced(called.handle)) {
      generic->impl(called.name.c_str(), TORCH_FN((&AboveAutogradKernel<Called, Schema, Kernel>::Call)));
    }
  }
  names->insert(called.name);
  if constexpr (!std::is_same_v<Op, Called>) NoteTwin(InfoOf<Op>().name, called.name);
}

template <template <class, class> class Kernel, class Op, int kShard>
void RegisterDirect(torch::Library* library, absl::flat_hash_set<std::string>* names) {
  const codegen::OpInfo& info = InfoOf<Op>();
  if (codegen::IsKernelReplaced(info.handle)) return;
  library->impl(info.name.c_str(), TORCH_FN((&Kernel<Op, typename Op::schema>::Call)));
  names->insert(info.name);
}

template <int kShard>
void RegisterShard(torch::Library* library, torch::Library* generic, absl::flat_hash_set<std::string>* names) {
  constexpr int kFirst = __COUNTER__ + 1;
#define LAZULI_TYPED_OP(op) \
  if constexpr ((__COUNTER__ - kFirst) % kShards == kShard) RegisterTyped<at::_ops::op, at::_ops::op, kShard>(library, generic, names);
#define LAZULI_SCALAR_TWIN(called, op) \
  if constexpr ((__COUNTER__ - kFirst) % kShards == kShard) RegisterTyped<at::_ops::called, at::_ops::op, kShard>(library, generic, names);
#define LAZULI_TYPED_VIEW(op) \
  if constexpr ((__COUNTER__ - kFirst) % kShards == kShard) RegisterDirect<ViewKernel, at::_ops::op, kShard>(library, names);
#define LAZULI_TYPED_EAGER(op) \
  if constexpr ((__COUNTER__ - kFirst) % kShards == kShard) RegisterDirect<EagerKernel, at::_ops::op, kShard>(library, names);
#include "tracer/typed_ops.def"
#undef LAZULI_TYPED_OP
#undef LAZULI_TYPED_VIEW
#undef LAZULI_TYPED_EAGER
#undef LAZULI_SCALAR_TWIN
}

}  // namespace lazuli::tracer
