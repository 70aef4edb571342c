// Memory that is kept where it is of no use any more, given back to the system before what needs other memory begins. Each takes no more
// than a twentieth of the time, however often it is called. Thread-safe.
#pragma once

namespace lazuli::runtime {

// After a compilation: the compiler's heap and code, and what replays left on the heap, are tens of megabytes that the program, whose peak
// is still to come, would never see again.
void GiveCompilerBack();

// Before memory is taken that malloc's heap, whose free parts operators run eagerly left, cannot provide.
void GiveHeapBack();

// Before operators run eagerly, which take their memory from the heap: the scratch blocks of programs.
void GiveScratchBack();

}  // namespace lazuli::runtime
