// Tensors and storages whose contents may still be pending in a recorder.
//
// A LazyStorage is the memory of one recorded result: empty at first, filled when its trace has run. It stays the tensor's storage for
// good, so aliasing is what the program made it. A LazyTensorImpl is a TensorImpl that settles its storage before anyone sees the data.
//
// While a storage is pending, StorageImpl's throw-on-access flag is set: a path to the data that goes past LazyTensorImpl throws; it
// never reads stale bytes.
#pragma once

#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

#include <atomic>
#include <exception>

#include "codegen/ir/trace_log.h"
#include "tracer/object_pool.h"

namespace lazuli::tracer {

class Recorder;

class LazyStorage final : public c10::StorageImpl {
 public:
  // Pending in `recorder` as storage number `id` of its trace `epoch`.
  LazyStorage(int64_t nbytes, c10::Device device, Recorder* recorder, uint64_t epoch, int32_t id);
  ~LazyStorage() override;
  void release_resources() override;
  static void* operator new(size_t size) { return ObjectPool<LazyStorage>::Take(size); }
  static void operator delete(void* block) { ObjectPool<LazyStorage>::Give(block); }

  // Where the contents are pending; null when they are not. Changes under that recorder's lock.
  std::atomic<Recorder*> recorder;
  std::exception_ptr error;  // The operation that should have written this storage failed.

  // The contents are there, or never will be. The last that the recorder does with it: a thread that lets go of the storage waits for the
  // recorder's lock only while it is pending, and frees it then.
  void LeaveRecorder() { recorder.store(nullptr, std::memory_order_release); }

  // The number of this storage in trace `epoch`; -1 when it has none, or another trace has taken note of its own since. That never happens
  // to a result while it is pending.
  int32_t NumberIn(uint64_t epoch) const {
    const uint64_t number = number_.load(std::memory_order_relaxed);
    return number >> kNumberBits == epoch ? static_cast<int32_t>(number & kMaxNumber) : -1;
  }
  void SetNumber(uint64_t epoch, int32_t number) { number_.store(Pack(epoch, number), std::memory_order_relaxed); }
  void ClearNumber(uint64_t epoch, int32_t number) {
    uint64_t expected = Pack(epoch, number);
    number_.compare_exchange_strong(expected, 0, std::memory_order_relaxed);
  }

 private:
  static constexpr int kNumberBits = 20;
  static constexpr uint64_t kMaxNumber = (uint64_t{1} << kNumberBits) - 1;
  static_assert(codegen::kMaxStorages <= kMaxNumber);
  static uint64_t Pack(uint64_t epoch, int32_t number) { return epoch << kNumberBits | static_cast<uint64_t>(number); }

  void LetGo();

  std::atomic<uint64_t> number_;  // One word, since recorders of several threads may come to number one storage.
  int64_t live_bytes_;
};

// Adds no members: Adopt() turns an existing TensorImpl into one.
class LazyTensorImpl final : public c10::TensorImpl {
 public:
  using c10::TensorImpl::TensorImpl;

  // Those that Adopt turned into one end here, too.
  static void* operator new(size_t size) { return ObjectPool<LazyTensorImpl>::Take(size); }
  static void operator delete(void* block) { ObjectPool<LazyTensorImpl>::Give(block); }

