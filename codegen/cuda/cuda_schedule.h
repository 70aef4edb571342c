// What may be chosen of a GPU's kernel beside what the rules of its plan choose.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lazuli::codegen {

// Of each, 0 is what the rules say. What only moves threads and registers changes no bit of a result; where sums are made, threads, lanes
// and splits change the order of their terms.
struct CudaSchedule {
  int threads = 0;    // Of a block, or of a row: half as many (-1), twice as many (1).
  int lanes = 0;      // Points that a thread takes at a time: half as many (-1).
  int keep = 0;       // Nothing is kept from pass to pass (-1).
  int unroll = 0;     // Turns whose loads come ahead: half as many (-1), twice as many (1).
  int occupancy = 0;  // Registers are few enough for so many times 512 threads on a multiprocessor: 2 to 4.
  int splits = 0;     // Parts of what is reduced: half as many (-1), twice as many (1).

  static constexpr int kOccupancyThreads = 512;
  // `number` halved or doubled, by a field's value.
  static int Shift(int number, int by) { return by < 0 ? number / 2 : by > 0 ? number * 2 : number; }

  friend bool operator==(const CudaSchedule& a, const CudaSchedule& b) {
    return a.threads == b.threads && a.lanes == b.lanes && a.keep == b.keep && a.unroll == b.unroll && a.occupancy == b.occupancy &&
           a.splits == b.splits;
  }
};

// The schedules that differ from `from` by one choice alone, choice by choice. `reorder`: with choices that change the order of sums.
std::vector<CudaSchedule> CudaVariations(const CudaSchedule& from, int choice, bool reorder);
int NumCudaChoices();

// "default", or what differs from it: "threads=1 keep=-1".
std::string PrintCudaSchedule(const CudaSchedule& schedule);
absl::StatusOr<CudaSchedule> ParseCudaSchedule(const std::string& text);

}  // namespace lazuli::codegen
