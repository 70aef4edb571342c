// The end of the process, for what runs on threads of its own.
#pragma once

namespace lazuli::runtime {

// `close` is called once the process ends, by main()'s return or exit(), while the main thread's objects are still there; perhaps more than
// once. It must return only when none of its threads uses anything that may be destroyed. At most a handful of functions in all.
void CloseAtProcessEnd(void (*close)());

// For an exit() on another thread than the main one: they are called then, too. Objects that come to life inside a job are destroyed before
// any handler that was registered earlier, so this is called once after the first job. Returns 0.
int CoverExitOfOtherThreads();

// The calling thread's objects are going, or gone, which is so where handlers of exit() and destructors of static objects run: those of
// LLVM among them, so that nothing can be compiled there. Known of the main thread, and of those that say so.
void NoteThreadEnds();
bool ThreadEnds();

}  // namespace lazuli::runtime
