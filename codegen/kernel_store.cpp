#include "codegen/kernel_store.h"

#include <fcntl.h>
#include <llvm/Config/llvm-config.h>
#include <torch/version.h>

#include <mutex>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "codegen/emit_llvm_math.h"
#include "codegen/source_hash.h"
#include "runtime/cache_entry.h"
#include "runtime/cache_explain.h"
#include "runtime/counters.h"
#include "runtime/log.h"

namespace lazuli::codegen {
namespace {

constexpr const char* kKind = "kernel";
constexpr const char* kFastestKind = "fastest";

// What is the same for all kernels of this process. The libraries of functions that LibTorch brings decide which of them code calls. Code
// is made for a level of instructions (`isa`), not for one CPU.
const std::string& ProcessFacts() {
  static const auto* const facts =
      new std::string(absl::StrCat("codegen ", kCodegenSourceHash, "\nlibtorch ", TORCH_VERSION, "\nfunctions",
                                   ResolveKernelSymbol("Sleef_expf8_u10") != nullptr ? " sleef" : "",
                                   ResolveKernelSymbol("vmsExp") != nullptr ? " vml" : "", "\nllvm ", LLVM_VERSION_STRING, "\n"));
  return *facts;
}

const char* NameOf(Isa isa) { return isa == Isa::kAvx512 ? "avx512" : isa == Isa::kAvx2 ? "avx2" : "sse4"; }

std::string FactsFor(Isa isa) { return absl::StrCat(ProcessFacts(), "isa ", NameOf(isa), "\n"); }

// GPUs of a process may differ: which one a kernel is for is for the rest of the key to say.
const std::string& CudaFacts() {
  static const auto* const facts = new std::string(absl::StrCat("codegen ", kCodegenSourceHash, "\ncuda "));
  return *facts;
}

bool RunsHere(const std::string& key) {
  for (const Isa isa : {Isa::kSse4, Isa::kAvx2, Isa::kAvx512}) {
    if (isa <= HostIsa() && absl::StartsWith(key, FactsFor(isa))) return true;
  }
  return absl::StartsWith(key, CudaFacts());
}

// Objects of the files that were loaded, by key. Never destroyed.
struct Loaded {
  std::mutex mutex;
  absl::flat_hash_map<std::string, std::string> objects;
};

Loaded& GetLoaded() {
  static auto* const loaded = new Loaded;
  return *loaded;
}

std::optional<std::string> FindLoaded(const std::string& key) {
  Loaded& loaded = GetLoaded();
  std::lock_guard<std::mutex> lock(loaded.mutex);
  const auto it = loaded.objects.find(key);
  if (it == loaded.objects.end()) return std::nullopt;
  return it->second;
}

absl::Status WithPath(const char* what, const std::string& path, const absl::Status& status, const char* what_to_do) {
  return absl::Status(status.code(), absl::StrCat(what, " '", path, "': ", std::string(status.message()), "; ", what_to_do));
}

}  // namespace

std::string KernelKey(const std::string& kernel_text, Isa isa, const std::string& precision, const std::string& schedule) {
  const std::string chosen = schedule == "default" ? "" : absl::StrCat("schedule ", schedule, "\n");
  return absl::StrCat(FactsFor(isa), "precision ", precision, "\n", chosen, "\n", kernel_text);
}

std::string CudaKernelKey(const std::string& source, const std::string& arch, const std::string& nvrtc_version,
                          const std::string& precision) {
  return absl::StrCat(CudaFacts(), arch, "\nnvrtc ", nvrtc_version, "\nprecision ", precision, "\n\n", source);
}

std::string KernelSymbol(const std::string& key) { return absl::StrCat("lazuli_", runtime::EntryName(kKind, key)); }

std::optional<std::string> FindObject(runtime::DiskCache* disk, const std::string& key) {
  if (std::optional<std::string> object = FindLoaded(key)) {
    runtime::Counters::Get().disk_cache_hits.Add();
    return object;
  }
  return disk != nullptr ? disk->Get(kKind, key) : std::nullopt;
}

void KeepObject(runtime::DiskCache* disk, const std::string& key, const std::string& object) {
  if (disk != nullptr) disk->Put(kKind, key, object);
}

void RejectObject(runtime::DiskCache* disk, const std::string& key, const std::string& reason) {
  Loaded& loaded = GetLoaded();
  {
    std::lock_guard<std::mutex> lock(loaded.mutex);
    loaded.objects.erase(key);
  }
  if (disk != nullptr) disk->Reject(kKind, key, reason);
}

std::optional<std::string> FindFastest(runtime::DiskCache* disk, const std::string& machine, const std::string& key) {
  return disk != nullptr ? disk->Get(kFastestKind, absl::StrCat(machine, "\n", key), runtime::DiskCache::Count::kNo) : std::nullopt;
}

void KeepFastest(runtime::DiskCache* disk, const std::string& machine, const std::string& key, const std::string& choice) {
  if (disk != nullptr) disk->Put(kFastestKind, absl::StrCat(machine, "\n", key), choice, runtime::DiskCache::Count::kNo);
}

std::string MachineOf(int threads) { return absl::StrCat("cpu ", HostCpuName(), "\nthreads ", threads); }

absl::Status SaveKernels(const std::string& path, const std::vector<std::pair<std::string, std::string>>& kernels) {
  std::vector<runtime::CacheEntry> entries;
  for (const auto& [key, object] : kernels) entries.push_back({kKind, key, object});
  const absl::Status status = runtime::WriteCacheFile(AT_FDCWD, path, runtime::EncodeBundle(entries));
  return status.ok() ? status : WithPath("cannot save kernels to", path, status, "check the folder and the space in it");
}

absl::Status LoadKernels(const std::string& path) {
  absl::StatusOr<std::string> bytes = runtime::ReadCacheFile(AT_FDCWD, path, -1);
  if (!bytes.ok()) return WithPath("cannot load kernels from", path, bytes.status(), "check the path");
  absl::StatusOr<std::vector<runtime::CacheEntry>> entries = runtime::DecodeBundle(*bytes);
  if (!entries.ok()) return WithPath("cannot load kernels from", path, entries.status(), "make the file anew with lazuli::save_cache");
  Loaded& loaded = GetLoaded();
  size_t fitting = 0;
  std::string misfit;  // The facts of a key that does not fit.
  {
    std::lock_guard<std::mutex> lock(loaded.mutex);
    for (runtime::CacheEntry& entry : *entries) {
      if (entry.kind != kKind || !RunsHere(entry.key)) {
        misfit = entry.key.substr(0, entry.key.find("precision "));
        continue;
      }
      ++fitting;
      loaded.objects[entry.key] = std::move(entry.blob);
    }
  }
  if (fitting == 0 && !entries->empty()) {
    runtime::LogAlways(absl::StrCat("the kernels in '", path, "' do not fit this process, which compiles what it needs:\n",
                                    runtime::DescribeDifference(FactsFor(HostIsa()), misfit)));
  }
  return absl::OkStatus();
}

}  // namespace lazuli::codegen
