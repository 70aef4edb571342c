#include "runtime/program_memory.h"

#include <ATen/ops/empty_strided.h>
#include <c10/core/impl/COW.h>

#include <algorithm>
#include <utility>

#include "runtime/device.h"

namespace lazuli::runtime {

ProgramMemory::ProgramMemory(const ProgramSpec* spec)
    : spec_(*spec),
      acquired_(spec->memories.size(), false),
      arenas_(spec->arenas.size()),
      bases_(spec->memories.size(), nullptr),
      adopted_(spec->memories.size()),
      outputs_(spec->memories.size()),
      storages_(spec->memories.size()) {
  for (size_t m = 0; m < spec->memories.size(); ++m) {
    if (spec->memories[m].kind == MemorySpec::Kind::kInput) inputs_.push_back(static_cast<int32_t>(m));
  }
  for (const StepSpec& step : spec->steps) {
    for (const int32_t m : step.acquires) acquired_[m] = true;
  }
}

c10::Storage ProgramMemory::StorageOf(int32_t memory) {
  c10::Storage& storage = storages_[memory];
  if (!storage) {
    storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), spec_.memories[memory].nbytes,
                                                    at::DataPtr(nullptr, DeviceOf(memory)), /*allocator=*/nullptr, /*resizable=*/false);
  }
  return storage;
}

void ProgramMemory::SetBase(int32_t memory, void* base) {
  if (bases_[memory] == base) return;
  bases_[memory] = base;
  if (storages_[memory]) storages_[memory].unsafeGetStorageImpl()->set_data_ptr_noswap(at::DataPtr(base, DeviceOf(memory)));
}

void ProgramMemory::BindInputs(const RunArgs& args) {
  for (const int32_t m : inputs_) {
    c10::StorageImpl* storage = args.storages[spec_.memories[m].storage];
    if (storage == nullptr) continue;
    // Memory shared lazily (at::_lazy_clone) gets its own copy before anything may write it.
    if (c10::impl::cow::is_cow_data_ptr(storage->_mutable_data_ptr_no_checks())) c10::impl::cow::materialize_cow_storage(*storage);
    SetBase(m, storage->_mutable_data_ptr_no_checks().get());
    if (storages_[m]) storages_[m].unsafeGetStorageImpl()->set_nbytes(storage->nbytes());
  }
}

void ProgramMemory::BindOutputs(bool all) {
  for (size_t m = 0; m < spec_.memories.size(); ++m) {
    if (spec_.memories[m].kind == MemorySpec::Kind::kOutput && (all || !acquired_[m])) Acquire(static_cast<int32_t>(m));
  }
}

void ProgramMemory::Acquire(int32_t memory) {
  const MemorySpec& spec = spec_.memories[memory];
  at::DataPtr& data = spec.kind == MemorySpec::Kind::kOutput ? outputs_[memory] : adopted_[memory];
  if (!data) data = AllocateOn(spec.device, spec.nbytes, /*scratch=*/false);
  SetBase(memory, data.get());
}

void ProgramMemory::BindArenas(bool cpu_only) {
  const auto wanted = [&](int32_t arena) { return !cpu_only || spec_.arenas[arena].device.is_cpu(); };
  for (size_t a = 0; a < spec_.arenas.size(); ++a) {
    if (!wanted(static_cast<int32_t>(a)) || spec_.arenas[a].nbytes == 0) continue;
    arenas_[a] = AllocateOn(spec_.arenas[a].device, spec_.arenas[a].nbytes, /*scratch=*/true);
  }
  for (size_t m = 0; m < spec_.memories.size(); ++m) {
    const MemorySpec& memory = spec_.memories[m];
    if (memory.kind != MemorySpec::Kind::kArena || !wanted(memory.arena)) continue;
    SetBase(static_cast<int32_t>(m), static_cast<char*>(arenas_[memory.arena].get()) + memory.offset);
  }
}

void ProgramMemory::BindStorages(const RunArgs& args) {
  for (size_t m = 0; m < storages_.size(); ++m) {
    if (!storages_[m]) continue;
    c10::StorageImpl* storage = storages_[m].unsafeGetStorageImpl();
    storage->set_data_ptr_noswap(at::DataPtr(bases_[m], spec_.memories[m].device));
    if (spec_.memories[m].kind != MemorySpec::Kind::kInput) continue;
    const auto number = static_cast<size_t>(spec_.memories[m].storage);
    const bool is_known = number < args.storages.size() && args.storages[number] != nullptr;  // Not yet, perhaps, where steps run ahead.
    if (is_known) storage->set_nbytes(args.storages[number]->nbytes());
  }
}

void ProgramMemory::Resize() {
  for (size_t m = 0; m < storages_.size(); ++m) {
    if (storages_[m]) storages_[m].unsafeGetStorageImpl()->set_nbytes(spec_.memories[m].nbytes);
  }
}

void ProgramMemory::Adopt(const AtenCall& call, const WindowSpec& window, at::Tensor tensor) {
  const MemorySpec& memory = spec_.memories[window.memory];
  TORCH_CHECK(tensor.defined() && tensor.sizes() == c10::IntArrayRef(window.sizes) && tensor.scalar_type() == window.dtype,
              "lazuli: a result of ", call.name, " differs from what was recorded: ", tensor.sizes(), " ", tensor.scalar_type(),
              " instead of ", c10::IntArrayRef(window.sizes), " ", window.dtype);
  const bool fits = tensor.strides() == c10::IntArrayRef(window.strides) && tensor.storage_offset() == 0 &&
                    static_cast<int64_t>(tensor.storage().nbytes()) >= memory.nbytes;
  if (!fits || tensor.use_count() != 1 || tensor.storage().use_count() != 1) {
    at::Tensor copy = at::empty_strided(window.sizes, window.strides, tensor.options());
    copy.copy_(tensor);
    tensor = std::move(copy);
  }
  adopted_[window.memory] = tensor.storage().set_data_ptr(at::DataPtr(nullptr, memory.device));
  SetBase(window.memory, adopted_[window.memory].get());
}

void ProgramMemory::FreeArenas() {
  for (at::DataPtr& arena : arenas_) arena.clear();
}

void ProgramMemory::FreeResults() {
  for (at::DataPtr& output : outputs_) output.clear();
  for (at::DataPtr& adopted : adopted_) adopted.clear();
}

void ProgramMemory::HandOver(const RunArgs& args, const std::vector<bool>& poisoned) {
  for (size_t m = 0; m < spec_.memories.size(); ++m) {
    const MemorySpec& memory = spec_.memories[m];
    at::DataPtr& data = memory.kind == MemorySpec::Kind::kOutput ? outputs_[m] : adopted_[m];
    if (memory.storage >= 0 && memory.kind != MemorySpec::Kind::kInput && !poisoned[m]) {
      args.outputs[memory.storage] = std::exchange(data, at::DataPtr());
    } else {
      data.clear();
    }
  }
}

}  // namespace lazuli::runtime
