// NVIDIA's driver and run-time compiler, opened when a GPU is first used: one library serves machines with and without one, and building
// it needs no CUDA. The few types and numbers of CUDA's stable binary interface that are used are declared here.
#pragma once

#include <c10/core/Stream.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lazuli::runtime {

using CudaLibrary = struct CUlib_st*;
using CudaKernelHandle = struct CUkern_st*;
using CudaStreamHandle = struct CUstream_st*;
inline CudaStreamHandle HandleOf(const c10::Stream& stream) { return static_cast<CudaStreamHandle>(stream.native_handle()); }
using CudaEventHandle = struct CUevent_st*;
using CudaGraphHandle = struct CUgraph_st*;
using CudaGraphNode = struct CUgraphNode_st*;
using CudaGraphExec = struct CUgraphExec_st*;
using CudaGraphEdge = struct CUgraphEdgeData_st;

// CUDA_KERNEL_NODE_PARAMS_v2.
struct CudaKernelNodeParams {
  void* function = nullptr;  // Null: `kernel` counts.
  unsigned grid_x = 1, grid_y = 1, grid_z = 1;
  unsigned block_x = 1, block_y = 1, block_z = 1;
  unsigned shared_bytes = 0;
  void** arguments = nullptr;
  void** extra = nullptr;
  CudaKernelHandle kernel = nullptr;
  void* context = nullptr;  // Null: the current one.
};

// CUlaunchAttribute.
struct CudaLaunchAttribute {
  static constexpr int kProgrammaticStreamSerialization = 6;
  int id = 0;
  int padding = 0;
  alignas(8) int value[16] = {};
};

// CUlaunchConfig.
struct CudaLaunchConfig {
  unsigned grid_x = 1, grid_y = 1, grid_z = 1;
  unsigned block_x = 1, block_y = 1, block_z = 1;
  unsigned shared_bytes = 0;
  CudaStreamHandle stream = nullptr;
  CudaLaunchAttribute* attributes = nullptr;
  unsigned num_attributes = 0;
};

// Functions of libcuda.so.1. Each returns 0 or an error; all are thread-safe.
struct CudaDriver {
  int (*init)(unsigned flags);
  int (*get_error_string)(int error, const char** text);
  int (*device_get)(int* device, int ordinal);
  int (*device_get_attribute)(int* value, int attribute, int device);
  int (*device_total_memory)(size_t* bytes, int device);
  int (*device_primary_context_retain)(void** context, int device);
  int (*context_set_current)(void* context);
  int (*library_load_data)(CudaLibrary* library, const void* code, int* jit_options, void** jit_values, unsigned num_jit_options,
                           int* options, void** values, unsigned num_options);
  int (*library_unload)(CudaLibrary library);
  int (*library_get_kernel)(CudaKernelHandle* kernel, CudaLibrary library, const char* name);
  int (*kernel_set_attribute)(int attribute, int value, CudaKernelHandle kernel, int device);
  int (*kernel_get_attribute)(int* value, int attribute, CudaKernelHandle kernel, int device);
  int (*launch_kernel)(const CudaLaunchConfig* config, CudaKernelHandle kernel, void** arguments, void** extra);
  int (*stream_is_capturing)(CudaStreamHandle stream, int* status);  // See the constants.
  int (*stream_begin_capture)(CudaStreamHandle stream, int mode);
  int (*stream_end_capture)(CudaStreamHandle stream, CudaGraphHandle* graph);
  // What the next thing captured would come after, among other things. Before CUDA 12.3 there is only the first, which knows no edges that
  // let a kernel begin early.
  int (*stream_get_capture_info_v2)(CudaStreamHandle stream, int* status, uint64_t* id, CudaGraphHandle* graph,
                                    const CudaGraphNode** dependencies, size_t* num_dependencies);
  int (*stream_get_capture_info_v3)(CudaStreamHandle stream, int* status, uint64_t* id, CudaGraphHandle* graph,
                                    const CudaGraphNode** dependencies, const CudaGraphEdge** edges, size_t* num_dependencies);
  int (*graph_exec_kernel_node_set_params)(CudaGraphExec exec, CudaGraphNode node, const CudaKernelNodeParams* params);
  int (*memcpy_device_to_device)(uint64_t to, uint64_t from, size_t bytes, CudaStreamHandle stream);
  int (*memcpy_host_to_device)(uint64_t to, const void* from, size_t bytes, CudaStreamHandle stream);
  int (*memset)(uint64_t to, unsigned char value, size_t bytes, CudaStreamHandle stream);
  int (*thread_exchange_capture_mode)(int* mode);
  int (*event_create)(CudaEventHandle* event, unsigned flags);
  int (*event_destroy)(CudaEventHandle event);
  int (*event_record)(CudaEventHandle event, CudaStreamHandle stream);
  int (*event_synchronize)(CudaEventHandle event);
  int (*event_elapsed_time)(float* milliseconds, CudaEventHandle from, CudaEventHandle to);

