// LAZULI_DUMP: stages of compilation as text files in LAZULI_DUMP_DIR.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lazuli::runtime {

// Whether `stage` ("fuse") is asked for. One relaxed load when nothing is dumped at all.
bool DumpEnabled(std::string_view stage);

// Writes `text` to DIR/<serial>.<stage>.txt when the stage is asked for, making the folder first; a second text of the same serial and
// stage goes to <serial>.<stage>.1.txt. Returns the path, or "" when nothing was written. A folder or file that cannot be written is
// reported in the log once and costs only the dump. Thread-safe.
std::string WriteDump(std::string_view stage, int64_t serial, std::string_view text);

// The same whatever was asked for, to DIR/<serial>.<name>: what a user needs to report an error.
std::string WriteDumpFile(std::string_view name, int64_t serial, std::string_view text);

// Asks for the stages of a comma-separated, already validated list, in `dir`. "all" asks for every stage.
void ConfigureDump(std::string_view stages, const std::string& dir);

}  // namespace lazuli::runtime
