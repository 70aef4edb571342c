// What earlier processes found out about the traces with one code: which numbers had programs of their own, and which became symbols.
//
// Kept in the disk cache by code, beside the kernels, so that a size that changed in an earlier run starts as a symbol, and a program
// that only needs kernels from the disk is made at once. Like every explanation of numbers it is a guess: all of them are checked on
// each use.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "codegen/ir/trace_log.h"
#include "guards/shape_policy.h"
#include "runtime/disk_cache.h"

namespace lazuli::guards {

// Thread-safe.
class ShapeProfile {
 public:
  // The profile of `log`'s code. `disk` null: an empty one that is not kept.
  ShapeProfile(runtime::DiskCache* disk, const codegen::TraceLog& log);

  // Whether a program for exactly `log` was compiled.
  bool HasStatic(const codegen::TraceLog& log);
  // The symbols of a program that serves `log`; nothing when none does.
  std::optional<DynamicShapes> FindDynamic(const codegen::TraceLog& log);

  // Whether there was either.
  bool Knows(const codegen::TraceLog& log) { return HasStatic(log) || FindDynamic(log).has_value(); }

  // Notes that such a program was compiled.
  void AddStatic(const codegen::TraceLog& log);
  void AddDynamic(const DynamicShapes& shapes);

 private:
  void Add(std::string line, size_t most, std::vector<std::string>* lines);

  runtime::DiskCache* const disk_;
  std::string key_;
  std::mutex mutex_;
  std::vector<std::string> static_;   // A hash of the numbers each.
  std::vector<std::string> dynamic_;  // A line each, the latest last.
};

}  // namespace lazuli::guards
