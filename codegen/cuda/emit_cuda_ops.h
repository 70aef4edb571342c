// CUDA C++ expressions of single instructions.
#pragma once

#include <string>

#include "codegen/kernel_ir.h"

namespace lazuli::codegen {

// How values of `type` are held in registers, and how in memory: BFloat16 and Half as their bits, Bool in memory as a byte.
const char* CudaType(c10::ScalarType type);
const char* CudaMemoryType(c10::ScalarType type);

// The value of `inst`, which is neither a leaf nor touches memory, of the expressions `a`, `b`, `c`, whose type is `in_type` (a select's
// condition aside).
std::string CudaOp(const KInst& inst, c10::ScalarType in_type, const std::string& a, const std::string& b, const std::string& c);
// The same of Floats, for one of `rough` (rough_functions.h).
std::string CudaRoughOp(KOp op, const std::string& a, const std::string& b);
std::string CudaCast(c10::ScalarType from, c10::ScalarType to, const std::string& a);
// The bits of a Const.
std::string CudaConstant(c10::ScalarType type, int64_t bits);
// The function object that combines two partial results of a reduction, and what none of them make.
std::string CudaCombiner(KOp reduce);
std::string CudaIdentity(KOp reduce, c10::ScalarType type);
// A value in registers as it is written to memory, and back.
std::string CudaToMemory(c10::ScalarType type, const std::string& a);
std::string CudaFromMemory(c10::ScalarType type, const std::string& a);

}  // namespace lazuli::codegen
