// The C++ file around the statements of a reproducer: for random programs and for traces alike.
#pragma once

#include <string>
#include <vector>

namespace lazuli::tools {

// A program whose main() runs `statements` (over `round`, 0 or 1) eagerly and on `backend`, and returns how many of `results`, variables
// of theirs, differ. It needs LibTorch and an installed Lazuli, and nothing else.
std::string ReproducerSource(const std::string& statements, const std::vector<std::string>& results, const std::string& backend);

}  // namespace lazuli::tools
