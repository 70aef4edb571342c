// Machine code of kernels beyond this process: in the disk cache, and in files to ship with a program.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "codegen/orc_compiler.h"
#include "runtime/disk_cache.h"

namespace lazuli::codegen {

// Everything that a kernel's code depends on: this library's code generator, the libraries it builds on, the CPU, the target, the schedule
// and the kernel's text. Equal keys, equal code.
std::string KernelKey(const std::string& kernel_text, Isa isa, const std::string& precision, const std::string& schedule = "default");

// The same of a GPU's kernel, by the text that NVRTC of that version compiles for `arch`.
std::string CudaKernelKey(const std::string& source, const std::string& arch, const std::string& nvrtc_version,
                          const std::string& precision);

// What the names of the kernel's functions start with.
std::string KernelSymbol(const std::string& key);

// The relocatable object under `key`, from a file of LoadKernels or from `disk` (null: no disk cache).
std::optional<std::string> FindObject(runtime::DiskCache* disk, const std::string& key);

// Keeps `object` for other processes.
void KeepObject(runtime::DiskCache* disk, const std::string& key, const std::string& object);

// What FindObject returned does not link, because of `reason`.
void RejectObject(runtime::DiskCache* disk, const std::string& key, const std::string& reason);

// What was found the fastest on `machine`: the schedule of a kernel, by its key with the default schedule, or the algorithm of a product.
std::optional<std::string> FindFastest(runtime::DiskCache* disk, const std::string& machine, const std::string& key);
void KeepFastest(runtime::DiskCache* disk, const std::string& machine, const std::string& key, const std::string& choice);

// This CPU with so many threads, as a machine.
std::string MachineOf(int threads);

// Writes keys and objects to one file.
absl::Status SaveKernels(const std::string& path, const std::vector<std::pair<std::string, std::string>>& kernels);

// Reads such a file; FindObject finds its kernels from then on. All or nothing.
absl::Status LoadKernels(const std::string& path);

}  // namespace lazuli::codegen
