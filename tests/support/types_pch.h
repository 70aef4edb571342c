// Precompiled for all other tests that write LibTorch programs. What torch/torch.h adds costs every file seconds, precompiled or not: GCC
// instantiates the templates that it uses again for each.
#pragma once

#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/types.h>
#include <torch/utils.h>
