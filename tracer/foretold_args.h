// Arguments of a run that is still being recorded: those that are recorded, and those that are foretold.
#pragma once

#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "guards/steady_args.h"
#include "runtime/program.h"

namespace lazuli::tracer {

// What is recorded of a trace: of storages, null for those that are no inputs.
struct RecordedArgs {
  std::vector<c10::StorageImpl*> storages;
  absl::Span<const uint64_t> scalars;
  absl::Span<const int64_t> offsets;
  absl::Span<const int64_t> symbols;  // Values of all the program's symbols.
  size_t num_ops = 0;
};

class ForetoldArgs {
 public:
  // Foretells what is steady, and is not recorded yet, of a trace with so many storages and numbers.
  void Foretell(const guards::SteadyArgs& steady, const RecordedArgs& recorded, size_t num_storages, size_t num_scalars);
  // Foretells nothing. What it kept alive goes to `garbage`.
  void Clear(std::vector<c10::intrusive_ptr<c10::StorageImpl>>* garbage);

  // Whether what is recorded is what was foretold.
  bool Agrees(const RecordedArgs& recorded) const;
  bool Has(const c10::StorageImpl* storage) const;
  // All that is known; valid until the next call.
  runtime::PartialArgs With(const RecordedArgs& recorded);

 private:
  // By number and slot; null, or 0 in `known_`, where nothing is foretold.
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> storages_;
  std::vector<uint64_t> scalars_;
  std::vector<int64_t> offsets_;
  std::vector<uint8_t> known_scalars_, known_offsets_;

  // What With returned.
  struct {
    std::vector<c10::StorageImpl*> storages;
    std::vector<uint64_t> scalars;
    std::vector<int64_t> offsets;
    std::vector<uint8_t> known_scalars, known_offsets;
  } all_;
};

}  // namespace lazuli::tracer
