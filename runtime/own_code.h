// Which of this library's code is mapped.
#pragma once

#include <cstdint>

namespace lazuli::runtime {

// Unmaps the pages of this library's code and constants, which the system keeps: what runs again is mapped again by minor faults, of some
// microseconds altogether. Start-up and compilation go through ten times as much code as a step does, which would count as the
// program's memory for good. Pages that somebody wrote to, such as a debugger, stay. Thread-safe. Returns how many bytes were mapped.
int64_t ReleaseOwnCode();

}  // namespace lazuli::runtime
