// Precompiled for the tests that include torch/torch.h, which alone takes about 20 s to compile: those of modules and optimizers.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>
