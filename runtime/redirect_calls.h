// Calls of other libraries' functions that go to ours instead. Programs and libraries find what they call through addresses that the loader
// fills in; those of the libraries that are loaded are overwritten.
#pragma once

#include <string_view>
#include <vector>

namespace lazuli::runtime {

// Whose calls.
enum class Callers {
  kAll,
  kProgram,  // Not LibTorch's (but for its Python module), NVIDIA's and ours: what the program itself consists of, and what it calls for.
};

struct Redirection {
  std::string_view name;  // As linkers know it.
  void* ours = nullptr;   // Of the same type, for the rest of the process.
  Callers callers = Callers::kAll;
};

// Whether the library in this file, empty for the program's own, is what Callers::kProgram says.
bool IsOfProgram(std::string_view path);

// From here on, calls from libraries that are loaded now go to ours. Any thread may be calling meanwhile.
void RedirectCalls(const std::vector<Redirection>& redirections);

}  // namespace lazuli::runtime
