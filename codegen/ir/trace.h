// A trace: the operators recorded between two cuts, over numbered storages. What codegen compiles and emit_aten replays.
//
// Views never appear as operators: each tensor operand is a strided window (`TensorRef`) over a storage, so a chain of views is
// its last window. A functional op creates one fresh storage per defined result. An op with `mutated_args` writes its operands'
// windows in place. Program order of reads and writes per storage is the meaning of the trace.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <c10/util/DimVector.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "codegen/ir/op_info.h"
#include "runtime/symbols.h"

namespace lazuli::codegen {

using StorageId = int32_t;
constexpr StorageId kNoStorage = -1;

// A strided window over one storage. Sizes, strides and offset count elements of `dtype`.
struct TensorRef {
  StorageId storage = kNoStorage;  // kNoStorage: an undefined tensor.
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  c10::DimVector sizes;
  c10::DimVector strides;
  // The window's first element. Offsets are run-time values: -1 means the constant 0, otherwise an index into RunArgs::offsets.
  // Within one storage, equal slots mean equal offsets and different slots mean different offsets.
  int32_t offset_slot = -1;
  // What that slot holds, where it is known: of windows over what the trace makes. 0: it is not, or there is no slot.
  int64_t offset = 0;
  bool wrapped_number = false;  // A 0-dim tensor that takes part in type promotion as a C++ number.

  void SetOffset(int32_t slot, int64_t known = 0) {
    offset_slot = slot;
    offset = known;
  }
  bool defined() const { return storage != kNoStorage; }
  bool operator==(const TensorRef& other) const;
  bool operator!=(const TensorRef& other) const { return !(*this == other); }
  int64_t numel() const;
  bool is_contiguous() const;  // In row-major order without gaps, by its strides alone.
};

// One argument of an op, in schema order.
struct TraceArg {
  enum class Kind : uint8_t {
    kConst,       // `value`: part of the skeleton (ints, bools, strings, lists, None, dtypes, static scalars).
    kTensor,      // `tensors[0]`; undefined when an optional tensor is absent.
    kTensorList,  // `tensors`; also Tensor?[].
    kScalar,      // A `Scalar`, `float` or optional thereof known only at run time: RunArgs::scalars[slot], of type `scalar_type`.
                  // Where the schema says Tensor: a 0-dim wrapped number (`x * 0.5`), to be passed to ATen as wrapped_scalar_tensor.
  };
  Kind kind = Kind::kConst;
  c10::ScalarType scalar_type = c10::ScalarType::Undefined;  // kScalar: Double, Long or Bool; bits are a double or an int64_t.
  int32_t slot = -1;
  std::vector<TensorRef> tensors;
  c10::IValue value;
};

struct TraceOp {
  const OpInfo* info = nullptr;
  std::vector<TraceArg> args;
  // One per schema return. For an op that returns its mutated self: empty. Undefined results have storage == kNoStorage; each other
  // result is a fresh storage, its window covering that storage's whole dense memory from offset 0.
  std::vector<TensorRef> results;
  int32_t index = -1;  // In the trace; a copy in a graph keeps it.
  // Where it runs and its results are. Operands are there too, but for those of no dimensions, which may be on the CPU.
  c10::Device device = c10::kCPU;
  // What torch::get_default_dtype() was when it was called: of numbers and of results made from integers.
  c10::ScalarType default_dtype = c10::ScalarType::Float;
};

struct TraceStorage {
  bool is_input = false;  // Has memory before the trace starts; otherwise created by an op of the trace.
  bool live_out = false;  // Created ones: somebody can still see it after the trace. Inputs are always visible.
  bool mutated = false;   // Inputs: written by some op of the trace.
  int64_t nbytes = 0;     // Created ones: exact size. Inputs: 0, since not part of the skeleton.
  c10::Device device = c10::kCPU;
};

struct Trace {
  std::vector<TraceStorage> storages;
  std::vector<TraceOp> ops;
  int32_t num_scalars = 0;
  int32_t num_offsets = 0;
  // What sizes, strides, nbytes and int arguments that are sizes may hold beside numbers.
  runtime::SymbolTable symbols;
};

// Text form of a trace, one op a line; ParseTrace(PrintTrace(t)) equals t. See trace_text.cpp for the grammar.
std::string PrintTrace(const Trace& trace);

// The device of an operator over `storages`: a GPU when a result or an operand is there.
c10::Device DeviceOf(const TraceOp& op, const std::vector<TraceStorage>& storages);

// The tensor that `op` copies, perhaps with another dtype or layout (clone, _to_copy); null when it is no copy, or one of a number.
const TensorRef* CopiedBy(const TraceOp& op);

// Fails with the line, the column and what was expected there. Storages, slots and operators are checked; shapes are not.
absl::StatusOr<Trace> ParseTrace(const std::string& text);

}  // namespace lazuli::codegen
