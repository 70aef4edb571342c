// Where in the program an operator or a cut comes from: LAZULI_STACKS=1.
#pragma once

#include <string>
#include <vector>

namespace lazuli::codegen {

// The return addresses of this thread's frames, innermost first. Takes microseconds.
using CallStack = std::vector<void*>;
CallStack CaptureStack();

// "train.cpp:88" of the innermost frame of `stack` that belongs neither to Lazuli nor to LibTorch nor to the system's libraries.
// Without debug information (-g) the function's name instead; empty when there is no such frame. Takes milliseconds.
std::string CallerLocation(const CallStack& stack);

}  // namespace lazuli::codegen
