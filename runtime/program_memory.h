// The memories of one program while it runs: where they are now, and the storages through which ATen sees them.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <vector>

#include "runtime/executor.h"
#include "runtime/program.h"

namespace lazuli::runtime {

class ProgramMemory {
 public:
  explicit ProgramMemory(const ProgramSpec* spec);

  // Binds outputs that are not bound yet, which it allocates, all or those that no step acquires; and the arenas, all or those of the
  // CPU. These throw c10::OutOfMemoryError.
  void BindOutputs(bool all);
  void BindArenas(bool cpu_only);
  // Allocates a memory that a step acquires, but for outputs that are bound.
  void Acquire(int32_t memory);
  // Binds the inputs among `args.storages`, but for null ones.
  void BindInputs(const RunArgs& args);
  // For storages made while the memories are bound.
  void BindStorages(const RunArgs& args);
  // The symbols have other values than in the last run.
  void Resize();

  // By memory: where it is now.
  const std::vector<void*>& bases() const { return bases_; }
  void SetBase(int32_t memory, void* base);
  // Where an arena begins; null while it is not bound.
  void* arena(size_t number) const { return arenas_[number].get(); }
  // The storage, owning nothing, through which ATen sees a memory.
  c10::Storage StorageOf(int32_t memory);
  c10::Device DeviceOf(int32_t memory) const { return spec_.memories[memory].device; }

  // Takes a result's memory when nothing else holds it and its layout is the recorded one; copies it otherwise.
  void Adopt(const AtenCall& call, const WindowSpec& window, at::Tensor tensor);
  // What Adopt took, or Acquire allocated.
  at::DataPtr& adopted(int32_t memory) { return adopted_[memory]; }

  void FreeArenas();
  // Outputs, and what is adopted.
  void FreeResults();
  // Hands results over, but for those of which `poisoned` is true, and frees what else the run made.
  void HandOver(const RunArgs& args, const std::vector<bool>& poisoned);

 private:
  const ProgramSpec& spec_;
  std::vector<int32_t> inputs_;
  std::vector<bool> acquired_;       // By memory: a step does it.
  std::vector<at::DataPtr> arenas_;  // By the spec's; only while running.
  std::vector<void*> bases_;
  std::vector<at::DataPtr> adopted_;    // By memory.
  std::vector<at::DataPtr> outputs_;    // By memory.
  std::vector<c10::Storage> storages_;  // By memory; null when no ATen call touches it.
};

}  // namespace lazuli::runtime
