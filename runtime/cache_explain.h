// Why an entry is not in the disk cache: the entry whose key is nearest, and what is different in it.
#pragma once

#include <string>
#include <string_view>

#include "runtime/cache_folder.h"

namespace lazuli::runtime {

// Lines for people. Looks at the entries used last, and not at the one with this very key.
std::string DescribeNearest(const CacheFolder& folder, std::string_view kind, std::string_view key);

// The lines of two keys that differ: "codegen: 5ad1... here, 77c0... there" for each fact of the first paragraph, and the first line
// that differs in the rest.
std::string DescribeDifference(std::string_view here, std::string_view there);

}  // namespace lazuli::runtime
