// Runs a list of prepared steps: fused kernels and ATen calls over numbered memories. What codegen lowers a graph to.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <c10/util/DimVector.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/types/span.h"
#include "runtime/operator_life.h"
#include "runtime/program.h"
#include "runtime/symbols.h"

namespace lazuli::runtime {

// Sizes, strides, numbers of bytes and int arguments of a spec may hold symbols.

// A block of memory that steps read and write.
struct MemorySpec {
  enum class Kind : uint8_t {
    kInput,    // RunArgs::storages[storage].
    kOutput,   // Allocated for each run, at its start or by a step, and handed over through RunArgs::outputs[storage].
    kArena,    // `offset` bytes into one of the run's arenas, or with symbols where its slot is.
    kAdopted,  // Made by an ATen call, or allocated by a step; freed after its last use, or handed over when `storage` is not -1.
  };
  Kind kind = Kind::kArena;
  int32_t storage = -1;
  int64_t nbytes = 0;
  int64_t offset = 0;
  int32_t arena_slot = -1;  // kArena with symbols: memories of one slot are never in use at the same time.
  int32_t arena = -1;       // kArena: which of the program's.
  c10::Device device = c10::kCPU;
};

// What a memory of `nbytes` takes in an arena on `device`. cuBLAS chooses its kernels by how operands are aligned, up to 256 bytes: eager's
// are.
inline int64_t ArenaBytes(int64_t nbytes, c10::Device device) {
  const int64_t alignment = device.is_cpu() ? 64 : 256;
  return std::max(alignment, (nbytes + alignment - 1) / alignment * alignment);
}

// A strided window over a memory.
struct WindowSpec {
  static constexpr int32_t kNoContent = -2;
  int32_t memory = -1;  // -1: an undefined tensor; kNoContent: a tensor of which only the shape counts.
  c10::ScalarType dtype = c10::ScalarType::Float;
  c10::DimVector sizes;
  c10::DimVector strides;
  int32_t offset_slot = -1;  // Index into RunArgs::offsets; -1: 0.
  bool wrapped_number = false;
  bool operator==(const WindowSpec& o) const {
    return memory == o.memory && dtype == o.dtype && sizes == o.sizes && strides == o.strides && offset_slot == o.offset_slot &&
           wrapped_number == o.wrapped_number;
  }
};

struct CallArg {
  enum class Kind : uint8_t { kConst, kTensor, kTensorList, kOptionalTensorList, kScalar, kScalarTensor };
  Kind kind = Kind::kConst;
  c10::IValue value;                // kConst.
  std::vector<WindowSpec> windows;  // kTensor: one.
  int32_t slot = -1;                // kScalar, kScalarTensor (a wrapped 0-dim tensor).
  c10::ScalarType scalar_type = c10::ScalarType::Undefined;
};

// Computes an operator from its arguments and returns true; or returns false, having done nothing. Results go into the arguments' out
// tensors, which are last; an operator that makes its results pushes them onto `results`, which is empty.
using DirectCall = bool (*)(const torch::jit::Stack& arguments, torch::jit::Stack* results);

// Computes an operator with one result in another way than its kernel, with the help of what it keeps from earlier runs.
class KeptCall {
 public:
  virtual ~KeptCall() = default;
  // The result; undefined where it has done nothing. `input`: the storage that AtenCall::kept_input says.
  virtual at::Tensor Run(const torch::jit::Stack& arguments, c10::StorageImpl* input) = 0;
};

struct AtenCall {
  c10::OperatorHandle op;
  std::string name;  // Of the recorded op, for errors.
  std::vector<CallArg> args;
  // What becomes of each result, in order: memory -1 drops it. Empty when the op writes its results into arguments.
  std::vector<WindowSpec> results;
  int32_t index = -1;                                      // Place of the recorded op in the trace.
  c10::Device device = c10::kCPU;                          // Of its results.
  c10::ScalarType default_dtype = c10::ScalarType::Float;  // That it is called under.
  OperatorLifePtr life;                                    // Of `op`.
  DirectCall direct = nullptr;                             // Tried before `op` is called.
  std::shared_ptr<KeptCall> kept;                          // Likewise.
  int32_t kept_input = -1;                                 // The memory, an input of the run, that it keeps something of.
};

// A kernel and what it is to run on.
struct BoundKernel {
  const void* kernel = nullptr;
  void* const* buffers = nullptr;
  size_t num_buffers = 0;
  const uint64_t* scalars = nullptr;
  const int64_t* symbols = nullptr;
};

struct KernelLaunch {
  std::shared_ptr<const void> kernel;  // Passed to `run`.
  void (*run)(const void* kernel, void* const* buffers, const uint64_t* scalars, const int64_t* symbols) = nullptr;
  // Runs several kernels together, in any order. Null: this one runs alone.
  void (*run_batch)(absl::Span<const BoundKernel> batch) = nullptr;
  const void* batch_key = nullptr;  // Launches run together with those that have the same.
  struct Buffer {
    int32_t memory = -1;  // -1: a byte, 0 at first, that the kernel changes when it meets an index that an operator throws for.
    int32_t offset_slot = -1;
    int32_t element_size = 1;
  };
  std::vector<Buffer> buffers;
  std::vector<int32_t> scalar_slots;
  std::vector<int64_t> symbols;  // What the kernel's own symbols stand for.
  int64_t touched_bytes = 0;     // Memory that it reads and writes, with the symbols' first values.
  // The operators among its own that may throw for an index, in program order. They are called when the kernel met one, to throw; what they
  // return is dropped.
  struct Check {
    AtenCall call;
    std::vector<int32_t> writes;  // Memories of the kernel that are invalid when it throws.
  };
  std::vector<Check> checks;
  std::string name;
};

// A call, with kernels on the rows of its operand and of its result.
struct FusedSteps {
  bool has_before = false;  // The first step is a kernel. Then comes the call, and then perhaps a kernel.
  std::shared_ptr<const void> plan;
  // Does what the steps do, and returns true; or returns false, having done nothing: then they run one by one. A null kernel: none.
  bool (*run)(const void* plan, const torch::jit::Stack& arguments, const BoundKernel& before, const BoundKernel& after) = nullptr;
};

struct StepSpec {
  std::variant<KernelLaunch, AtenCall> work;
  std::vector<int32_t> reads;     // Memories whose content it needs.
  std::vector<int32_t> writes;    // Memories that are invalid when it fails.
  std::vector<int32_t> acquires;  // kAdopted and kOutput memories that are allocated before it.
  std::vector<int32_t> releases;  // kAdopted and kInput memories of which it is the last user.
  int64_t overwrites = 0;         // Bytes of inputs that it writes.
  int32_t overwrites_at = 0;      // So many of the trace's operators, from the first on, have all those of its that write inputs.
  // On the first of so many steps that run together: launches with one `run_batch` and `batch_key`, of which none depends on another, or
  // what `fused` says.
  int32_t batch = 1;
  std::optional<FusedSteps> fused;
};

// Lists of memories and slots hold each once.
inline bool Holds(const std::vector<int32_t>& list, int32_t item) { return std::find(list.begin(), list.end(), item) != list.end(); }
inline void AddUnique(std::vector<int32_t>* list, int32_t item) {
  if (!Holds(*list, item)) list->push_back(item);
}

// Inputs of so many bytes at most are saved where a step that runs ahead (Program::RunAhead) overwrites them; one that overwrites more is
// not run ahead, and what comes after it neither.
constexpr int64_t kMostSavedBytes = int64_t{64} << 10;

// So many of a trace's operators, from the first on, mention each of its arguments. By storage, 0 for those that are no inputs; by slot.
struct KnownAt {
  std::vector<int32_t> storages;
  std::vector<int32_t> scalars;
  std::vector<int32_t> offsets;
};

// Memory of one device that only a run needs.
struct ArenaSpec {
  c10::Device device = c10::kCPU;
  int64_t nbytes = 0;
};

struct ProgramSpec {
  std::vector<MemorySpec> memories;
  std::vector<StepSpec> steps;
  std::vector<ArenaSpec> arenas;
  // Offset slots are those of the run, and from `num_offsets` on these.
  int32_t num_offsets = 0;
  std::vector<OffsetSum> offset_sums;
  KnownAt known_at;
  SymbolTable symbols;
  bool bit_exact = true;  // Program::bit_exact().
  int64_t serial = 0;     // Of the trace, for the log.
};

// Whether `step` of `spec` writes a GPU's memory.
inline bool IsOnGpu(const ProgramSpec& spec, const StepSpec& step) {
  return std::any_of(step.writes.begin(), step.writes.end(), [&](int32_t m) { return spec.memories[m].device.is_cuda(); });
}

// The program that runs `spec`'s steps in order. It keeps its tensors between runs, so one run at a time.
std::unique_ptr<Program> MakeProgram(ProgramSpec spec);

}  // namespace lazuli::runtime
