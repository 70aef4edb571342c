#include "tracer/alias_check.h"

#include <c10/core/RefcountedDeleter.h>
#include <c10/core/Storage.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

#include "tracer/lazy_tensor.h"

namespace lazuli::tracer {
namespace {

constexpr char kName[] = "_ZN3c1020isSharedStorageAliasERKNS_7StorageES2_";

// What c10::isSharedStorageAlias does, without asking whether the pointers may be seen.
bool IsSharedStorageAlias(const c10::Storage& a, const c10::Storage& b) {
  if (!a || !b) return false;
  const at::DataPtr& x = DataOf(a.unsafeGetStorageImpl());
  const at::DataPtr& y = DataOf(b.unsafeGetStorageImpl());
  const c10::DeleterFnPtr counted = &c10::refcounted_deleter;
  return x.get_deleter() == counted && y.get_deleter() == counted && x.get_context() == y.get_context();
}

// What a library's dynamic section says of the functions that it calls.
struct Calls {
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;
  const ElfW(Rela) * begin = nullptr;
  size_t bytes = 0;
};

Calls CallsOf(const dl_phdr_info& info) {
  Calls calls;
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    if (info.dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    for (const auto* entry = reinterpret_cast<const ElfW(Dyn)*>(info.dlpi_addr + info.dlpi_phdr[i].p_vaddr); entry->d_tag != DT_NULL;
         ++entry) {
      // The loader has made addresses of offsets, but for the kernel's own library.
      const uintptr_t at = entry->d_un.d_ptr < info.dlpi_addr ? info.dlpi_addr + entry->d_un.d_ptr : entry->d_un.d_ptr;
      if (entry->d_tag == DT_SYMTAB) calls.symbols = reinterpret_cast<const ElfW(Sym)*>(at);
      if (entry->d_tag == DT_STRTAB) calls.names = reinterpret_cast<const char*>(at);
      if (entry->d_tag == DT_JMPREL) calls.begin = reinterpret_cast<const ElfW(Rela)*>(at);
      if (entry->d_tag == DT_PLTRELSZ) calls.bytes = entry->d_un.d_val;
    }
  }
  return calls;
}

// A library that was bound when it was loaded keeps the places of addresses read-only.
void Overwrite(void** place, void* address) {
  const auto page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  void* const page = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(place) & ~(page_bytes - 1));
  if (mprotect(page, page_bytes, PROT_READ | PROT_WRITE) == 0) __atomic_store_n(place, address, __ATOMIC_RELEASE);
}

int Redirect(dl_phdr_info* info, size_t /*size*/, void* /*data*/) {
  const Calls calls = CallsOf(*info);
  if (calls.symbols == nullptr || calls.names == nullptr || calls.begin == nullptr) return 0;
  for (size_t i = 0; i < calls.bytes / sizeof(ElfW(Rela)); ++i) {
    const ElfW(Rela)& call = calls.begin[i];
    if (ELF64_R_TYPE(call.r_info) != R_X86_64_JUMP_SLOT) continue;
    if (std::strcmp(calls.names + calls.symbols[ELF64_R_SYM(call.r_info)].st_name, kName) != 0) continue;
    Overwrite(reinterpret_cast<void**>(info->dlpi_addr + call.r_offset), reinterpret_cast<void*>(&IsSharedStorageAlias));
  }
  return 0;
}

}  // namespace

void AnswerForPendingStorages() { dl_iterate_phdr(&Redirect, nullptr); }

}  // namespace lazuli::tracer
