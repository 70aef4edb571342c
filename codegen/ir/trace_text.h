// Pieces of the text form of traces, shared with the text form of graphs. The grammar is in trace_text.cpp.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "codegen/ir/trace.h"

namespace lazuli::codegen {

// "f32", "i64", "bool"; LibTorch's own name for the rare ones. ScalarTypeByName fails (false) on an unknown name.
std::string ScalarTypeText(c10::ScalarType type);
bool ScalarTypeByName(const std::string& name, c10::ScalarType* type);

// "%0 f32[16,16](1,16)+o0 number", or "undef".
std::string TensorText(const TensorRef& ref);

// A constant: "3", "0.5", "[1,2]", "\"mean\"", "none", ... Dies on a kind that DecodeTrace never makes.
std::string ConstText(const c10::IValue& value);

// "aten::add.Tensor(%0 f32[4], %1 f32[4], alpha=1)", and " default f64" where that is the default dtype that it was called under.
std::string CallText(const TraceOp& op);

// Reads one line from left to right. Every method skips spaces first. After the first failure all of them fail, and status() says at
// which column, what was expected and what is there instead.
class TextReader {
 public:
  TextReader(std::string line, int line_number);

  bool failed() const { return !error_.empty(); }
  absl::Status status() const;
  // Sets the failure, "expected `what`" at the current position. Returns false.
  bool Fail(const std::string& what);
  // Sets the failure to a message of its own, at the current position. Returns false.
  bool Reject(const std::string& message);

  bool AtEnd();
  bool AtInt();
  bool AtTensor();
  bool ExpectEnd();
  // Consumes `token` when it is next. One made of letters must end where the word ends.
  bool Accept(const std::string& token);
  bool Expect(const std::string& token);
  bool ReadInt(int64_t* value);
  // Letters, digits and `_`; with `extra` these too.
  bool ReadWord(const std::string& what, const std::string& extra, std::string* word);

  bool ReadStorageId(StorageId* id);
  bool ReadTensor(TensorRef* ref);
  bool ReadConst(c10::IValue* value);
  bool ReadDevice(c10::Device* device);
  // The operator's name and its arguments in parentheses, checked against its schema.
  bool ReadCall(TraceOp* op);

 private:
  void SkipSpaces();
  bool ReadScalarType(c10::ScalarType* type);
  bool ReadIntsIn(const char* open, const char* close, c10::DimVector* values);
  bool ReadDouble(double* value);
  bool ReadNumber(c10::IValue* value);
  bool ReadString(std::string* text);
  bool ReadDoubleList(c10::IValue* value);
  bool ReadBoolList(c10::IValue* value);
  bool ReadArg(TraceArg* arg);
  bool ReadArgName(const OpInfo& info, size_t index);

  std::string line_;
  int line_number_;
  size_t at_ = 0;
  std::string error_;
};

}  // namespace lazuli::codegen
