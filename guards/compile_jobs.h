// Compiling the programs of cached traces: at once, or in the background while the traces are replayed (LAZULI_ASYNC).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "guards/program_cache.h"

namespace lazuli::guards {

// Gives `entry` a program for its sizes alone. A trace that cannot be compiled is replayed from then on, and never tried again; where a
// program with symbols serves it as well, it is better not run (CompiledProgram::compiled).
void ScheduleStatic(const CachedTracePtr& entry);

// What a program with symbols is compiled of.
struct DynamicJob {
  std::shared_ptr<CompiledProgram> body;
  codegen::TraceLog log;
  DynamicShapes shapes;
  std::shared_ptr<ShapeProfile> profile;
  int64_t site = 0;
  bool known = false;  // An earlier process did the same, so that all may be on disk.
};

// Compiles it. `then` comes afterwards, and nobody waits for it.
void ScheduleDynamic(DynamicJob job, std::function<void(const DynamicJob&)> then);

// Says that trace `serial` gets no symbols, though its code came with other sizes before.
void LogWithoutSymbols(int64_t serial, std::string_view why);

}  // namespace lazuli::guards
