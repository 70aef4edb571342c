// Keeps the numbers of a program's spec at what its symbols stand for.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "runtime/executor.h"

namespace lazuli::runtime {

class SpecSymbols {
 public:
  // Finds the numbers in `spec` that hold symbols. It must stay where it is.
  explicit SpecSymbols(ProgramSpec* spec);

  // Writes into the spec what its numbers are for these values of its symbols, and where its arena's memories lie then. False when
  // nothing changed since the last time.
  bool Set(absl::Span<const int64_t> values);

 private:
  struct Number {
    int64_t* place;
    Product product;
  };
  struct ListItem {
    c10::IValue* list;
    size_t index;
    Product product;
  };
  struct Constant {
    c10::IValue* place;
    Product product;
  };

  void Add(int64_t* place);
  void AddWindow(WindowSpec* window);
  void AddConstant(c10::IValue* value);
  void AddStep(StepSpec* step);
  void AddCall(AtenCall* call);
  void PlaceArena();

  ProgramSpec* spec_;
  std::vector<Number> numbers_;
  std::vector<Constant> constants_;
  std::vector<ListItem> items_;
  std::vector<int64_t> values_;
};

}  // namespace lazuli::runtime
