// What a target makes of a KernelIR.
#pragma once

#include <memory>
#include <string>

#include "codegen/kernel_compiler.h"

namespace lazuli::codegen {

// A kernel with what other processes need to run it.
struct MadeKernel {
  std::shared_ptr<const CompiledKernel> kernel;
  std::string key;     // Of the object.
  std::string object;  // Empty for a kernel without work.
};

}  // namespace lazuli::codegen
