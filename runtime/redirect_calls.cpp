#include "runtime/redirect_calls.h"

#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace lazuli::runtime {
namespace {

using Places = const ElfW(Rela);

// What a library's dynamic section says of addresses that the loader fills in.
struct Imports {
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;
  // Of functions that are called through stubs, and of all else: addresses within the library first, and then those of symbols.
  Places* stubs = nullptr;
  Places* others = nullptr;
  size_t stub_bytes = 0, other_bytes = 0, num_internal = 0;
};

Imports ImportsOf(const dl_phdr_info& info) {
  Imports imports;
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    if (info.dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    for (const auto* entry = reinterpret_cast<const ElfW(Dyn)*>(info.dlpi_addr + info.dlpi_phdr[i].p_vaddr); entry->d_tag != DT_NULL;
         ++entry) {
      // The loader has made addresses of offsets, but for the kernel's own library.
      const uintptr_t at = entry->d_un.d_ptr < info.dlpi_addr ? info.dlpi_addr + entry->d_un.d_ptr : entry->d_un.d_ptr;
      if (entry->d_tag == DT_SYMTAB) imports.symbols = reinterpret_cast<const ElfW(Sym)*>(at);
      if (entry->d_tag == DT_STRTAB) imports.names = reinterpret_cast<const char*>(at);
      if (entry->d_tag == DT_JMPREL) imports.stubs = reinterpret_cast<Places*>(at);
      if (entry->d_tag == DT_RELA) imports.others = reinterpret_cast<Places*>(at);
      if (entry->d_tag == DT_PLTRELSZ) imports.stub_bytes = entry->d_un.d_val;
      if (entry->d_tag == DT_RELASZ) imports.other_bytes = entry->d_un.d_val;
      if (entry->d_tag == DT_RELACOUNT) imports.num_internal = entry->d_un.d_val;
    }
  }
  return imports;
}

// A library that was bound when it was loaded keeps the places of addresses read-only. False: they stay so.
bool Overwrite(void** place, void* address) {
  const auto page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  void* const page = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(place) & ~(page_bytes - 1));
  if (mprotect(page, page_bytes, PROT_READ | PROT_WRITE) != 0) return false;
  __atomic_store_n(place, address, __ATOMIC_RELEASE);
  return true;
}

void Redirect(const dl_phdr_info& info, const Imports& imports, Places* begin, Places* end, uint32_t type, bool of_program,
              const std::vector<Redirection>& redirections) {
  for (Places* place = begin; place < end; ++place) {
    if (ELF64_R_TYPE(place->r_info) != type) continue;
    const std::string_view name = imports.names + imports.symbols[ELF64_R_SYM(place->r_info)].st_name;
    for (const Redirection& redirection : redirections) {
      if (name != redirection.name || (redirection.callers == Callers::kProgram && !of_program)) continue;
      Overwrite(reinterpret_cast<void**>(info.dlpi_addr + place->r_offset), redirection.ours);
    }
  }
}

int RedirectIn(dl_phdr_info* info, size_t /*size*/, void* data) {
  const auto& redirections = *static_cast<const std::vector<Redirection>*>(data);
  const bool of_program = IsOfProgram(info->dlpi_name == nullptr ? "" : info->dlpi_name);
  const Imports imports = ImportsOf(*info);
  if (imports.symbols == nullptr || imports.names == nullptr) return 0;
  if (imports.stubs != nullptr) {
    Redirect(*info, imports, imports.stubs, imports.stubs + imports.stub_bytes / sizeof(ElfW(Rela)), R_X86_64_JUMP_SLOT, of_program,
             redirections);
  }
  // Compilers may leave stubs out. LibTorch's were told nothing of the kind, and have a million other places.
  if (imports.others != nullptr && of_program) {
    Redirect(*info, imports, imports.others + imports.num_internal, imports.others + imports.other_bytes / sizeof(ElfW(Rela)),
             R_X86_64_GLOB_DAT, of_program, redirections);
  }
  return 0;
}

}  // namespace

bool IsOfProgram(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);  // All of it where there is no slash.
  const auto begins = [name](std::string_view prefix) { return name.substr(0, prefix.size()) == prefix; };
  if (begins("libtorch_python")) return true;
  constexpr std::string_view kNotOfProgram[] = {"libtorch", "libc10", "libcu", "libnv", "libnccl", "liblazuli.so"};
  return std::none_of(std::begin(kNotOfProgram), std::end(kNotOfProgram), begins);
}

void RedirectCalls(const std::vector<Redirection>& redirections) {
  dl_iterate_phdr(&RedirectIn, const_cast<std::vector<Redirection>*>(&redirections));
}

bool ReplaceVirtual(const void* vtable, size_t slot_bytes, void* ours) {
  char* const table = static_cast<char*>(const_cast<void*>(vtable));
  return Overwrite(reinterpret_cast<void**>(table + slot_bytes), ours);
}

}  // namespace lazuli::runtime
