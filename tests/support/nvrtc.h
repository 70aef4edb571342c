// For tests that compile CUDA code, which takes no GPU.
#pragma once

#include <gtest/gtest.h>

#include "codegen/cuda/nvrtc_compiler.h"

// Without NVRTC nothing is compiled; the test says so.
#define LAZULI_SKIP_WITHOUT_NVRTC() \
  if (const auto version = ::lazuli::codegen::NvrtcVersion(); !version.ok()) GTEST_SKIP() << version.status()
