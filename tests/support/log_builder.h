// Writes trace logs word by word, for tests of what reads them.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "codegen/ir/op_info.h"
#include "codegen/ir/trace_log.h"

namespace lazuli::testing {

// Begin(), one call an argument in schema order, End(); at last Finish(). Tensors are contiguous.
class LogBuilder {
 public:
  // A storage with memory before the trace; its first mention makes it known.
  int32_t Input() {
    unmentioned_.insert(log_.num_storages);
    return log_.num_storages++;
  }

  LogBuilder& Begin(const std::string& name) {
    const codegen::OpInfo* info = codegen::FindOpInfo(name);
    if (info == nullptr) throw std::invalid_argument(name);
    op_ = {};
    op_.code_begin = static_cast<uint32_t>(log_.code.size());
    op_.shapes_begin = static_cast<uint32_t>(log_.shapes.size());
    op_.op_id = info->id;
    log_.code.push_back(codegen::OpWord(info->id, runtime::kCpuCode, c10::kFloat));
    return *this;
  }

  // `offset`: a run-time one, at that place among them.
  LogBuilder& Tensor(int32_t storage, std::vector<int64_t> sizes, c10::ScalarType dtype = c10::kFloat,
                     std::optional<size_t> offset = std::nullopt) {
    codegen::TensorWord word{};
    word.dtype = dtype;
    word.ndim = static_cast<uint8_t>(sizes.size());
    word.storage = static_cast<uint32_t>(storage);
    word.first_use = unmentioned_.erase(storage) != 0;
    if (offset.has_value()) {
      word.slot_plus_one = static_cast<uint32_t>(*offset) + 1;
      if (log_.offsets.size() <= *offset) log_.offsets.resize(*offset + 1);
    }
    log_.code.push_back(word.Pack());
    for (const int64_t size : sizes) log_.shapes.push_back(static_cast<codegen::Word>(size));
    for (const int64_t stride : ContiguousStrides(sizes)) log_.shapes.push_back(static_cast<codegen::Word>(stride));
    return *this;
  }

  // A window of what the log makes, in whose memory it begins at `offset`, the run-time one at place `slot`.
  LogBuilder& Window(int32_t storage, std::vector<int64_t> sizes, size_t slot, int64_t offset) {
    const size_t place = log_.code.size();
    Tensor(storage, std::move(sizes), c10::kFloat, slot);
    auto word = codegen::TensorWord::Unpack(log_.code[place]);
    word.known_offset = true;
    log_.code[place] = word.Pack();
    log_.shapes.push_back(static_cast<codegen::Word>(offset));
    return *this;
  }

  // Followed by so many tensors.
  LogBuilder& List(size_t size) { return Words({codegen::MakeWord(codegen::Tag::kTensorList, size)}); }

  // A run-time number.
  LogBuilder& Slot(double value) {
    log_.code.push_back(codegen::MakeWord(codegen::Tag::kScalarSlot, static_cast<uint64_t>(c10::kDouble) | log_.scalars.size() << 8));
    log_.scalars.push_back(BitsOf(value));
    return *this;
  }
  LogBuilder& Double(double value) { return Words({static_cast<codegen::Word>(codegen::Tag::kDouble), BitsOf(value)}); }
  LogBuilder& Int(int64_t value) { return Words({static_cast<codegen::Word>(codegen::Tag::kInt), static_cast<codegen::Word>(value)}); }
  LogBuilder& Bool(bool value) { return Words({codegen::MakeWord(codegen::Tag::kBool, value ? 1 : 0)}); }
  LogBuilder& None() { return Words({static_cast<codegen::Word>(codegen::Tag::kNone)}); }
  LogBuilder& Ints(const std::vector<int64_t>& values) {
    Words({codegen::MakeWord(codegen::Tag::kIntList, values.size())});
    for (const int64_t value : values) log_.code.push_back(static_cast<codegen::Word>(value));
    return *this;
  }
  LogBuilder& String(const std::string& value) {
    Words({codegen::MakeWord(codegen::Tag::kString, value.size())});
    for (size_t i = 0; i < value.size(); i += sizeof(codegen::Word)) {
      codegen::Word bytes = 0;
      std::memcpy(&bytes, value.data() + i, std::min(sizeof(bytes), value.size() - i));
      log_.code.push_back(bytes);
    }
    return *this;
  }

  // Ends an op with one result; its storage.
  int32_t End(std::vector<int64_t> sizes, c10::ScalarType dtype = c10::kFloat) {
    codegen::OutputMeta meta;
    meta.dtype = dtype;
    meta.sizes.assign(sizes.begin(), sizes.end());
    const auto strides = ContiguousStrides(sizes);
    meta.strides.assign(strides.begin(), strides.end());
    meta.nbytes = static_cast<int64_t>(c10::elementSize(dtype));
    for (const int64_t size : sizes) meta.nbytes *= size;
    op_.first_result = log_.num_storages++;
    op_.outputs = std::make_shared<const codegen::OutputMetas>(codegen::OutputMetas{meta});
    log_.ops.push_back(op_);
    return op_.first_result;
  }

  // Ends an op that writes its first operand.
  void EndInPlace() {
    op_.first_result = log_.num_storages;
    log_.ops.push_back(op_);
  }

  // The complete log, with those created storages visible at the end.
  codegen::TraceLog Finish(const std::vector<int32_t>& visible) {
    log_.code.push_back(codegen::MakeWord(codegen::Tag::kLiveOut, static_cast<uint64_t>(log_.num_storages)));
    std::vector<codegen::Word> bits(static_cast<size_t>(log_.num_storages + 63) / 64);
    for (const int32_t storage : visible) bits[storage / 64] |= codegen::Word{1} << storage % 64;
    log_.code.insert(log_.code.end(), bits.begin(), bits.end());
    return std::move(log_);
  }

 private:
  static std::vector<int64_t> ContiguousStrides(const std::vector<int64_t>& sizes) {
    std::vector<int64_t> strides(sizes.size(), 1);
    for (size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * sizes[d];
    return strides;
  }
  static codegen::Word BitsOf(double value) {
    codegen::Word bits;
    std::memcpy(&bits, &value, sizeof(bits));
    return bits;
  }
  LogBuilder& Words(std::initializer_list<codegen::Word> words) {
    log_.code.insert(log_.code.end(), words);
    return *this;
  }

  codegen::TraceLog log_;
  codegen::TraceLog::Op op_;
  std::set<int32_t> unmentioned_;
};

}  // namespace lazuli::testing
