// Functions of which a GPU need not compute all the bits of a Float.
//
// CUDA's exp and tanh are right to 2 ulp, for which they take 8 and 15 instructions where the hardware's exponential takes 2 and a tanh
// that is made of it 11. Where all that is made of a result is rounded to BFloat16 or Half, or where it is a term of a sum of exponentials
// (softmax's, log-softmax's), the last bits of a Float are lost anyway: a relative error of 2^-19 moves one half in several hundred to its
// neighbour. A quotient that is made of such a function is computed by a reciprocal there, too; others are as in eager mode, bit for bit.
#pragma once

#include "codegen/cuda/cuda_plan.h"

namespace lazuli::codegen {

// Sets `rough` of the plan's instructions. Not for precision strict.
void ChooseRoughFunctions(CudaPlan* plan);

}  // namespace lazuli::codegen
