#include "tests/support/eager_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>

#include "codegen/ir/op_info.h"

namespace lazuli::testing {

using codegen::StorageId;
using codegen::TensorRef;
using codegen::TraceArg;
using codegen::TraceOp;

at::Tensor EagerTrace::Input(at::Tensor tensor) {
  const auto id = static_cast<StorageId>(storages_.size());
  storages_.push_back(tensor.storage());
  codegen::TraceStorage storage;
  storage.is_input = true;
  trace_.storages.push_back(storage);
  const int64_t nbytes = static_cast<int64_t>(tensor.storage().nbytes());
  at::Tensor bytes = at::empty({nbytes}, at::kByte);
  if (nbytes > 0) std::memcpy(bytes.data_ptr(), tensor.storage().data(), nbytes);
  initial_.push_back(bytes);
  watched_.push_back(tensor);
  watched_storage_.push_back(id);
  return tensor;
}

StorageId EagerTrace::StorageOf(const at::Tensor& tensor) {
  for (size_t i = storages_.size(); i-- > 0;) {
    if (storages_[i].unsafeGetStorageImpl() == tensor.storage().unsafeGetStorageImpl()) return static_cast<StorageId>(i);
  }
  ADD_FAILURE() << "a tensor that is neither an input nor made by an op of the trace";
  return codegen::kNoStorage;
}

TensorRef EagerTrace::Ref(const at::Tensor& tensor) {
  TensorRef ref;
  if (!tensor.defined()) return ref;
  ref.storage = StorageOf(tensor);
  ref.dtype = tensor.scalar_type();
  ref.sizes = c10::DimVector(tensor.sizes());
  ref.strides = c10::DimVector(tensor.strides());
  ref.wrapped_number = tensor.unsafeGetTensorImpl()->is_wrapped_number();
  const int64_t offset = tensor.storage_offset();
  if (offset == 0) return ref;
  for (size_t i = 0; i < offset_keys_.size(); ++i) {
    if (offset_keys_[i] == std::make_pair(ref.storage, offset)) ref.offset_slot = static_cast<int32_t>(i);
  }
  if (ref.offset_slot < 0) {
    ref.offset_slot = trace_.num_offsets++;
    offset_keys_.emplace_back(ref.storage, offset);
    offsets_.push_back(offset);
  }
  if (!trace_.storages[ref.storage].is_input) ref.offset = offset;
  return ref;
}

TraceArg EagerTrace::Arg(const c10::IValue& value, const c10::Type& type, bool static_scalars) {
  TraceArg arg;
  if (value.isTensor()) {
    arg.kind = TraceArg::Kind::kTensor;
    arg.tensors.push_back(Ref(value.toTensor()));
  } else if (value.isTensorList()) {
    arg.kind = TraceArg::Kind::kTensorList;
    for (const at::Tensor& tensor : value.toTensorVector()) arg.tensors.push_back(Ref(tensor));
  } else if (value.isList() && !value.toList().empty() && (value.toList().get(0).isTensor() || value.toList().get(0).isNone())) {
    arg.kind = TraceArg::Kind::kTensorList;
    for (const c10::IValue& item : value.toListRef()) arg.tensors.push_back(item.isNone() ? TensorRef() : Ref(item.toTensor()));
  } else {
    const c10::Type* inner = &type;
    if (inner->kind() == c10::TypeKind::OptionalType) inner = inner->containedTypes()[0].get();
    const bool number = inner->kind() == c10::TypeKind::NumberType || inner->kind() == c10::TypeKind::FloatType;
    if (inner->kind() == c10::TypeKind::TensorType && value.isNone()) {
      arg.kind = TraceArg::Kind::kTensor;
      arg.tensors.emplace_back();
    } else if ((number || inner->kind() == c10::TypeKind::TensorType) && value.isScalar() && !static_scalars) {
      arg.kind = TraceArg::Kind::kScalar;
      arg.slot = trace_.num_scalars++;
      uint64_t bits;
      if (value.isDouble()) {
        arg.scalar_type = c10::ScalarType::Double;
        const double number_value = value.toDouble();
        std::memcpy(&bits, &number_value, sizeof(bits));
      } else {
        arg.scalar_type = value.isBool() ? c10::ScalarType::Bool : c10::ScalarType::Long;
        bits = value.isBool() ? value.toBool() : static_cast<uint64_t>(value.toInt());
      }
      scalars_.push_back(bits);
    } else {
      arg.value = value;
    }
  }
  return arg;
}

std::vector<at::Tensor> EagerTrace::Op(const std::string& name, std::vector<c10::IValue> args) {
  const codegen::OpInfo* info = codegen::FindOpInfo(name);
  TORCH_CHECK(info != nullptr, "no operator ", name);
  const auto& schema = info->schema().arguments();
  TraceOp op;
  op.info = info;
  torch::jit::Stack stack;
  for (size_t i = 0; i < schema.size(); ++i) {
    if (i >= args.size()) args.push_back(schema[i].default_value().value_or(c10::IValue()));
    op.args.push_back(Arg(args[i], *schema[i].type(), info->static_scalars));
    const c10::TypeKind kind = schema[i].type()->kind();
    if (kind == c10::TypeKind::TensorType && args[i].isScalar()) {
      at::Tensor number = at::scalar_tensor(args[i].toScalar(), at::dtype(args[i].toScalar().type()));
      number.unsafeGetTensorImpl()->set_wrapped_number(true);
      stack.emplace_back(number);
    } else {
      stack.push_back(args[i]);
    }
  }
  info->handle.callBoxed(&stack);
  std::vector<at::Tensor> results;
  for (const c10::IValue& value : stack) results.push_back(value.toTensor());
  if (!info->returns_mutated_self) {
    for (const at::Tensor& result : results) {
      if (!result.defined()) {
        op.results.emplace_back();
        continue;
      }
      codegen::TraceStorage storage;
      storage.nbytes = static_cast<int64_t>(result.storage().nbytes());
      storages_.push_back(result.storage());
      initial_.emplace_back();
      trace_.storages.push_back(storage);
      op.results.push_back(Ref(result));
    }
  }
  for (size_t i = 0; i < op.args.size(); ++i) {
    if ((info->mutated_args >> i & 1) == 0) continue;
    for (const TensorRef& ref : op.args[i].tensors) {
      if (ref.defined()) trace_.storages[ref.storage].mutated = trace_.storages[ref.storage].is_input;
    }
  }
  op.index = static_cast<int32_t>(trace_.ops.size());
  trace_.ops.push_back(std::move(op));
  return results;
}

void EagerTrace::Keep(const at::Tensor& tensor) {
  const StorageId id = StorageOf(tensor);
  trace_.storages[id].live_out = true;
  watched_.push_back(tensor);
  watched_storage_.push_back(id);
}

void EagerTrace::Overwrite(const at::Tensor& input, const at::Tensor& content) {
  at::Tensor& bytes = initial_[StorageOf(input)];
  bytes = content.contiguous().view({-1}).view(at::kByte).clone();
}

struct EagerTrace::Memory {
  std::vector<c10::Storage> storages;
  std::vector<c10::StorageImpl*> pointers;
  std::vector<at::DataPtr> outputs;
  runtime::RunArgs args;
};

void EagerTrace::Prepare(Memory* memory) const {
  memory->storages.resize(storages_.size());
  memory->pointers.resize(storages_.size(), nullptr);
  memory->outputs.resize(storages_.size());
  for (size_t i = 0; i < storages_.size(); ++i) {
    if (!trace_.storages[i].is_input) continue;
    memory->storages[i] = initial_[i].clone().storage();
    memory->pointers[i] = memory->storages[i].unsafeGetStorageImpl();
  }
  memory->args.storages = memory->pointers;
  memory->args.scalars = scalars_;
  memory->args.offsets = offsets_;
  memory->args.outputs = absl::MakeSpan(memory->outputs);
}

bool EagerTrace::Frees(runtime::Program& program, const at::Tensor& input) {
  Memory memory;
  Prepare(&memory);
  const StorageId id = StorageOf(input);
  std::vector<uint8_t> unshared(storages_.size(), 0);
  unshared[id] = 1;
  memory.args.unshared = unshared;
  const auto result = program.Run(memory.args);
  EXPECT_EQ(result.error, nullptr);
  for (size_t i = 0; i < storages_.size(); ++i) {
    const bool has_memory = memory.pointers[i] == nullptr || memory.pointers[i]->_mutable_data_ptr_no_checks().get() != nullptr;
    EXPECT_TRUE(has_memory || static_cast<StorageId>(i) == id) << "storage " << i;
  }
  return memory.pointers[id]->_mutable_data_ptr_no_checks().get() == nullptr;
}

double EagerTrace::Time(runtime::Program& program, int runs) const {
  Memory memory;
  Prepare(&memory);
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < runs; ++i) {
    for (at::DataPtr& output : memory.outputs) output.clear();
    const auto begin = std::chrono::steady_clock::now();
    const auto result = program.Run(memory.args);
    best = std::min(best, std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
    EXPECT_EQ(result.error, nullptr);
  }
  return best;
}

EagerTrace::Outcome EagerTrace::Run(runtime::Program& program) const {
  Memory prepared;
  Prepare(&prepared);
  std::vector<c10::Storage>& memory = prepared.storages;
  std::vector<at::DataPtr>& outputs = prepared.outputs;
  Outcome outcome;
  outcome.result = program.Run(prepared.args);
  for (size_t i = 0; i < watched_.size(); ++i) {
    const StorageId id = watched_storage_[i];
    const at::Tensor& eager = watched_[i];
    outcome.eager.push_back(eager);
    at::Tensor actual;
    if (!trace_.storages[id].is_input && outputs[id].get() != nullptr) {
      memory[id] = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), storages_[id].nbytes(),
                                                         std::move(outputs[id]), nullptr, false);
    }
    if (memory[id]) actual = at::empty({0}, eager.options()).set_(memory[id], eager.storage_offset(), eager.sizes(), eager.strides());
    outcome.actual.push_back(actual);
  }
  return outcome;
}

void EagerTrace::ExpectMatches(runtime::Program& program, double rtol, double atol) const {
  for (int run = 0; run < 2; ++run) {
    Outcome outcome = Run(program);
    if (outcome.result.error != nullptr) {
      try {
        std::rethrow_exception(outcome.result.error);
      } catch (const std::exception& error) {
        ADD_FAILURE() << outcome.result.failed_op << ": " << error.what();
      }
      return;
    }
    for (size_t i = 0; i < outcome.eager.size(); ++i) {
      ASSERT_TRUE(outcome.actual[i].defined()) << "watched tensor " << i << " was left without memory";
      const bool close = at::allclose(outcome.actual[i], outcome.eager[i], rtol, atol, /*equal_nan=*/true);
      EXPECT_TRUE(close) << "watched tensor " << i << ", run " << run << "\nactual:\n"
                         << outcome.actual[i].flatten().slice(0, 0, 16) << "\neager:\n"
                         << outcome.eager[i].flatten().slice(0, 0, 16);
    }
  }
}

}  // namespace lazuli::testing
