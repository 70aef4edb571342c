#include "tracer/composite.h"

#include <cstring>

#include "codegen/lower.h"
#include "tracer/recorder.h"
#include "tracer/shape_functions.h"

namespace lazuli::tracer {
namespace {

thread_local int64_t eager_work = 0;

// Kept with the shapes, so that both are forgotten together: 0, whether pieces are recorded (null: they are not); 1 and up, failures.
constexpr codegen::Word kFailures = 2;  // The first may only have learnt which dtypes the pieces' kernels take.

std::vector<codegen::Word> PiecesKey(const codegen::OpInfo& info, codegen::Word number) {
  return {codegen::MakeWord(codegen::Tag::kLiveOut, static_cast<uint64_t>(info.id)), number};
}

// What LibTorch throws where a kernel reaches for memory that a pending storage does not have.
bool IsAccessToPendingMemory(const std::exception& error) {
  return std::strstr(error.what(), "Cannot access data pointer of Storage that is invalid") != nullptr;
}

void NoteFailure(const codegen::OpInfo& info) {
  for (codegen::Word failure = 1; failure < kFailures; ++failure) {
    if (CannotBeObserved(PiecesKey(info, failure))) continue;
    RememberShapes(PiecesKey(info, failure), nullptr);
    return;
  }
  RememberShapes(PiecesKey(info, 0), nullptr);
}

}  // namespace

bool IsComposite(const codegen::OpInfo& info) {
  const c10::OperatorHandle& op = info.handle;
  const bool composite = op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) ||
                         op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional);
  return composite && info.recordable && info.mutated_args == 0 && !info.is_factory && !op.hasKernelForDispatchKey(c10::DispatchKey::CPU) &&
         FindShapeFunction(info.name) == nullptr && !codegen::IsLoopOverElements(info.name);
}

bool RecordsPieces(const codegen::OpInfo& info) { return RecallShapes(PiecesKey(info, 0)) != nullptr; }

bool MayRecordPieces(const codegen::OpInfo& info) { return IsComposite(info) && !CannotBeObserved(PiecesKey(info, 0)); }

bool RecordPieces(const codegen::OpInfo& info, c10::DispatchKeySet keys_below, torch::jit::Stack* stack) {
  static const auto* recorded = new codegen::OutputMetasPtr(std::make_shared<const codegen::OutputMetas>());
  const int64_t before = eager_work;
  torch::jit::Stack pieces(stack->end() - info.num_args, stack->end());
  try {
    info.handle.redispatchBoxed(keys_below, &pieces);
  } catch (const std::exception& error) {
    // A cut also throws what failed before.
    if (eager_work != before && !IsAccessToPendingMemory(error)) throw;
    RememberShapes(PiecesKey(info, 0), nullptr);
    return false;
  }
  torch::jit::drop(*stack, info.num_args);
  stack->insert(stack->end(), pieces.begin(), pieces.end());
  if (eager_work != before) {
    NoteFailure(info);
  } else if (!RecordsPieces(info)) {
    RememberShapes(PiecesKey(info, 0), *recorded);
  }
  return true;
}

void NoteEagerWork() { ++eager_work; }

}  // namespace lazuli::tracer
