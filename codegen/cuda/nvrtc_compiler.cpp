#include "codegen/cuda/nvrtc_compiler.h"

#include <atomic>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "runtime/cuda_driver.h"

namespace lazuli::codegen {
namespace {

using runtime::Nvrtc;
using runtime::NvrtcProgram;

absl::StatusOr<int> NumberOf(const std::string& arch) {
  absl::string_view digits = arch;
  int number = 0;
  if (absl::ConsumePrefix(&digits, "sm_") && absl::SimpleAtoi(digits, &number) && number >= 50) return number;
  return absl::InvalidArgumentError(absl::StrCat("unknown GPU architecture '", arch, "'; write it like sm_90"));
}

// Frees the program.
class Program {
 public:
  Program(const Nvrtc& nvrtc, const std::string& source) : nvrtc_(nvrtc) {
    error_ = nvrtc.create_program(&program_, source.c_str(), "lazuli.cu", 0, nullptr, nullptr);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    if (program_ != nullptr) nvrtc_.destroy_program(&program_);
  }

  absl::Status Compile(const std::vector<const char*>& options) {
    if (error_ == 0) error_ = CompileQuickly(options);
    if (error_ == kInvalidOption) error_ = CompileWith(options);
    if (error_ == 0) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("NVRTC ", nvrtc_.version_text, ": ", nvrtc_.get_error_string(error_), "\n", Log()));
  }

  absl::StatusOr<std::string> Result(bool cubin) {
    size_t size = 0;
    int error = cubin ? nvrtc_.get_cubin_size(program_, &size) : nvrtc_.get_ptx_size(program_, &size);
    std::string code(size, '\0');
    if (error == 0) error = cubin ? nvrtc_.get_cubin(program_, code.data()) : nvrtc_.get_ptx(program_, code.data());
    if (error == 0) return code;
    return absl::InternalError(absl::StrCat("NVRTC ", nvrtc_.version_text, ": ", nvrtc_.get_error_string(error)));
  }

 private:
  static constexpr int kInvalidOption = 5;

  int CompileWith(const std::vector<const char*>& options) {
    return nvrtc_.compile_program(program_, static_cast<int>(options.size()), options.data());
  }

  // NVRTC reads one program at a time, whatever thread asks, and most of that is what it declares by itself. Its newer versions can leave
  // out much of it, none of which kernels use, and the driver's cache on disk, a second one beside this library's.
  int CompileQuickly(std::vector<const char*> options) {
    static std::atomic<bool> knows_options{true};
    if (!knows_options.load(std::memory_order_relaxed)) return kInvalidOption;
    options.insert(options.end(), {"--minimal", "--no-cache"});
    const int error = CompileWith(options);
    if (error == kInvalidOption) knows_options.store(false, std::memory_order_relaxed);
    return error;
  }

  std::string Log() {
    size_t size = 0;
    if (program_ == nullptr || nvrtc_.get_log_size(program_, &size) != 0 || size == 0) return "";
    std::string log(size, '\0');
    nvrtc_.get_log(program_, log.data());
    return log;
  }

  const Nvrtc& nvrtc_;
  NvrtcProgram program_ = nullptr;
  int error_ = 0;
};

}  // namespace

absl::StatusOr<std::string> CompileCuda(const std::string& source, const std::string& arch, bool contract) {
  absl::StatusOr<const Nvrtc*> nvrtc = runtime::GetNvrtc();
  if (!nvrtc.ok()) return nvrtc.status();
  absl::StatusOr<int> number = NumberOf(arch);
  if (!number.ok()) return number.status();
  const bool cubin = *number <= (*nvrtc)->newest_arch;
  const std::string target = absl::StrCat("--gpu-architecture=", cubin ? "sm_" : "compute_", cubin ? *number : (*nvrtc)->newest_arch);
  Program program(**nvrtc, source);
  const absl::Status status =
      program.Compile({target.c_str(), "--std=c++17", contract ? "--fmad=true" : "--fmad=false", "--disable-warnings"});
  if (!status.ok()) return status;
  return program.Result(cubin);
}

absl::StatusOr<std::string> NvrtcVersion() {
  absl::StatusOr<const Nvrtc*> nvrtc = runtime::GetNvrtc();
  if (!nvrtc.ok()) return nvrtc.status();
  return (*nvrtc)->version_text;
}

}  // namespace lazuli::codegen
