#include "runtime/cuda_driver.h"

#include <c10/core/TensorImpl.h>
#include <c10/util/Exception.h>
#include <glob.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/open_library.h"

namespace lazuli::runtime {
namespace internal {

std::vector<std::string> NvrtcOfWheels(const std::string& torch_library) {
  std::vector<std::string> found;
  const std::string folder = torch_library.substr(0, torch_library.rfind('/'));
  for (const char* pattern : {"/libnvrtc.so.*", "/libnvrtc-*.so.*", "/../../nvidia/*/lib/libnvrtc.so.*"}) {
    glob_t matches;
    if (glob((folder + pattern).c_str(), 0, nullptr, &matches) == 0) {
      for (size_t i = 0; i < matches.gl_pathc; ++i) {
        // Not the library of tables that lies beside it.
        if (std::string(matches.gl_pathv[i]).find("builtins") == std::string::npos) found.emplace_back(matches.gl_pathv[i]);
      }
    }
    globfree(&matches);
  }
  return found;
}

}  // namespace internal

namespace {

constexpr int kAttributeMultiprocessors = 16, kAttributeThreads = 39;  // Of a multiprocessor.
constexpr int kAttributeMajor = 75;
constexpr int kAttributeMinor = 76;

absl::StatusOr<const CudaDriver*> OpenDriver() {
  absl::StatusOr<void*> library = OpenFirst("NVIDIA's driver", {"libcuda.so.1", "libcuda.so"}, "install the driver of this machine's GPU");
  if (!library.ok()) return library.status();
  auto* driver = new CudaDriver;  // Lives as long as the process.
  SymbolReader reader(*library, "NVIDIA's driver");
  reader.Read(&driver->init, "cuInit");
  reader.Read(&driver->get_error_string, "cuGetErrorString");
  reader.Read(&driver->device_get, "cuDeviceGet");
  reader.Read(&driver->device_get_attribute, "cuDeviceGetAttribute");
  reader.Read(&driver->device_total_memory, "cuDeviceTotalMem_v2");
  reader.Read(&driver->device_primary_context_retain, "cuDevicePrimaryCtxRetain");
  reader.Read(&driver->context_set_current, "cuCtxSetCurrent");
  reader.Read(&driver->library_load_data, "cuLibraryLoadData");
  reader.Read(&driver->library_unload, "cuLibraryUnload");
  reader.Read(&driver->library_get_kernel, "cuLibraryGetKernel");
  reader.Read(&driver->kernel_set_attribute, "cuKernelSetAttribute");
  reader.Read(&driver->kernel_get_attribute, "cuKernelGetAttribute");
  reader.Read(&driver->launch_kernel, "cuLaunchKernelEx");
  reader.Read(&driver->stream_is_capturing, "cuStreamIsCapturing");
  reader.Read(&driver->stream_begin_capture, "cuStreamBeginCapture_v2");
  reader.Read(&driver->stream_end_capture, "cuStreamEndCapture");
  reader.Read(&driver->stream_get_capture_info_v2, "cuStreamGetCaptureInfo_v2");
  reader.ReadIfThere(&driver->stream_get_capture_info_v3, "cuStreamGetCaptureInfo_v3");
  reader.Read(&driver->graph_exec_kernel_node_set_params, "cuGraphExecKernelNodeSetParams_v2");
  reader.Read(&driver->memcpy_device_to_device, "cuMemcpyDtoDAsync_v2");
  reader.Read(&driver->memcpy_host_to_device, "cuMemcpyHtoDAsync_v2");
  reader.Read(&driver->memset, "cuMemsetD8Async");
  reader.Read(&driver->thread_exchange_capture_mode, "cuThreadExchangeStreamCaptureMode");
  reader.Read(&driver->event_create, "cuEventCreate");
  reader.Read(&driver->event_destroy, "cuEventDestroy_v2");
  reader.Read(&driver->event_record, "cuEventRecord");
  reader.Read(&driver->event_synchronize, "cuEventSynchronize");
  reader.Read(&driver->event_elapsed_time, "cuEventElapsedTime");
  if (!reader.status().ok()) return reader.status();
  if (const int error = driver->init(0); error != 0) {
    return absl::UnavailableError(absl::StrCat("NVIDIA's driver does not start: ", driver->ErrorText(error)));
  }
  return driver;
}

absl::StatusOr<void*> OpenNvrtc() {
  const std::vector<std::string> names{"libnvrtc.so.13", "libnvrtc.so.12"};
  if (void* library = FindOpen(names)) return library;
  std::vector<std::string> places = internal::NvrtcOfWheels(LibraryOf(reinterpret_cast<const void*>(&c10::GetAllocator)));
  places.insert(places.end(), names.begin(), names.end());
  places.emplace_back("libnvrtc.so");
  for (const char* folder : {"/usr/local/cuda/lib64/", "/usr/local/cuda/lib/"}) places.push_back(absl::StrCat(folder, "libnvrtc.so"));
  return OpenFirst("NVRTC, NVIDIA's run-time compiler,", places,
                   "install the package nvidia-cuda-nvrtc of LibTorch's CUDA version beside it, or put the folder of libnvrtc.so "
                   "in LD_LIBRARY_PATH");
}

absl::StatusOr<const Nvrtc*> ReadNvrtc() {
  absl::StatusOr<void*> library = OpenNvrtc();
  if (!library.ok()) return library.status();
  auto* nvrtc = new Nvrtc;  // Lives as long as the process.
  SymbolReader reader(*library, "NVRTC");
  reader.Read(&nvrtc->version, "nvrtcVersion");
  reader.Read(&nvrtc->get_num_supported_archs, "nvrtcGetNumSupportedArchs");
  reader.Read(&nvrtc->get_supported_archs, "nvrtcGetSupportedArchs");
  reader.Read(&nvrtc->create_program, "nvrtcCreateProgram");
  reader.Read(&nvrtc->compile_program, "nvrtcCompileProgram");
  reader.Read(&nvrtc->destroy_program, "nvrtcDestroyProgram");
  reader.Read(&nvrtc->get_log_size, "nvrtcGetProgramLogSize");
  reader.Read(&nvrtc->get_log, "nvrtcGetProgramLog");
  reader.Read(&nvrtc->get_cubin_size, "nvrtcGetCUBINSize");
  reader.Read(&nvrtc->get_cubin, "nvrtcGetCUBIN");
  reader.Read(&nvrtc->get_ptx_size, "nvrtcGetPTXSize");
  reader.Read(&nvrtc->get_ptx, "nvrtcGetPTX");
  reader.Read(&nvrtc->get_error_string, "nvrtcGetErrorString");
  if (!reader.status().ok()) return reader.status();
  nvrtc->path = LibraryOf(reinterpret_cast<const void*>(nvrtc->version));
  int major = 0, minor = 0, count = 0;
  nvrtc->version(&major, &minor);
  nvrtc->version_text = absl::StrCat(major, ".", minor);
  nvrtc->get_num_supported_archs(&count);
  std::vector<int> archs(static_cast<size_t>(count), 0);
  if (count > 0) nvrtc->get_supported_archs(archs.data());
  for (const int arch : archs) nvrtc->newest_arch = std::max(nvrtc->newest_arch, arch);
  return nvrtc;
}

absl::StatusOr<CudaDeviceInfo> AskDevice(int ordinal) {
  absl::StatusOr<const CudaDriver*> driver = GetCudaDriver();
  if (!driver.ok()) return driver.status();
  int device = 0, major = 0, minor = 0;
  size_t memory = 0;
  CudaDeviceInfo info;
  for (const int error :
       {(*driver)->device_get(&device, ordinal), (*driver)->device_get_attribute(&major, kAttributeMajor, device),
        (*driver)->device_get_attribute(&minor, kAttributeMinor, device),
        (*driver)->device_get_attribute(&info.multiprocessors, kAttributeMultiprocessors, device),
        (*driver)->device_get_attribute(&info.threads, kAttributeThreads, device), (*driver)->device_total_memory(&memory, device)}) {
    if (error != 0) return absl::UnavailableError(absl::StrCat("GPU ", ordinal, " cannot be asked: ", (*driver)->ErrorText(error)));
  }
  info.memory = static_cast<int64_t>(memory);
  info.arch = absl::StrCat("sm_", major, minor);
  return info;
}

}  // namespace

std::string CudaDriver::ErrorText(int error) const {
  const char* text = nullptr;
  if (get_error_string(error, &text) != 0 || text == nullptr) return absl::StrCat("error ", error);
  return absl::StrCat(text, " (error ", error, ")");
}

int CudaDriver::LastCaptured(CudaStreamHandle stream, const CudaGraphNode** nodes, size_t* count) const {
  int status = 0;
  const CudaGraphEdge* edges = nullptr;
  if (stream_get_capture_info_v3 == nullptr) return stream_get_capture_info_v2(stream, &status, nullptr, nullptr, nodes, count);
  return stream_get_capture_info_v3(stream, &status, nullptr, nullptr, nodes, &edges, count);
}

absl::StatusOr<const CudaDriver*> GetCudaDriver() {
  static const auto* const driver = new absl::StatusOr<const CudaDriver*>(OpenDriver());
  return *driver;
}

const CudaDriver& RequireCudaDriver() {
  static const CudaDriver* const driver = [] {
    absl::StatusOr<const CudaDriver*> opened = GetCudaDriver();
    TORCH_CHECK(opened.ok(), "lazuli: ", std::string(opened.status().message()));
    return *opened;
  }();
  return *driver;
}

int SetCurrentContext(int device) {
  const CudaDriver& driver = RequireCudaDriver();
  int handle = 0;
  void* context = nullptr;  // Lives as long as the process.
  if (const int error = driver.device_get(&handle, device); error != 0) return error;
  if (const int error = driver.device_primary_context_retain(&context, handle); error != 0) return error;
  return driver.context_set_current(context);
}

absl::StatusOr<const Nvrtc*> GetNvrtc() {
  static const auto* const nvrtc = new absl::StatusOr<const Nvrtc*>(ReadNvrtc());
  return *nvrtc;
}

absl::StatusOr<CudaDeviceInfo> GetCudaDeviceInfo(int device) {
  static auto* const mutex = new std::mutex;
  static auto* const infos = new std::map<int, CudaDeviceInfo>;
  std::lock_guard<std::mutex> lock(*mutex);
  const auto known = infos->find(device);
  if (known != infos->end()) return known->second;
  absl::StatusOr<CudaDeviceInfo> info = AskDevice(device);
  if (info.ok()) infos->emplace(device, *info);
  return info;
}

}  // namespace lazuli::runtime
