// Calls of CUDA's run time from a library of the program's. Each returns its error, 0 for none. Streams are CUDA's handles.
#pragma once

namespace lazuli::testing {

int RecordEvent(void* stream);
int WaitForStream(void* stream);
// 600: it has work left.
int QueryStream(void* stream);
int WaitForDevice();
int CallFromStream(void* stream, void (*function)(void*), void* data);

}  // namespace lazuli::testing
