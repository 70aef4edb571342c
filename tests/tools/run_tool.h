// Runs a tool of the build from the command line.
#pragma once

#include <cstdlib>
#include <string>

#include "tests/support/log_file.h"

namespace lazuli::testing {

// What "`tool` `arguments`" wrote to standard output and standard error. `status`: its exit status.
inline std::string RunTool(const std::string& tool, const std::string& arguments, int* status) {
  const LogFile output;
  const std::string command = std::string(LAZULI_BIN_DIR) + "/" + tool + " " + arguments + " > " + output.path() + " 2>&1";
  *status = WEXITSTATUS(std::system(command.c_str()));
  return output.text();
}

}  // namespace lazuli::testing
