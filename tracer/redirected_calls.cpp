#include "tracer/redirected_calls.h"

#include <ATen/cuda/PhiloxCudaState.h>
#include <c10/core/GeneratorImpl.h>
#include <c10/core/RefcountedDeleter.h>
#include <c10/core/Storage.h>
#include <c10/core/Stream.h>
#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/blas_workspace.h"
#include "runtime/cuda_driver.h"
#include "runtime/cuda_graph.h"
#include "runtime/device.h"
#include "runtime/mode_keys.h"
#include "runtime/open_library.h"
#include "runtime/philox.h"
#include "runtime/redirect_calls.h"
#include "tracer/lazy_tensor.h"
#include "tracer/own_operators.h"
#include "tracer/recorder.h"
#include "tracer/replaced_kernels.h"
#include "tracer/shared_storages.h"

namespace lazuli::tracer {
namespace {

using runtime::Callers;
using runtime::CudaEventHandle;
using runtime::CudaStreamHandle;
using runtime::Redirection;

// What c10::isSharedStorageAlias does, without asking whether the pointers may be seen.
bool IsSharedStorageAlias(const c10::Storage& a, const c10::Storage& b) {
  if (!a || !b) return false;
  const at::DataPtr& x = DataOf(a.unsafeGetStorageImpl());
  const at::DataPtr& y = DataOf(b.unsafeGetStorageImpl());
  const c10::DeleterFnPtr counted = &c10::refcounted_deleter;
  return x.get_deleter() == counted && y.get_deleter() == counted && x.get_context() == y.get_context();
}

// Redirects calls of `name` to `ours`, which calls `theirs`, unless there is no such library or nothing of the name in it.
template <class Function>
void AddTo(std::vector<Redirection>* redirections, void* library, const char* name, Callers callers, Function* ours, Function** theirs) {
  if (library == nullptr) return;
  *theirs = reinterpret_cast<Function*>(dlsym(library, name));
  if (*theirs != nullptr) redirections->push_back({name, reinterpret_cast<void*>(ours), callers});
}

// at::native::resize_bytes_cpu and resize_bytes_cuda, which replace a storage's memory.
constexpr char kResizeOnCpu[] = "_ZN2at6native16resize_bytes_cpuEPN3c1011StorageImplEm";
constexpr char kResizeOnCuda[] = "_ZN2at6native17resize_bytes_cudaEPN3c1011StorageImplEm";

template <const char* kName>
struct ResizeBytes {
  static inline void (*theirs)(c10::StorageImpl*, size_t) = nullptr;

  static void Call(c10::StorageImpl* storage, size_t nbytes) {
    Settle(storage);
    if (!runtime::InAtenScope()) SettleReaders(storage, /*own=*/nullptr, /*met=*/true);
    theirs(storage, nbytes);
  }

  static void Add(void* library, std::vector<Redirection>* redirections) {
    AddTo(redirections, library, kName, Callers::kAll, &Call, &theirs);
  }
};

// at::CUDAGeneratorImpl's functions that take numbers, by whatever thread: our captures on others are no reason to fail, and calls may have
// numbers of their own.
constexpr char kPhiloxCudaState[] = "_ZN2at17CUDAGeneratorImpl17philox_cuda_stateEm";
constexpr char kPhiloxEngineInputs[] = "_ZN2at17CUDAGeneratorImpl20philox_engine_inputsEm";

template <const char* kName, class Numbers>
struct TakeNumbers {
  static inline Numbers (*theirs)(c10::GeneratorImpl*, uint64_t) = nullptr;

  static Numbers Call(c10::GeneratorImpl* generator, uint64_t increment) {
    runtime::NumbersOfCalls* const calls = runtime::NumbersOfCalls::Current();
    if (calls != nullptr && calls->state().has_value()) return Numbers(calls->state()->seed, calls->state()->offset);
    if (calls != nullptr) calls->OnTake(*generator, increment);
    const runtime::NoCaptureElsewhere drawing(&generator->mutex_);
    return theirs(generator, increment);
  }

  static void Add(void* library, std::vector<Redirection>* redirections) {
    AddTo(redirections, library, kName, Callers::kAll, &Call, &theirs);
  }
};

// at::cuda::getCurrentCUDABlasHandle, which every call of cuBLAS begins with.
constexpr char kBlasHandle[] = "_ZN2at4cuda24getCurrentCUDABlasHandleEv";

struct TakeBlasHandle {
  static inline void* (*theirs)() = nullptr;

  template <bool kByProgram>
  static void* Call() {
    void* const handle = theirs();
    runtime::NoteBlasHandle(handle, kByProgram);
    return handle;
  }

