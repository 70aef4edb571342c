// Sums of exponentials made in one pass with the largest number that they are taken below (softmax's, log-softmax's): whenever a larger one
// comes, what a thread has added up is scaled (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018).
#pragma once

#include <vector>

#include "codegen/cuda/cuda_plan.h"

namespace lazuli::codegen {

// The maximum below which instruction `exp` is the exponential of a number: exp(number - max(number)). -1: it is something else.
int MaximumAbove(const std::vector<KInst>& insts, int exp);

// Sets CudaPlan::online, and the pass of the sums, in rows that are not unrolled and where that spares a pass. Before it is found what
// passes need.
void ChooseOnlineSums(CudaPlan* plan);

// What kernels with such sums call.
extern const char* const kOnlineSumsText;

}  // namespace lazuli::codegen
