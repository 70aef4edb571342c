// Operators that Python defines (torch.ops.higher_order: torch.cond, torch.func over an autograd.Function, flex_attention) say for each
// dispatch key what is done at it, and fail at the mode's, which they do not know.
#pragma once

namespace lazuli::tracer {

// Tells them to go past the mode's keys, where this process runs Python and has imported torch. Safe to call again, and without Python.
void LetPythonOperatorsPass();

}  // namespace lazuli::tracer
