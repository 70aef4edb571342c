// Part of every suite: programs are compiled before they run, and code stays out of the user's cache, unless the environment or a test
// says otherwise, so that counters are exact.
#include <cstdlib>

namespace {

[[maybe_unused]] const int kWaitForCompiler = setenv("LAZULI_ASYNC", "0", /*overwrite=*/0);
[[maybe_unused]] const int kNoDiskCache = setenv("LAZULI_DISK_CACHE", "0", /*overwrite=*/0);

}  // namespace
