#include "runtime/open_library.h"

#include "absl/strings/str_join.h"

namespace lazuli::runtime {

absl::StatusOr<void*> OpenFirst(const std::string& what, const std::vector<std::string>& names, const std::string& what_to_do) {
  std::string reason;
  for (const std::string& name : names) {
    if (void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    const char* error = dlerror();
    if (error != nullptr) reason = error;
  }
  return absl::UnavailableError(absl::StrCat(what, " is not there (tried ", absl::StrJoin(names, ", "), "; ", reason, "); ", what_to_do));
}

void* FindOpen(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD)) return library;
  }
  return nullptr;
}

std::string LibraryOf(const void* address) {
  Dl_info info;
  return dladdr(address, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

}  // namespace lazuli::runtime
