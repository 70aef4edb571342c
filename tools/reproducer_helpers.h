// What random programs and reproducers are made of besides LibTorch's own operators. Reproducers carry this text with them.
#pragma once

#include <torch/torch.h>

#include <cstdio>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "lazuli/lazuli.h"

namespace lazuli::testing {

// Multiples of 1/8 between -3 and 3. Inputs are what a program finds: an eager tensor, made before anything is recorded, where
// factories make theirs.
inline torch::Tensor FuzzInput(const std::vector<int64_t>& sizes, torch::ScalarType dtype, uint64_t seed) {
  const lazuli::EagerScope eager;
  const torch::NoGradGuard no_grad;
  std::mt19937_64 random(seed);
  torch::Tensor values = torch::empty(sizes, torch::TensorOptions(torch::kDouble).device(torch::kCPU));
  for (int64_t i = 0; i < values.numel(); ++i)
    values.data_ptr<double>()[i] = static_cast<double>(-24 + static_cast<int64_t>(random() % 49)) / 8;
  return values.to(torch::empty({0}).device(), dtype);
}

// Keeps products from growing beyond what every dtype holds exactly.
inline torch::Tensor FuzzBounded(const torch::Tensor& x) { return x.is_floating_point() ? x.clamp(-64, 64) : x.remainder(64); }

inline torch::Tensor FuzzGradient(const torch::Tensor& y, const torch::Tensor& x) {
  const torch::Tensor gradient = torch::autograd::grad({(y * 0.5).sum()}, {x}, {}, true, false, true)[0];
  if (!gradient.defined()) throw std::invalid_argument("no gradient");
  return gradient;
}

// A sync in the middle of the program, whose value goes on.
inline torch::Tensor FuzzReadMaximum(const torch::Tensor& x) {
  return x.detach() * 0 + (x.detach().to(torch::kDouble).amax().item<double>() + 0.0);
}

inline torch::Tensor FuzzReadMemory(const torch::Tensor& x) {
  if (x.numel() == 0 || !x.is_contiguous()) throw std::invalid_argument("nothing to read");
  (void)x.data_ptr();
  return x.detach().slice(0, 0, 1);
}

inline torch::Tensor FuzzExpand(const torch::Tensor& x, int64_t size) {
  std::vector<int64_t> sizes(static_cast<size_t>(x.dim()) + 1, -1);
  sizes[0] = size;
  return x.unsqueeze(0).expand(sizes);
}

// The operator's results, called as the dispatcher's users do.
inline std::vector<torch::Tensor> FuzzCall(const std::string& name, std::vector<c10::IValue> args) {
  const size_t dot = name.find('.');
  const std::string overload = dot == std::string::npos ? "" : name.substr(dot + 1);
  c10::Dispatcher::singleton().findSchemaOrThrow(name.substr(0, dot).c_str(), overload.c_str()).callBoxed(&args);
  std::vector<torch::Tensor> results;
  for (const c10::IValue& value : args) results.push_back(value.isTensor() ? value.toTensor() : torch::Tensor());
  return results;
}

// A window of `x`'s memory, `offset` elements in. A `number` takes part in type promotion as a C++ number.
inline torch::Tensor FuzzWindow(const torch::Tensor& x, torch::ScalarType dtype, const std::vector<int64_t>& sizes,
                                const std::vector<int64_t>& strides, int64_t offset, bool number = false) {
  const torch::Tensor base = x.dtype() == dtype ? x : x.as_strided({x.numel()}, {1}).view(dtype);
  const torch::Tensor window = base.as_strided(sizes, strides, offset);
  if (number) window.unsafeGetTensorImpl()->set_wrapped_number(true);
  return window;
}

// A C++ number where an operator takes a tensor.
inline torch::Tensor FuzzNumber(const torch::Scalar& value) {
  torch::Tensor number = torch::scalar_tensor(value, value.isFloatingPoint() ? torch::kDouble
                                                     : value.isBoolean()     ? torch::kBool
                                                                             : torch::kLong);
  number.unsafeGetTensorImpl()->set_wrapped_number(true);
  return number;
}

// Undefined tensors are absent ones.
inline c10::List<std::optional<torch::Tensor>> FuzzOptionals(const std::vector<torch::Tensor>& tensors) {
  c10::List<std::optional<torch::Tensor>> list;
  for (const torch::Tensor& tensor : tensors) list.push_back(tensor.defined() ? std::optional<torch::Tensor>(tensor) : std::nullopt);
  return list;
}

// Runs `program` for two rounds, eagerly and on `backend`, and prints each tensor that is not bitwise equal. Returns how many.
inline int CompareWithEager(std::vector<torch::Tensor> (*program)(int round), const std::string& backend) {
  int differences = 0;
  for (int round = 0; round < 2; ++round) {
    const std::vector<torch::Tensor> eager = program(round);
    const lazuli::DeviceMode mode(lazuli::Options().backend(backend));
    const std::vector<torch::Tensor> lazy = program(round);
    lazuli::sync();
    const lazuli::EagerScope scope;
    for (size_t i = 0; i < eager.size(); ++i) {
      if (!eager[i].defined() || (eager[i].sizes() == lazy[i].sizes() && eager[i].strides() == lazy[i].strides() &&
                                  eager[i].dtype() == lazy[i].dtype() && eager[i].equal(lazy[i]))) {
        continue;
      }
      ++differences;
      std::printf("round %d, tensor %zu of the result\n", round, i);
      std::cout << "eager\n" << eager[i] << "\nlazy\n" << lazy[i] << "\n";
    }
  }
  return differences;
}

}  // namespace lazuli::testing
