// The device that a suite's tensors are on: the CPU, or what LAZULI_TEST_DEVICE says ("cuda").
//
// With it, factories that are called without a device (torch::randn, a module's parameters) make their tensors there, so that a suite
// written for the CPU runs on a GPU as it is. What brings its own memory (torch::tensor of a list, from_blob) stays on the CPU: see
// OnTestDevice.
#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <string>
#include <thread>
#include <utility>

namespace lazuli::testing {

// Where factories of this thread put tensors.
torch::Device TestDevice();
inline bool OnGpu() { return TestDevice().is_cuda(); }
inline torch::Tensor OnTestDevice(const torch::Tensor& tensor) { return tensor.to(TestDevice()); }

// Makes `name` the device of this thread's factories, and of TestThreads. "", or why there is no such device here.
std::string UseTestDevice(const std::string& name);

// This thread's factories are on the CPU while one lives.
class CpuFactories {
 private:
  c10::impl::ExcludeDispatchKeyGuard guard_{c10::DispatchKey::PreDispatch};
};

// A std::thread whose factories are on the device of the thread that made it.
template <class Run, class... Args>
std::thread TestThread(Run run, Args... args) {
  const bool included = c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::PreDispatch);
  return std::thread(
      [included](auto body, auto... values) {
        c10::impl::tls_set_dispatch_key_included(c10::DispatchKey::PreDispatch, included);
        body(std::move(values)...);
      },
      std::move(run), std::move(args)...);
}

}  // namespace lazuli::testing

// Skips the test, or with GTEST_SKIP's rules the fixture, on a GPU.
#define LAZULI_CPU_ONLY(reason) \
  if (::lazuli::testing::OnGpu()) GTEST_SKIP() << "on the CPU only: " << (reason)
