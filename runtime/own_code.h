// Which of this library's code is mapped.
#pragma once

#include <cstdint>

namespace lazuli::runtime {

// Unmaps the pages of this library's code and constants, which the system keeps: what runs again is mapped again by minor faults, of some
// microseconds altogether. Start-up and compilation go through ten times as much code as a step does, which would count as the
// program's memory for good. Pages that somebody wrote to, such as a debugger, stay. Thread-safe. Returns how many bytes were mapped.
int64_t ReleaseOwnCode();

// After a compilation: the compiler's heap and code, and what replays left on the heap, are tens of megabytes that the program, whose peak
// is still to come, would never see again. Where many traces are compiled, this takes no more than a twentieth of the time.
void GiveMemoryBack();

}  // namespace lazuli::runtime
