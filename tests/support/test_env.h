// Settings of tests from the environment.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace lazuli::testing {

// The variable's value as a number, or `fallback`. Takes it out of the environment, since Lazuli refuses LAZULI_ names that it does not
// know: call before the first mode.
inline int64_t TakeFromEnv(const char* name, int64_t fallback) {
  const char* text = std::getenv(name);
  if (text == nullptr) return fallback;
  const int64_t value = std::atoll(text);
  unsetenv(name);
  return value;
}

}  // namespace lazuli::testing
