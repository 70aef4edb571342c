// A program linked with liblazuli: which of its threads record, with the option on and off.

#include <lazuli/lazuli.h>
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

namespace {

void Check(bool holds, const char* what) {
  if (holds) return;
  std::printf("FAILED: %s\n", what);
  std::exit(1);
}

// What a thread started now sees.
bool ThreadRecords() {
  bool records = false;
  std::thread([&] { records = lazuli::is_enabled(); }).join();
  return records;
}

}  // namespace

int main() {
  Check(!ThreadRecords(), "no mode: threads are eager");
  {
    const lazuli::DeviceMode mode;
    Check(!ThreadRecords(), "the option is off by default");
  }
  const lazuli::DeviceMode mode(lazuli::Options().threads(true).async(false));
  Check(ThreadRecords(), "a thread of a recording thread records");
  {
    const lazuli::EagerScope eager;
    Check(!ThreadRecords(), "a thread started in an eager scope is eager");
  }
  const auto before = lazuli::stats();
  torch::Tensor result;
  const auto shared = torch::ones({8}) * 3;
  for (int i = 0; i < 4; ++i) {
    std::thread([&] {
      result = (shared + 1).relu() * 2;
      Check(lazuli::is_enabled() && ThreadRecords(), "and so do the threads that it starts");
    }).join();
    const auto now = lazuli::stats();
    Check(now.ops_recorded > before.ops_recorded, "the thread's operators were recorded");
    Check(result.sum().item<float>() == 64, "pending work of a thread that has ended is there");
  }
  const auto after = lazuli::stats();
  Check(after.programs_compiled > before.programs_compiled && after.cache_hits >= before.cache_hits + 3, "threads share programs");
  at::parallel_for(0, 64, 1, [](int64_t, int64_t) { (torch::ones({4}) * 2).sum(); });
  // The engine's own threads keep out of it: this is the mode of the thread that asks.
  auto x = torch::ones({4}).requires_grad_();
  (x * x).sum().backward();
  Check(x.grad().sum().item<float>() == 8, "backward");
  std::printf("ok\n");
  return 0;
}
