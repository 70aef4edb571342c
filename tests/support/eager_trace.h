// Builds a trace by running its ops eagerly: what tests compare compiled programs with.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <string>
#include <vector>

#include "codegen/ir/trace.h"
#include "runtime/program.h"

namespace lazuli::testing {

// Ops are called by name with IValues in schema order (missing trailing ones take the schema's defaults) and run at once; the trace of
// them grows alongside. Views made with ATen's functions between ops need no call: operands are recorded as windows over storages.
class EagerTrace {
 public:
  // Declares `tensor`'s storage as an input, remembering its content now. Call before any op that uses it.
  at::Tensor Input(at::Tensor tensor);

  // Calls the op ("aten::add.Tensor") and records it. Scalars become run-time scalars where the schema allows.
  std::vector<at::Tensor> Op(const std::string& name, std::vector<c10::IValue> args);
  at::Tensor Op1(const std::string& name, std::vector<c10::IValue> args) { return Op(name, std::move(args)).at(0); }

  // Declares the tensor's (created) storage visible after the trace.
  void Keep(const at::Tensor& tensor);

  // Replaces what runs find in `input`'s memory.
  void Overwrite(const at::Tensor& input, const at::Tensor& content);

  const codegen::Trace& trace() const { return trace_; }

  // What a run left: the content of each kept or input storage, as a tensor like the eager one.
  struct Outcome {
    runtime::RunResult result;
    std::vector<at::Tensor> eager;   // Kept tensors and input tensors, as eager left them.
    std::vector<at::Tensor> actual;  // The same of the run; undefined where the program left no memory.
  };
  // Runs `program` on fresh copies of the inputs.
  Outcome Run(runtime::Program& program) const;

  // Runs `program` when nobody else holds `input`, and says whether that left it without memory.
  bool Frees(runtime::Program& program, const at::Tensor& input);

  // Shortest of `runs` runs, in microseconds, on one copy of the inputs.
  double Time(runtime::Program& program, int runs) const;

  // Runs and expects every outcome within `rtol`, `atol` of eager's (0, 0: bit for bit, NaN equal to NaN).
  void ExpectMatches(runtime::Program& program, double rtol = 0, double atol = 0) const;

 private:
  struct Memory;
  // Fresh copies of the inputs, and the arguments of a run over them.
  void Prepare(Memory* memory) const;
  codegen::StorageId StorageOf(const at::Tensor& tensor);
  codegen::TensorRef Ref(const at::Tensor& tensor);
  codegen::TraceArg Arg(const c10::IValue& value, const c10::Type& type, bool static_scalars);

  codegen::Trace trace_;
  std::vector<c10::Storage> storages_;  // By storage; keeps them alive so that numbers stay unique.
  std::vector<at::Tensor> initial_;     // Inputs: bytes at entry. Undefined for created storages.
  std::vector<at::Tensor> watched_;     // Kept and input tensors.
  std::vector<codegen::StorageId> watched_storage_;
  std::vector<uint64_t> scalars_;
  std::vector<int64_t> offsets_;
  std::vector<std::pair<codegen::StorageId, int64_t>> offset_keys_;
};

}  // namespace lazuli::testing