  bool has_storage() const override;
  const c10::Storage& storage() const override;
  c10::intrusive_ptr<c10::TensorImpl> shallow_copy_and_detach(const c10::VariableVersion& version_counter,
                                                              bool allow_tensor_metadata_change) const override;
  c10::intrusive_ptr<c10::TensorImpl> shallow_copy_and_detach(c10::VariableVersion&& version_counter,
                                                              bool allow_tensor_metadata_change) const override;
};

// An object's class by the first word of the object: typeid would compare names when the classes differ.
inline const void* VtableOf(const void* object) { return __atomic_load_n(static_cast<const void* const*>(object), __ATOMIC_RELAXED); }
struct Vtables {
  const void* plain_tensor;
  const void* lazy_tensor;
  const void* lazy_storage;
};
extern const Vtables kVtables;

// Whether `impl` is exactly a TensorImpl or a LazyTensorImpl.
inline bool IsPlainOrLazy(const c10::TensorImpl& impl) {
  const void* vtable = VtableOf(&impl);
  return vtable == kVtables.lazy_tensor || vtable == kVtables.plain_tensor;
}

// Null for an undefined tensor and for one without memory.
inline c10::StorageImpl* StorageOf(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() : nullptr;
}

// What makes a tensor more than a strided window over memory: such tensors stay eager.
constexpr c10::DispatchKeySet kForeignKeys =
    c10::DispatchKeySet({c10::DispatchKey::Sparse, c10::DispatchKey::SparseCsr, c10::DispatchKey::Quantized, c10::DispatchKey::NestedTensor,
                         c10::DispatchKey::Python, c10::DispatchKey::Conjugate, c10::DispatchKey::Negative, c10::DispatchKey::ZeroTensor,
                         c10::DispatchKey::Functionalize, c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper,
                         c10::DispatchKey::FuncTorchDynamicLayerFrontMode, c10::DispatchKey::Named});

// Whether `impl` is a window over a CPU's or a GPU's memory and no more, of as many dimensions as a trace can hold.
inline bool IsStridedWindow(const c10::TensorImpl& impl) {
  const c10::DispatchKeySet keys = impl.key_set();
  const bool is_dense = keys.has(c10::DispatchKey::CPU) || keys.has(c10::DispatchKey::CUDA);
  return is_dense && !keys.has_any(kForeignKeys) && IsPlainOrLazy(impl) && !impl.has_symbolic_sizes_strides() &&
         impl.dim() <= codegen::kMaxDims;
}

// Makes a plain TensorImpl settle its storage on access, as LazyTensorImpl does. For tensors made before the mode (parameters) that come
// to share a pending storage. No effect on any other class.
inline void Adopt(c10::TensorImpl* impl) {
  // The two classes differ in their virtual functions alone, so the object's class is its vtable pointer. Tensors that already exist
  // (parameters, and every handle that the program keeps to them) cannot be replaced by new objects; without this they could only throw.
  static_assert(sizeof(LazyTensorImpl) == sizeof(c10::TensorImpl));
  if (VtableOf(impl) != kVtables.plain_tensor) return;
  __atomic_store_n(reinterpret_cast<const void**>(impl), kVtables.lazy_tensor, __ATOMIC_RELAXED);
}

// Takes Adopt() back.
inline void Disown(c10::TensorImpl* impl) {
  if (VtableOf(impl) == kVtables.lazy_tensor)
    __atomic_store_n(reinterpret_cast<const void**>(impl), kVtables.plain_tensor, __ATOMIC_RELAXED);
}

// Whether `impl` was made past the dispatcher over memory that others hold (a nested tensor's buffer, a Storage of the program's), who may
// look at it past the dispatcher, too.
bool SharesMemoryUnseen(const c10::TensorImpl& impl);
inline bool IsPassingAlias(const c10::TensorImpl& impl) { return VtableOf(&impl) == kVtables.plain_tensor && SharesMemoryUnseen(impl); }

// What making a view needs: a write through it leaves its bases pending, too, unless one is a passing alias; then so is the view.
class ViewAdoption {
 public:
  void Base(const at::Tensor& base) {
    const bool passing = IsPassingAlias(*base.unsafeGetTensorImpl());
    passing_ |= passing;
    if (!passing) Adopt(base.unsafeGetTensorImpl());
  }
  void View(const at::Tensor& view) const { passing_ ? Disown(view.unsafeGetTensorImpl()) : Adopt(view.unsafeGetTensorImpl()); }

 private:
  bool passing_ = false;
};

// `storage` as a LazyStorage; null when it is another class.
inline LazyStorage* AsLazy(c10::StorageImpl* storage) {
  return VtableOf(storage) == kVtables.lazy_storage ? static_cast<LazyStorage*>(storage) : nullptr;
}

// A tensor over a fresh LazyStorage, with `meta`'s layout.
at::Tensor MakeLazyTensor(const codegen::OutputMeta& meta, c10::intrusive_ptr<LazyStorage> storage);

// Where `storage` has its memory. Never throws, though another thread may make it pending at any time.
inline const at::DataPtr& DataOf(c10::StorageImpl* storage) { return storage->_mutable_data_ptr_no_checks(); }

// The throw-on-access flag.
bool IsPending(const c10::StorageImpl& storage);
void SetPending(c10::StorageImpl* storage, bool pending);

// Plain storages with pending in-place writes, across recorders. Thread-safe.
void RegisterPendingPlain(c10::StorageImpl* storage, Recorder* recorder);
void UnregisterPendingPlain(c10::StorageImpl* storage);

// The recorder that `storage`'s contents are pending in; null when they are not.
Recorder* PendingIn(c10::StorageImpl* storage);

// Runs what `storage` waits for. Rethrows the error of the operation that should have written it.
void Settle(c10::StorageImpl* storage);

// Autograd's gradient accumulation asks a tensor for its storage only to count its users, through the same virtual functions as those who
// want the data. Finds out, by making it accumulate two tensors, which call sites those are; they never settle afterwards. When nothing
// is learnt, each accumulation cuts the trace: slower, not wrong. Once a process, before the first recording.
void LearnBookkeepingCalls();

// From here on, tensors that the mode has not met settle their storages on access, too: views of a parameter that were made before the
// mode, or by a thread without one. Once a process.
void WatchPlainTensors();

// While it lives on this thread, access to a pending storage returns it as it is: for code that only reads metadata.
class MetadataScope {
 public:
  MetadataScope();
  ~MetadataScope();
  MetadataScope(const MetadataScope&) = delete;
  MetadataScope& operator=(const MetadataScope&) = delete;
};

}  // namespace lazuli::tracer
