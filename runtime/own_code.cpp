#include "runtime/own_code.h"

#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

namespace lazuli::runtime {
namespace {

constexpr uintptr_t kPage = 4096;

// Of a word of /proc/self/pagemap.
constexpr uint64_t kPresent = uint64_t{1} << 63;
constexpr uint64_t kSwapped = uint64_t{1} << 62;
constexpr uint64_t kOfFile = uint64_t{1} << 61;

struct Range {
  uintptr_t begin = 0;
  uintptr_t end = 0;
};

// The segments of the object that holds this function which nothing writes to, relocations included. Whole pages only.
std::vector<Range> ReadOnlySegments() {
  struct Search {
    uintptr_t address;
    std::vector<Range> found;
  } search{reinterpret_cast<uintptr_t>(&ReleaseOwnCode), {}};
  const auto visit = [](dl_phdr_info* info, size_t, void* context) {
    auto& search = *static_cast<Search*>(context);
    std::vector<Range> segments;
    bool own = false;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
      const ElfW(Phdr)& header = info->dlpi_phdr[i];
      const uintptr_t begin = info->dlpi_addr + header.p_vaddr;
      if (header.p_type != PT_LOAD || (header.p_flags & PF_W) != 0) continue;
      own = own || (begin <= search.address && search.address < begin + header.p_memsz);
      segments.push_back({(begin + kPage - 1) / kPage * kPage, (begin + header.p_filesz) / kPage * kPage});
    }
    if (own) search.found = std::move(segments);
    return own ? 1 : 0;
  };
  dl_iterate_phdr(visit, &search);
  return search.found;
}

// Unmaps the pages of `range` that are as in the file; `words` describe them. Returns how many were mapped.
int64_t Release(Range range, const std::vector<uint64_t>& words) {
  int64_t mapped = 0;
  size_t begin = 0;
  for (size_t i = 0; i <= words.size(); ++i) {
    const bool present = i < words.size() && (words[i] & kPresent) != 0;
    mapped += present && (words[i] & kOfFile) != 0 ? 1 : 0;
    const bool written = i < words.size() && ((words[i] & kSwapped) != 0 || (present && (words[i] & kOfFile) == 0));
    if (i < words.size() && !written) continue;
    if (i > begin) madvise(reinterpret_cast<void*>(range.begin + begin * kPage), (i - begin) * kPage, MADV_DONTNEED);
    begin = i + 1;
  }
  return mapped;
}

}  // namespace

int64_t ReleaseOwnCode() {
  static const auto* const segments = new std::vector<Range>(ReadOnlySegments());
  if (sysconf(_SC_PAGESIZE) != static_cast<long>(kPage)) return 0;
  const int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  if (pagemap < 0) return 0;
  int64_t pages = 0;
  for (const Range& segment : *segments) {
    if (segment.begin >= segment.end) continue;
    std::vector<uint64_t> words((segment.end - segment.begin) / kPage);
    const size_t nbytes = words.size() * sizeof(uint64_t);
    if (pread(pagemap, words.data(), nbytes, segment.begin / kPage * sizeof(uint64_t)) != static_cast<ssize_t>(nbytes)) continue;
    pages += Release(segment, words);
  }
  close(pagemap);
  return pages * static_cast<int64_t>(kPage);
}

}  // namespace lazuli::runtime
