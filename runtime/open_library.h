// Libraries that are opened when they are first needed, and the functions of theirs that are used.
#pragma once

#include <dlfcn.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace lazuli::runtime {

// Opens the first of `names` that can be. The error names what was tried and ends with `what_to_do`.
absl::StatusOr<void*> OpenFirst(const std::string& what, const std::vector<std::string>& names, const std::string& what_to_do);

// The first of `names` that this process has open; null: none.
void* FindOpen(const std::vector<std::string>& names);

// The function of LibTorch's CUDA library with this mangled name; null: the library is not loaded, or of a version without it.
template <typename F>
F* FindInTorchCuda(const char* name) {
  void* const library = FindOpen({"libtorch_cuda.so"});
  return library == nullptr ? nullptr : reinterpret_cast<F*>(dlsym(library, name));
}

// The function of Python's with this name; null: the process runs no Python.
template <typename F>
F* FindInPython(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_DEFAULT, name));
}

// The file that holds what is at `address`; empty: none.
std::string LibraryOf(const void* address);

// Fills in a table of functions; the first that is missing makes the status.
class SymbolReader {
 public:
  SymbolReader(void* library, std::string what) : library_(library), what_(std::move(what)) {}

  template <typename F>
  void Read(F** function, const char* name) {
    ReadIfThere(function, name);
    if (*function != nullptr || !status_.ok()) return;
    status_ = absl::UnavailableError(absl::StrCat(what_, " has no ", name, "; install CUDA 12 or newer"));
  }
  template <typename F>
  void ReadIfThere(F** function, const char* name) {
    *function = reinterpret_cast<F*>(dlsym(library_, name));
  }
  const absl::Status& status() const { return status_; }

 private:
  void* library_;
  std::string what_;
  absl::Status status_;
};

}  // namespace lazuli::runtime
