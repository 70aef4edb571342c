// A program's own library that calls CUDA's run time: what it calls is found when it is called first.
#include "tests/gpu/program/cuda_calls.h"

extern "C" {
int cudaEventCreateWithFlags(void** event, unsigned flags);
int cudaEventDestroy(void* event);
int cudaEventRecordWithFlags(void* event, void* stream, unsigned flags);
int cudaStreamSynchronize(void* stream);
int cudaStreamQuery(void* stream);
int cudaDeviceSynchronize();
int cudaLaunchHostFunc(void* stream, void (*function)(void*), void* data);
}

namespace lazuli::testing {

int RecordEvent(void* stream) {
  void* event = nullptr;
  if (const int error = cudaEventCreateWithFlags(&event, 0)) return error;
  const int error = cudaEventRecordWithFlags(event, stream, 0);
  const int destroyed = cudaEventDestroy(event);
  return error != 0 ? error : destroyed;
}
int WaitForStream(void* stream) { return cudaStreamSynchronize(stream); }
int QueryStream(void* stream) { return cudaStreamQuery(stream); }
int WaitForDevice() { return cudaDeviceSynchronize(); }
int CallFromStream(void* stream, void (*function)(void*), void* data) { return cudaLaunchHostFunc(stream, function, data); }

}  // namespace lazuli::testing
