#include "runtime/spec_symbols.h"

#include <algorithm>

namespace lazuli::runtime {
SpecSymbols::SpecSymbols(ProgramSpec* spec) : spec_(spec) {
  if (spec->symbols.empty()) return;
  for (MemorySpec& memory : spec->memories) Add(&memory.nbytes);
  for (StepSpec& step : spec->steps) AddStep(&step);
  for (OffsetSum& sum : spec->offset_sums) {
    for (int64_t& term : sum.terms) Add(&term);
  }
}

void SpecSymbols::Add(int64_t* place) {
  if (spec_->symbols.IsSymbolic(*place)) numbers_.push_back({place, spec_->symbols.Decode(*place)});
}

void SpecSymbols::AddWindow(WindowSpec* window) {
  for (int64_t& size : window->sizes) Add(&size);
  for (int64_t& stride : window->strides) Add(&stride);
}

void SpecSymbols::AddConstant(c10::IValue* value) {
  if (value->isInt()) {
    if (spec_->symbols.IsSymbolic(value->toInt())) constants_.push_back({value, spec_->symbols.Decode(value->toInt())});
  } else if (value->isIntList()) {
    *value = value->toIntList().copy();  // Others may hold the one it was.
    const std::vector<int64_t> numbers = value->toIntVector();
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (spec_->symbols.IsSymbolic(numbers[i])) items_.push_back({value, i, spec_->symbols.Decode(numbers[i])});
    }
  }
}

void SpecSymbols::AddStep(StepSpec* step) {
  if (auto* launch = std::get_if<KernelLaunch>(&step->work)) {
    for (int64_t& symbol : launch->symbols) Add(&symbol);
    for (KernelLaunch::Check& check : launch->checks) AddCall(&check.call);
    return;
  }
  AddCall(&std::get<AtenCall>(step->work));
}

void SpecSymbols::AddCall(AtenCall* call) {
  for (CallArg& arg : call->args) {
    AddConstant(&arg.value);
    for (WindowSpec& window : arg.windows) AddWindow(&window);
  }
  for (WindowSpec& window : call->results) AddWindow(&window);
}

bool SpecSymbols::Set(absl::Span<const int64_t> values) {
  if (spec_->symbols.empty() || absl::MakeConstSpan(values_) == values) return false;
  TORCH_INTERNAL_ASSERT(static_cast<int>(values.size()) == spec_->symbols.size(), "a value for each symbol");
  values_.assign(values.begin(), values.end());
  for (const Number& number : numbers_) *number.place = number.product.Evaluate(values.data());
  for (const Constant& constant : constants_) *constant.place = constant.product.Evaluate(values.data());
  for (const ListItem& item : items_) item.list->toIntList().set(item.index, item.product.Evaluate(values.data()));
  PlaceArena();
  return true;
}

void SpecSymbols::PlaceArena() {
  struct Slot {
    int64_t nbytes = 0, offset = 0;
    int32_t arena = 0;
  };
  std::vector<Slot> slots;
  for (const MemorySpec& memory : spec_->memories) {
    if (memory.arena_slot < 0) continue;
    const auto number = static_cast<size_t>(memory.arena_slot);
    if (number >= slots.size()) slots.resize(number + 1);
    slots[number].nbytes = std::max(slots[number].nbytes, ArenaBytes(memory.nbytes, memory.device));
    slots[number].arena = memory.arena;
  }
  for (ArenaSpec& arena : spec_->arenas) arena.nbytes = 0;
  for (Slot& slot : slots) {
    int64_t& used = spec_->arenas[static_cast<size_t>(slot.arena)].nbytes;
    slot.offset = used;
    used += slot.nbytes;
  }
  for (MemorySpec& memory : spec_->memories) {
    if (memory.arena_slot >= 0) memory.offset = slots[static_cast<size_t>(memory.arena_slot)].offset;
  }
}

}  // namespace lazuli::runtime
