// Memory that is kept where it is of no use any more, given back to the system before what needs other memory begins. Each of these takes
// no more than a twentieth of the time, however often it is called. Thread-safe.
#pragma once

namespace lazuli::runtime {

// After a compilation: the compiler's heap and code, and what replays left on the heap, are tens of megabytes that the program, whose peak
// is still to come, would never see again.
void GiveCompilerBack();

// Before memory is taken that malloc's heap, whose free parts operators run eagerly left, cannot provide.
void GiveHeapBack();

// Before operators run eagerly, which take their memory from the heap: the scratch blocks of programs.
void GiveScratchBack();

// What the heap keeps, on the other hand. Call once, before blocks are kept that would be freed else: malloc learns from large blocks that
// are freed how much is worth keeping at the heap's end (glibc's malloc.c, "Dynamic M_MMAP_THRESHOLD"), and where it sees none may give
// what LibTorch's operators take and free in each step back to the system each time, page by page.
void KeepHeap();

}  // namespace lazuli::runtime
