#include "runtime/redirect_calls.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>

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

class Shape {
 public:
  virtual ~Shape() = default;
  virtual int Corners() const { return 0; }
  virtual int Add(int corners) const { return Corners() + corners; }
  int Twice() const { return 2 * Corners(); }
};

class Triangle : public Shape {
 public:
  int Corners() const override { return 3; }
};

int FiveMore(const Shape* shape, int corners) { return shape->Corners() + corners + 5; }
int One(const Shape* /*shape*/) { return 1; }

// Of one class, whose objects exist, and of those that do not override the function no other.
TEST(RedirectCallsTest, VirtualFunctions) {
  const auto plain = std::make_unique<Shape>();
  const std::unique_ptr<Shape> triangle = std::make_unique<Triangle>();
  const void* const vtable = *reinterpret_cast<const void* const*>(plain.get());
  ASSERT_TRUE(ReplaceVirtual(vtable, &Shape::Add, &FiveMore));
  // Not by way of a call whose object the compiler knows.
  const Shape* volatile unknown = plain.get();
  EXPECT_EQ(unknown->Add(2), 7);
  unknown = triangle.get();
  EXPECT_EQ(unknown->Add(2), 5);
  EXPECT_FALSE(ReplaceVirtual(vtable, &Shape::Twice, &One));
}

}  // namespace
}  // namespace lazuli::runtime
