// A program that computes, and reads what was not read before, in what runs at its end: which, its argument says.

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

namespace {

at::Tensor pending;
thread_local at::Tensor of_thread;
at::Tensor* never_freed = nullptr;

void Print(const char* where) { std::printf("%s %g\n", where, (pending + 1).sum().item<double>()); }

struct PrintsAtEnd {
  const char* where = nullptr;
  ~PrintsAtEnd() {
    if (where != nullptr) Print(where);
    std::fflush(stdout);
  }
};
PrintsAtEnd at_end;

void Compute() {
  for (int step = 0; step < 4; ++step) pending = at::mul(pending, 0.5) + step;
  std::printf("%g\n", pending.sum().item<double>());
  pending = pending * 2 + 1;
  of_thread = pending * 3;
  never_freed = new at::Tensor(pending * 5);
}

int End(const std::string& way) {
  if (way == "static") return at_end.where = "static", 3;
  if (way == "local static") {
    static PrintsAtEnd local;
    return local.where = "local static", 4;
  }
  if (way == "thread_local") {
    static thread_local PrintsAtEnd local;
    return local.where = "thread_local", 5;
  }
  if (way == "handler") std::atexit([] { Print("handler"); });
  if (way == "pointer") {
    std::atexit([] {
      float first;
      std::memcpy(&first, never_freed->data_ptr(), sizeof(first));
      std::printf("pointer %g\n", first);
    });
  }
  if (way == "thread in a handler") {
    std::atexit([] { std::thread([] { Print("thread"); }).join(); });
  }
  if (way == "freed in a handler") {
    std::atexit([] {
      delete never_freed;
      pending = at::ones({3}) * 2;
      Print("freed");
    });
  }
  if (way == "quick") {
    std::at_quick_exit([] {
      Print("quick");
      std::fflush(stdout);
    });
    std::quick_exit(6);
  }
  if (way == "exit in a thread") {
    std::thread([] {
      Print("before");
      std::exit(7);
    }).join();
  }
  return 8;
}

}  // namespace

int main(int argc, char** argv) {
  pending = at::ones({8, 8});
  Compute();
  return argc == 2 ? End(argv[1]) : 2;
}
