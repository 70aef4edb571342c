// LAZULI_THREADS=1: threads that a recording thread starts record too, each with a trace of its own.
//
// No hook of LibTorch tells of a new thread, so this is pthread_create itself, found before the C library's in a program that liblazuli.so
// is linked to or preloaded into. Only in the shared library.

#include <dlfcn.h>
#include <pthread.h>

#include <cstring>
#include <memory>
#include <string_view>
#include <thread>

#include "lazuli/lazuli.h"
#include "runtime/options.h"
#include "tracer/mode.h"

namespace lazuli::tracer {
namespace {

using Routine = void* (*)(void*);
using Create = int (*)(pthread_t*, const pthread_attr_t*, Routine, void*);

// File name of the library or program that holds `address`.
std::string_view ObjectOf(const void* address) {
  Dl_info info;
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return "";
  const std::string_view path(info.dli_fname);
  return path.substr(path.rfind('/') + 1);
}

// Autograd's, the thread pools' and OpenMP's threads take over the state of those whose work they do, or run kernels.
bool IsRuntimesOwn(Routine routine, void* argument) {
  const void* code;
  std::memcpy(&code, &routine, sizeof(code));
  std::string_view object = ObjectOf(code);
  // All of std::thread's threads start in one function of the C++ library, with an object whose class belongs to who made the thread.
  if (object.rfind("libstdc++", 0) == 0 && argument != nullptr) {
    std::memcpy(&code, argument, sizeof(code));
    object = ObjectOf(code);
  }
  for (const std::string_view name : {"libtorch", "libc10", "libgomp", "libiomp", "libomp", "liblazuli"}) {
    if (object.rfind(name, 0) == 0) return true;
  }
  return false;
}

struct Start {
  Routine routine;
  void* argument;
};

void* Record(void* raw) {
  const std::unique_ptr<Start> start(static_cast<Start*>(raw));
  // Also when the thread ends through pthread_exit, which unwinds.
  const DeviceMode mode(runtime::Active().options);
  return start->routine(start->argument);
}

}  // namespace
}  // namespace lazuli::tracer

extern "C" LAZULI_API int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*routine)(void*), void* argument) {
  using namespace lazuli::tracer;  // NOLINT: the function itself must be global.
  static const auto create = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  if (!ModeKeysIncluded() || !lazuli::runtime::Active().threads || IsRuntimesOwn(routine, argument)) {
    return create(thread, attributes, routine, argument);
  }
  auto start = std::make_unique<Start>(Start{routine, argument});
  const int error = create(thread, attributes, &Record, start.get());
  if (error == 0) start.release();
  return error;
}
