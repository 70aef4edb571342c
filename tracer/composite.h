// Composite operators, recorded as their pieces where they cannot be recorded as a whole.
//
// A composite kernel is code over other operators. When its shapes are not known, running that code above the recorder records the pieces,
// and no size is ever observed. Whether a kernel's pieces can be recorded is only seen by trying: an operator whose pieces threw (some
// reach for memory past the dispatcher), ran eagerly or cut the trace is observed as a whole from then on. Only operators without side
// effects are tried, so that nothing is left of a failure.
#pragma once

#include <ATen/core/stack.h>

#include "codegen/ir/op_info.h"

namespace lazuli::tracer {

// Whether `info` is composite and writes nothing, and nothing here knows it as a whole: no shape function, and no row of op.def that
// makes it a loop over elements.
bool IsComposite(const codegen::OpInfo& info);

// Whether pieces of `info`, a composite operator, were recorded before; and whether they may be tried.
bool RecordsPieces(const codegen::OpInfo& info);
bool MayRecordPieces(const codegen::OpInfo& info);

// Runs the composite kernel above the recorder, with the arguments on `stack`, and remembers whether all pieces were recorded. False, with
// the arguments still there, when it threw; what a cut in between threw goes on.
bool RecordPieces(const codegen::OpInfo& info, c10::DispatchKeySet keys_below, torch::jit::Stack* stack);

// This thread cut a trace, or ran an operator eagerly.
void NoteEagerWork();

}  // namespace lazuli::tracer