  // Attributes of a kernel: the architecture (90 for sm_90) that it was written for, and the most shared memory a launch may ask for.
  static constexpr int kVirtualArch = 5;
  static constexpr int kDynamicSharedBytes = 8;
  static constexpr int kInvalidContext = 201;  // An error.
  static constexpr int kNotCapturing = 0;
  static constexpr int kCaptureInvalidated = 2;
  static constexpr int kRelaxedCapture = 2;  // A mode: other calls that could disturb a capture are not checked for.

  std::string ErrorText(int error) const;
  // What was captured from the stream last. Returns an error or 0.
  int LastCaptured(CudaStreamHandle stream, const CudaGraphNode** nodes, size_t* count) const;
};

// The driver, opened and initialised by the first call. Fails with Unavailable where there is none: the message says what to install.
absl::StatusOr<const CudaDriver*> GetCudaDriver();
// The same for code that only runs where there is one: throws c10::Error otherwise.
const CudaDriver& RequireCudaDriver();

// Lets this thread do what a capture of a CUDA graph, its own or another thread's, would forbid.
class AnyCaptures {
 public:
  AnyCaptures() { RequireCudaDriver().thread_exchange_capture_mode(&mode_); }
  ~AnyCaptures() { RequireCudaDriver().thread_exchange_capture_mode(&mode_); }
  AnyCaptures(const AnyCaptures&) = delete;
  AnyCaptures& operator=(const AnyCaptures&) = delete;

 private:
  int mode_ = CudaDriver::kRelaxedCapture;
};

// Makes the context of CUDA's run time on the device with this index this thread's, as that does at a thread's first call that needs one.
// Returns the driver's error.
int SetCurrentContext(int device);

using NvrtcProgram = struct _nvrtcProgram*;

// Functions of NVRTC. Each returns 0 or an error.
struct Nvrtc {
  int (*version)(int* major, int* minor);
  int (*get_num_supported_archs)(int* count);
  int (*get_supported_archs)(int* archs);
  int (*create_program)(NvrtcProgram* program, const char* source, const char* name, int num_headers, const char* const* headers,
                        const char* const* include_names);
  int (*compile_program)(NvrtcProgram program, int num_options, const char* const* options);
  int (*destroy_program)(NvrtcProgram* program);
  int (*get_log_size)(NvrtcProgram program, size_t* size);
  int (*get_log)(NvrtcProgram program, char* log);
  int (*get_cubin_size)(NvrtcProgram program, size_t* size);
  int (*get_cubin)(NvrtcProgram program, char* cubin);
  int (*get_ptx_size)(NvrtcProgram program, size_t* size);
  int (*get_ptx)(NvrtcProgram program, char* ptx);
  const char* (*get_error_string)(int error);

  std::string path;          // Of the library that was opened.
  std::string version_text;  // "13.0".
  int newest_arch = 0;       // The newest that it compiles for: 90 for sm_90.
};

// NVRTC as LibTorch has it open, of LibTorch's own packages, on the loader's path, or of an installed toolkit, in this order.
absl::StatusOr<const Nvrtc*> GetNvrtc();

struct CudaDeviceInfo {
  std::string arch;  // "sm_90".
  int multiprocessors = 0;
  int threads = 0;     // That a multiprocessor runs at once.
  int64_t memory = 0;  // Bytes.
};

// Of the device with this index; asked for once.
absl::StatusOr<CudaDeviceInfo> GetCudaDeviceInfo(int device);

// For tests.
namespace internal {
// Files named libnvrtc.so.* where the wheels that `torch_library` belongs to keep them.
std::vector<std::string> NvrtcOfWheels(const std::string& torch_library);
}  // namespace internal

}  // namespace lazuli::runtime
