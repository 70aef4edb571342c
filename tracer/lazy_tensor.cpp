#include "tracer/lazy_tensor.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <c10/core/CPUAllocator.h>
#include <torch/csrc/autograd/input_buffer.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "runtime/device.h"
#include "runtime/mode_keys.h"
#include "runtime/redirect_calls.h"
#include "tracer/captured_memory.h"
#include "tracer/live_bytes.h"
#include "tracer/recorder.h"
#include "tracer/shared_storages.h"

namespace lazuli::tracer {
namespace {

thread_local int metadata_depth = 0;

// The last storage that this thread's program asked for, and what Recorder::mark() was: no operator recorded since reads it.
struct Settled {
  c10::StorageImpl* storage;
  uint64_t mark;
};
__thread Settled settled __attribute__((tls_model("initial-exec"))) = {nullptr, 0};

// StorageImpl lets anyone set the throw-on-access flag but nobody clear it. An explicit instantiation may name private members.
template <class Tag, auto Member>
struct ExposeAs {
  friend constexpr auto Get(Tag) { return Member; }
};
struct ImmutableFlag {
  friend constexpr auto Get(ImmutableFlag);
};
struct MutableCheck {
  friend constexpr auto Get(MutableCheck);
};
template struct ExposeAs<ImmutableFlag, &c10::StorageImpl::throw_on_immutable_data_ptr_>;
template struct ExposeAs<MutableCheck, &c10::StorageImpl::has_mutable_data_ptr_check_>;

constexpr char kPendingMessage[] =
    "this tensor's storage has writes that Lazuli has recorded but not run yet, and it was reached past the tensor that recorded them. "
    "Call lazuli::sync() (torch.ops.lazuli.sync() in Python) before using the pointer.";

struct PendingPlain {
  std::mutex mutex;
  absl::flat_hash_map<c10::StorageImpl*, Recorder*> recorders;
};

PendingPlain& GetPendingPlain() {
  static auto* pending = new PendingPlain;
  return *pending;
}

// Call sites learnt by LearnBookkeepingCalls: return addresses; null until learnt.
std::atomic<void*> has_storage_caller{nullptr};
std::atomic<void*> storage_caller{nullptr};
// The pending storages of the lesson, while this thread is in it.
thread_local const std::vector<c10::StorageImpl*>* lesson = nullptr;

constexpr ptrdiff_t kSameFileBytes = 1 << 16;

// Whether this access to a pending storage is by code that does not look at its data.
bool IsBookkeeping(std::atomic<void*>* known_caller, void* caller) {
  if (metadata_depth > 0) return true;
  if (lesson != nullptr) {
    void* none = nullptr;
    known_caller->compare_exchange_strong(none, caller, std::memory_order_relaxed);
    // All is learnt, and what follows may look at the data.
    if (known_caller == &storage_caller) {
      for (c10::StorageImpl* const storage : *lesson) SetPending(storage, false);
    }
  }
  return caller == known_caller->load(std::memory_order_relaxed);
}

// The program may take a pointer to the memory of `storage` that is not pending, if there is one: what is recorded is yet to read what it
// holds now. Kernels that run under the mode ask for pointers without its keys; so do their helpers, from a parallel region.
void NoteUse(c10::StorageImpl* storage, bool met) {
  // What a trace reads it holds, too.
  if (!met && c10::raw::intrusive_ptr::use_count(storage) <= 1) return;
  const c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  const bool is_recorded = keys.included_.has(runtime::kRecorderKey), below = keys.excluded_.has(runtime::kRecorderKey);
  const bool by_program = is_recorded && !below;
  if (metadata_depth > 0) return;
  if (!below && (!is_recorded || SeveralRecorders()) && !at::in_parallel_region()) SettleReaders(storage, Recorder::Current(), met);
  if (!by_program && !HeadStart::AnyActive()) return;
  Recorder* recorder = Recorder::Current();
  if (recorder == nullptr) return;
  // Programs ask for one pointer again and again, element by element.
  const uint64_t mark = recorder->mark();
  if (storage == settled.storage && mark == settled.mark && !HeadStart::AnyActive()) return;
  recorder->NoteAccess(storage, by_program);
  if (by_program) settled = {storage, mark};
}

// Somebody asks for the memory of `storage`, if there is one, through a tensor that the recorder has `met` or not.
void OnAccess(c10::StorageImpl* storage, bool met, std::atomic<void*>* known_caller, void* caller) {
  if (storage == nullptr) return;
  if (IsPending(*storage)) {
    if (IsBookkeeping(known_caller, caller)) return;
    Settle(storage);
  } else if ((Recorder::AnyBegun() || HeadStart::AnyActive()) && caller != known_caller->load(std::memory_order_relaxed)) {
    NoteUse(storage, met);
  }
  if (metadata_depth == 0) NoteCapturedAccess(storage);
}

// Forgets a caller that is not part of autograd's input buffer.
void KeepOnlyNear(std::atomic<void*>* caller, const char* function) {
  const auto* address = static_cast<const char*>(caller->load());
  if (address == nullptr || std::abs(address - function) > kSameFileBytes) caller->store(nullptr);
}

template <class Impl>
const void* VtableOfNew() {
  const auto sample =
      c10::make_intrusive<Impl>(c10::DispatchKeySet(c10::DispatchKey::CPU), c10::scalarTypeToTypeMeta(c10::kFloat), c10::kCPU);
  return VtableOf(sample.get());
}

const void* VtableOfNewStorage() { return VtableOf(c10::make_intrusive<LazyStorage>(0, c10::kCPU, nullptr, 0, 0).get()); }

}  // namespace

const Vtables kVtables = {VtableOfNew<c10::TensorImpl>(), VtableOfNew<LazyTensorImpl>(), VtableOfNewStorage()};

LazyStorage::LazyStorage(int64_t nbytes, c10::Device device, Recorder* in_recorder, uint64_t epoch, int32_t id)
    : c10::StorageImpl(use_byte_size_t(), nbytes, at::DataPtr(nullptr, device), runtime::AllocatorOf(device), /*resizable=*/true),
      recorder(in_recorder),
      number_(Pack(epoch, id)),
      live_bytes_(nbytes) {
  SetPending(this, true);
  AddLiveBytes(live_bytes_);
}

LazyStorage::~LazyStorage() { LetGo(); }

void LazyStorage::LetGo() {
  AddLiveBytes(-std::exchange(live_bytes_, 0));
  if (Recorder* pending_in = recorder.load(std::memory_order_acquire)) pending_in->OnStorageReleased(this);
}

void LazyStorage::release_resources() {
  LetGo();
  c10::StorageImpl::release_resources();
}

bool LazyTensorImpl::has_storage() const {
  OnAccess(storage_.unsafeGetStorageImpl(), /*met=*/true, &has_storage_caller, __builtin_return_address(0));
  return c10::TensorImpl::has_storage();
}

const c10::Storage& LazyTensorImpl::storage() const {
  OnAccess(storage_.unsafeGetStorageImpl(), /*met=*/true, &storage_caller, __builtin_return_address(0));
  return c10::TensorImpl::storage();
}

// The same of tensors that the mode has not met.
static bool HasStorageOfPlain(const c10::TensorImpl* impl) {
  OnAccess(impl->unsafe_storage().unsafeGetStorageImpl(), /*met=*/false, &has_storage_caller, __builtin_return_address(0));
  return impl->c10::TensorImpl::has_storage();
}

static const c10::Storage& StorageOfPlain(const c10::TensorImpl* impl) {
  OnAccess(impl->unsafe_storage().unsafeGetStorageImpl(), /*met=*/false, &storage_caller, __builtin_return_address(0));
  return impl->c10::TensorImpl::storage();
}

void WatchPlainTensors() {
  runtime::ReplaceVirtual(kVtables.plain_tensor, &c10::TensorImpl::has_storage, &HasStorageOfPlain);
  runtime::ReplaceVirtual(kVtables.plain_tensor, &c10::TensorImpl::storage, &StorageOfPlain);
}

c10::intrusive_ptr<c10::TensorImpl> LazyTensorImpl::shallow_copy_and_detach(const c10::VariableVersion& version_counter,
                                                                            bool allow_tensor_metadata_change) const {
  auto copy = c10::TensorImpl::shallow_copy_and_detach(version_counter, allow_tensor_metadata_change);
  Adopt(copy.get());
  return copy;
}

c10::intrusive_ptr<c10::TensorImpl> LazyTensorImpl::shallow_copy_and_detach(c10::VariableVersion&& version_counter,
                                                                            bool allow_tensor_metadata_change) const {
  auto copy = c10::TensorImpl::shallow_copy_and_detach(std::move(version_counter), allow_tensor_metadata_change);
  Adopt(copy.get());
  return copy;
}

at::Tensor MakeLazyTensor(const codegen::OutputMeta& meta, c10::intrusive_ptr<LazyStorage> storage) {
  const auto keys = c10::DispatchKeySet(storage->device().is_cpu() ? c10::DispatchKey::CPU : c10::DispatchKey::CUDA);
  auto impl = c10::make_intrusive<LazyTensorImpl>(c10::Storage(std::move(storage)), keys, c10::scalarTypeToTypeMeta(meta.dtype));
  const bool as_new = meta.sizes.size() == 1 && meta.sizes[0] == 0 && meta.strides[0] == 1;
  if (!as_new) impl->set_sizes_and_strides(meta.sizes, meta.strides);
  return at::Tensor(std::move(impl));
}

bool SharesMemoryUnseen(const c10::TensorImpl& impl) {
  c10::StorageImpl* const storage = impl.unsafe_storage().unsafeGetStorageImpl();
  if (storage == nullptr) return false;
  uint32_t users = c10::raw::intrusive_ptr::use_count(storage);
  // A storage that Python once had an object of keeps that, which holds the storage.
  if (users > 1 && storage->pyobj_slot()->has_unique_reference()) --users;
  if (users <= 1) return false;
  // The tensor, and the trace that reads or writes its memory.
  Recorder* const recorder = Recorder::Current();
  return users > 2 || recorder == nullptr || !recorder->Holds(storage);
}

bool IsPending(const c10::StorageImpl& storage) { return __atomic_load_n(&(storage.*Get(ImmutableFlag())), __ATOMIC_ACQUIRE); }

void SetPending(c10::StorageImpl* storage, bool pending) {
  storage->*Get(MutableCheck()) = pending;
  __atomic_store_n(&(storage->*Get(ImmutableFlag())), pending, __ATOMIC_RELEASE);
}

void RegisterPendingPlain(c10::StorageImpl* storage, Recorder* recorder) {
  storage->get_extra_meta().custom_data_ptr_error_msg_ = kPendingMessage;
  auto& pending = GetPendingPlain();
  std::lock_guard<std::mutex> lock(pending.mutex);
  pending.recorders[storage] = recorder;
}

void UnregisterPendingPlain(c10::StorageImpl* storage) {
  auto& pending = GetPendingPlain();
  std::lock_guard<std::mutex> lock(pending.mutex);
  pending.recorders.erase(storage);
}

Recorder* PendingIn(c10::StorageImpl* storage) {
  if (LazyStorage* lazy = AsLazy(storage)) return lazy->recorder.load(std::memory_order_acquire);
  auto& pending = GetPendingPlain();
  std::lock_guard<std::mutex> lock(pending.mutex);
  const auto it = pending.recorders.find(storage);
  return it == pending.recorders.end() ? nullptr : it->second;
}

void Settle(c10::StorageImpl* storage) {
  if (Recorder* recorder = PendingIn(storage)) recorder->SettleStorage(storage);
  LazyStorage* const lazy = AsLazy(storage);
  if (lazy != nullptr && lazy->error != nullptr) std::rethrow_exception(lazy->error);
}

void LearnBookkeepingCalls() {
  using torch::autograd::InputBuffer;
  const at::NoGradGuard no_grad;
  codegen::OutputMeta meta;
  meta.sizes = {1};
  meta.strides = {1};
  meta.nbytes = sizeof(float);
  std::vector<at::Tensor> tensors;
  std::vector<c10::StorageImpl*> storages;
  for (int i = 0; i < 2; ++i) {
    auto storage = c10::make_intrusive<LazyStorage>(meta.nbytes, c10::kCPU, nullptr, 0, 0);
    storage->set_data_ptr_noswap(c10::GetCPUAllocator()->allocate(meta.nbytes));
    std::memset(storage->_mutable_data_ptr_no_checks().get(), 0, meta.nbytes);
    storages.push_back(storage.get());
    tensors.push_back(MakeLazyTensor(meta, storage));
  }
  InputBuffer buffer(1);
  // The first tensor is pending while it is asked for its users. Where that teaches nothing, the addition itself throws on it.
  buffer.add(0, std::move(tensors[0]), std::nullopt, std::nullopt, nullptr);
  lesson = &storages;
  try {
    buffer.add(0, std::move(tensors[1]), std::nullopt, std::nullopt, nullptr);
  } catch (const std::exception&) {
  }
  lesson = nullptr;
  const auto add = &InputBuffer::add;
  const char* address;
  std::memcpy(&address, &add, sizeof(address));
  KeepOnlyNear(&has_storage_caller, address);
  KeepOnlyNear(&storage_caller, address);
}

MetadataScope::MetadataScope() { ++metadata_depth; }
MetadataScope::~MetadataScope() { --metadata_depth; }

}  // namespace lazuli::tracer
