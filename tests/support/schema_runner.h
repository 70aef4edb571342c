// Runs the calls of operators eagerly and in a mode, and counts.
#pragma once

#include <map>
#include <set>
#include <string>

#include "tests/support/schema_case.h"

namespace lazuli::testing {

// What the suites of one backend have seen.
struct SchemaTotals {
  int overloads = 0, accepted_overloads = 0;  // Called; with a call that eager accepts.
  int calls = 0, succeeded = 0, eager_errors = 0, late_errors = 0, gradients = 0, unstable = 0, mismatches = 0;
  int64_t ops_recorded = 0, programs_compiled = 0, cache_hits = 0, predicted_hits = 0;
  double seconds = 0;
  std::map<std::string, std::string> untested;        // Operator to reason.
  std::set<std::string> unsure;                       // Operators of which eager execution differs from itself.
  std::map<std::string, std::string> never_accepted;  // Operator to the first error.
  std::set<std::string> late;                         // Operators with an error after the call, and the error.
  std::set<int> shards;                               // That have run.

  // Operators that plain CPU tensors can meet and that are not called.
  int NumUntested() const;
};

// Those of `backend`.
SchemaTotals& TotalsOf(const std::string& backend);

// All calls of the operators of one shard out of `num_shards`. Differences are failures of the test.
void RunShard(const std::string& backend, int shard, int num_shards);

// Writes the totals, and the operators that are not covered.
void PrintTotals(const std::string& backend);

// True when LAZULI_SCHEMA_FILTER or LAZULI_SCHEMA_SKIP leaves operators out.
bool IsFiltered();

}  // namespace lazuli::testing
