// Calls of other libraries' functions that go to ours instead. Programs and libraries find what they call through addresses that the loader
// fills in; those of the libraries that are loaded are overwritten.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
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

// From here on, what the virtual function `member` does to objects whose table of virtual functions is `vtable` is `ours`, which takes the
// object's address first. False, and nothing is done, where the table cannot be written. Any thread may be calling meanwhile.
template <class Class, class Result, class... Args>
bool ReplaceVirtual(const void* vtable, Result (Class::*member)(Args...) const, Result (*ours)(const Class*, Args...));

bool ReplaceVirtual(const void* vtable, size_t slot_bytes, void* ours);

template <class Class, class Result, class... Args>
bool ReplaceVirtual(const void* vtable, Result (Class::*member)(Args...) const, Result (*ours)(const Class*, Args...)) {
  // By the Itanium ABI's 2.3, a pointer to a virtual function is one and the bytes to its place.
  uintptr_t place;
  std::memcpy(&place, &member, sizeof(place));
  return (place & 1) == 1 && ReplaceVirtual(vtable, place - 1, reinterpret_cast<void*>(ours));
}

}  // namespace lazuli::runtime