  // The program's calls come second, and so go to theirs.
  static void Add(void* library, std::vector<Redirection>* redirections) {
    AddTo(redirections, library, kBlasHandle, Callers::kAll, &Call<false>, &theirs);
    AddTo(redirections, library, kBlasHandle, Callers::kProgram, &Call<true>, &theirs);
  }
};

// c10::Dispatcher::registerImpl: a kernel is registered, perhaps in place of one of LibTorch's.
constexpr char kRegisterImpl[] =
    "_ZN3c1010Dispatcher12registerImplENS_12OperatorNameESt8optionalINS_11DispatchKeyEENS_14KernelFunctionES2_INS_4impl12CppSignatureEE"
    "St10unique_ptrINS_14FunctionSchemaESt14default_deleteISA_EENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";

struct RegisterKernel {
  using Function = c10::RegistrationHandleRAII(c10::Dispatcher*, c10::OperatorName, std::optional<c10::DispatchKey>, c10::KernelFunction,
                                               std::optional<c10::impl::CppSignature>, std::unique_ptr<c10::FunctionSchema>, std::string);
  static inline Function* theirs = nullptr;

  static c10::RegistrationHandleRAII Call(c10::Dispatcher* dispatcher, c10::OperatorName name, std::optional<c10::DispatchKey> key,
                                          c10::KernelFunction kernel, std::optional<c10::impl::CppSignature> signature,
                                          std::unique_ptr<c10::FunctionSchema> schema, std::string debug) {
    Recorder* const recorder = Recorder::Current();
    if (recorder != nullptr && MayReplace(name, key)) recorder->Flush("kernel_registered", Cut::kHousekeeping);
    c10::RegistrationHandleRAII registered =
        theirs(dispatcher, name, key, std::move(kernel), std::move(signature), std::move(schema), std::move(debug));
    NoteRegistered(name, key);
    if (const auto op = dispatcher->findOp(name)) NoteOwnKernels(*op);
    return registered;
  }

  static void Add(void* library, std::vector<Redirection>* redirections) {
    AddTo(redirections, library, kRegisterImpl, Callers::kAll, &Call, &theirs);
  }
};

// A function before which is launched what this thread has recorded: for the stream that is an argument, for any where none is.
struct CallInfo {
  const char* name;  // As linkers know it.
  const char* cause;
  Cut cut;
  Callers callers;
};

// What a call's arguments say of its stream.
void Note(std::optional<CudaStreamHandle>* stream, CudaStreamHandle argument) { *stream = argument; }
void Note(std::optional<CudaStreamHandle>* stream, const c10::Stream* argument) {
  const auto nobodys = reinterpret_cast<CudaStreamHandle>(~uintptr_t{0});
  *stream = argument->device_type() == c10::kCUDA ? runtime::HandleOf(*argument) : nobodys;
}
template <class T>
void Note(std::optional<CudaStreamHandle>* /*stream*/, const T& /*argument*/) {}

template <const CallInfo& kCall, class Type>
struct AfterCut;

template <const CallInfo& kCall, class Result, class... Args>
struct AfterCut<kCall, Result(Args...)> {
  static inline Result (*theirs)(Args...) = nullptr;

  static Result Call(Args... args) {
    // What Lazuli itself calls has nothing to wait for, and holds locks that other threads may want before they let go of this one's
    // recorder.
    Recorder* const recorder = runtime::InAtenScope() ? nullptr : Recorder::Current();
    std::optional<CudaStreamHandle> stream;
    (Note(&stream, args), ...);
    if (recorder != nullptr) recorder->FlushStream(stream, kCall.cause, kCall.cut);
    return theirs(args...);
  }

