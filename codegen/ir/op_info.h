// What the dispatcher's schema says of one operator, computed once per operator.
//
// Everything the recorder, the guards and codegen need to know of an op without looking at its name is here. What the schema does not
// say (a few ops mutate or alias without saying so) is in op_info.cpp, in one table.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/operator_life.h"

namespace lazuli::codegen {

struct OpInfo {
  c10::OperatorHandle handle;
  std::string name;        // "aten::add.Tensor"; no trailing dot when the overload has no name.
  int32_t id = 0;          // Dense, process-local; stable while the process lives.
  uint64_t name_hash = 0;  // The same in every process.

  int num_args = 0;
  int num_returns = 0;
  // Bit i: argument i is written in place (`Tensor(a!)`), whether `self` of `add_` or a hidden one such as batch norm's running_mean.
  uint64_t mutated_args = 0;
  bool hides_pieces = false;          // torch.jit.trace writes down what its kernel calls, not itself.
  bool writes_lists = false;          // One of these is a list of tensors: foreach operators in place, optimizers' steps.
  uint64_t tensor_args = 0;           // Bit i: argument i is a Tensor.
  uint64_t size_args = 0;             // Bit i: argument i holds sizes (SymInt in the schema; a factory's number, if whole).
  bool returns_mutated_self = false;  // In-place op: its only return is argument 0.
  bool is_view = false;               // Returns alias an argument and nothing is written.
  bool reads_metadata_only = false;   // Never looks at its operands' data.
  bool is_out = false;                // Keyword-only `out` arguments.
  bool is_random = false;             // Draws from a generator.
  bool is_factory = false;            // No tensor argument.
  bool data_dependent = false;        // Output shape or control flow depends on values.
  bool rejects_masks = false;         // Output shape depends on values only when an index is a mask (Bool or Byte).
  bool static_scalars = false;        // `Scalar` and `float` arguments decide shapes or code: part of the skeleton.
  bool is_allocation = false;         // Allocates without writing (empty, empty_like, new_empty_strided, ...).
  // Bit i: argument i is a factor (`alpha`, `beta`) whose values 0 and 1 are part of the skeleton, since they choose the formula.
  uint64_t factor_args = 0;
  // Bit i: argument i is what hides elements (masked_fill's `value`): an infinity is part of the skeleton.
  uint64_t hiding_args = 0;
  int dropout_arg = -1;        // The probability of dropout (attention). -1: none.
  bool draws_dropout = false;  // Random numbers are drawn unless that is 0.
  int pin_memory_arg = -1;     // The argument that asks for pinned memory; -1: none.
  // Stays where it is when the library that registered the operator is unloaded. Null for operators without.
  std::shared_ptr<const c10::FunctionSchema> schema_ptr = nullptr;
  const c10::FunctionSchema& schema() const { return *schema_ptr; }
  runtime::OperatorLifePtr life;  // `handle` must not be used any more when it is gone.
  bool recordable = false;        // May enter a trace at all; otherwise always cut and eager.
  bool has_meta = false;          // Runs on meta tensors: its Meta kernel, or a composite one, gives the shapes.
};

// The info of `handle`, computed on first use; never freed. Thread-safe.
const OpInfo& GetOpInfo(const c10::OperatorHandle& handle);

// The info with `id`, which must be valid.
const OpInfo& OpInfoById(int32_t id);

// By "aten::add.Tensor"; null when no such operator exists.
const OpInfo* FindOpInfo(const std::string& name);

}  // namespace lazuli::codegen
