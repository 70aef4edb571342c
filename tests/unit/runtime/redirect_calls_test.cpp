#include "runtime/redirect_calls.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace lazuli::runtime {
namespace {

TEST(RedirectCallsTest, WhatIsTheProgramsOwn) {
  for (const char* path :
       {"", "/usr/lib/libexample.so.1", "libtorch_python.so", "/site-packages/torch/lib/libtorch_python.so", "./train"}) {
    EXPECT_TRUE(IsOfProgram(path)) << path;
  }
  for (const char* path : {"/opt/libtorch/lib/libtorch_cuda.so", "libc10_cuda.so", "/usr/lib/libcudart.so.13", "libnvrtc.so.12",
                           "libnccl.so.2", "/usr/lib/liblazuli.so"}) {
    EXPECT_FALSE(IsOfProgram(path)) << path;
  }
}

int Answer(int /*process*/) { return 4321; }

TEST(RedirectCallsTest, CallsOfLoadedLibrariesGoToOurs) {
  auto* const theirs = reinterpret_cast<int (*)(int)>(dlsym(RTLD_DEFAULT, "getsid"));
  const int session = getsid(0);
  ASSERT_NE(session, 4321);
  RedirectCalls({{"getsid_", reinterpret_cast<void*>(&Answer)}});
  EXPECT_EQ(getsid(0), session);
  RedirectCalls({{"getsid", reinterpret_cast<void*>(&Answer), Callers::kProgram}});
  EXPECT_EQ(getsid(0), 4321);
  EXPECT_EQ(theirs(0), session);
}

}  // namespace
}  // namespace lazuli::runtime