  static void Add(void* library, std::vector<Redirection>* redirections) {
    AddTo(redirections, library, kCall.name, kCall.callers, &Call, &theirs);
  }
};

// Of LibTorch's. Streams are its objects, of which the first member is a c10::Stream.
constexpr CallInfo kWaitForDevice{"_ZN3c104cuda18device_synchronizeEv", "synchronize", Cut::kGraphBreak, Callers::kAll};
constexpr CallInfo kWaitForStream{"_ZNK3c104cuda10CUDAStream11synchronizeEv", "synchronize", Cut::kGraphBreak, Callers::kProgram};
constexpr CallInfo kQueryStream{"_ZNK3c104cuda10CUDAStream5queryEv", "query", Cut::kGraphBreak, Callers::kProgram};
constexpr CallInfo kWaitForAnyStream{"_ZNK3c106Stream11synchronizeEv", "synchronize", Cut::kGraphBreak, Callers::kProgram};
constexpr CallInfo kQueryAnyStream{"_ZNK3c106Stream5queryEv", "query", Cut::kGraphBreak, Callers::kProgram};
constexpr CallInfo kWaitForAccelerator{"_ZN2at11accelerator17synchronizeDeviceEa", "synchronize", Cut::kGraphBreak, Callers::kProgram};
// Of CUDA's.
constexpr CallInfo kDeviceSynchronize{"cudaDeviceSynchronize", "synchronize", Cut::kGraphBreak, Callers::kProgram};
constexpr CallInfo kStreamSynchronize{"cudaStreamSynchronize", "synchronize", Cut::kGraphBreak, Callers::kProgram};
constexpr CallInfo kStreamQuery{"cudaStreamQuery", "query", Cut::kGraphBreak, Callers::kProgram};
constexpr CallInfo kEventRecord{"cudaEventRecord", "event", Cut::kHousekeeping, Callers::kProgram};
constexpr CallInfo kEventRecordWithFlags{"cudaEventRecordWithFlags", "event", Cut::kHousekeeping, Callers::kProgram};
constexpr CallInfo kLaunchHostFunc{"cudaLaunchHostFunc", "host_function", Cut::kHousekeeping, Callers::kProgram};
constexpr CallInfo kStreamAddCallback{"cudaStreamAddCallback", "host_function", Cut::kHousekeeping, Callers::kProgram};
constexpr CallInfo kStreamBeginCapture{"cudaStreamBeginCapture", "capture", Cut::kHousekeeping, Callers::kAll};

}  // namespace

void RedirectCallsOfLinalg() {
  static std::atomic<bool> done{false};
  if (done.load(std::memory_order_relaxed) || runtime::FindOpen({"libtorch_cuda_linalg.so"}) == nullptr) return;
  if (done.exchange(true)) return;
  std::vector<Redirection> redirections;
  TakeBlasHandle::Add(runtime::FindOpen({"libtorch_cuda.so"}), &redirections);
  runtime::RedirectCalls(redirections);
}

void RedirectCalls() {
  std::vector<Redirection> redirections{
      {"_ZN3c1020isSharedStorageAliasERKNS_7StorageES2_", reinterpret_cast<void*>(&IsSharedStorageAlias), Callers::kAll}};
  ResizeBytes<kResizeOnCpu>::Add(runtime::FindOpen({"libtorch_cpu.so"}), &redirections);
  RegisterKernel::Add(runtime::FindOpen({"libtorch_cpu.so"}), &redirections);
  void* const torch_cuda = runtime::FindOpen({"libtorch_cuda.so"});
  ResizeBytes<kResizeOnCuda>::Add(torch_cuda, &redirections);
  TakeNumbers<kPhiloxCudaState, at::PhiloxCudaState>::Add(torch_cuda, &redirections);
  TakeNumbers<kPhiloxEngineInputs, std::pair<uint64_t, uint64_t>>::Add(torch_cuda, &redirections);
  TakeBlasHandle::Add(torch_cuda, &redirections);
  if (void* const library = runtime::FindOpen({"libc10_cuda.so"})) {
    AfterCut<kWaitForDevice, void()>::Add(library, &redirections);
    AfterCut<kWaitForStream, void(const c10::Stream*)>::Add(library, &redirections);
    AfterCut<kQueryStream, bool(const c10::Stream*)>::Add(library, &redirections);
    AfterCut<kWaitForAnyStream, void(const c10::Stream*)>::Add(runtime::FindOpen({"libc10.so"}), &redirections);
    AfterCut<kQueryAnyStream, bool(const c10::Stream*)>::Add(runtime::FindOpen({"libc10.so"}), &redirections);
    AfterCut<kWaitForAccelerator, void(c10::DeviceIndex)>::Add(runtime::FindOpen({"libtorch_cpu.so"}), &redirections);
  }
  if (void* const library = runtime::FindOpen({"libcudart.so.13", "libcudart.so.12"})) {
    AfterCut<kDeviceSynchronize, int()>::Add(library, &redirections);
    AfterCut<kStreamSynchronize, int(CudaStreamHandle)>::Add(library, &redirections);
    AfterCut<kStreamQuery, int(CudaStreamHandle)>::Add(library, &redirections);
    AfterCut<kEventRecord, int(CudaEventHandle, CudaStreamHandle)>::Add(library, &redirections);
    AfterCut<kEventRecordWithFlags, int(CudaEventHandle, CudaStreamHandle, unsigned)>::Add(library, &redirections);
    AfterCut<kLaunchHostFunc, int(CudaStreamHandle, void*, void*)>::Add(library, &redirections);
    AfterCut<kStreamAddCallback, int(CudaStreamHandle, void*, void*, unsigned)>::Add(library, &redirections);
    // A capture may forbid other threads things, ours among them: nothing is left to do on any stream.
    AfterCut<kStreamBeginCapture, int(void*, int)>::Add(library, &redirections);
  }
  runtime::RedirectCalls(redirections);
}

}  // namespace lazuli::tracer
