// Where in the program a cut comes from: LAZULI_STACKS=1.
#pragma once

#include <string>

namespace lazuli::codegen {

// "train.cpp:88" of the innermost frame of this thread that belongs neither to Lazuli nor to LibTorch nor to the system's libraries.
// Without debug information (-g) the function's name instead; empty when there is no such frame. Takes milliseconds.
std::string CallerLocation();

}  // namespace lazuli::codegen
