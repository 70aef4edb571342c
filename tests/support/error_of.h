// The error of a piece of a program.
#pragma once

#include <c10/util/Exception.h>

#include <string>

namespace lazuli::testing {

// The message of the c10::Error that `run` throws; "no error" when it throws none.
template <class Run>
std::string ErrorOf(const Run& run) {
  try {
    run();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

}  // namespace lazuli::testing
