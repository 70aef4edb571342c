// Precompiled for every test that writes LibTorch programs; torch/torch.h alone takes about 20 s to compile.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>
