// Times one workload under one mode in this process, and prints one line of JSON, as worker.py does. Started by compare.py.
#include <c10/core/CachingDeviceAllocator.h>
#include <dlfcn.h>
#include <lazuli/lazuli.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "common/command_line.h"
#include "workload.h"

namespace workloads {

std::vector<Workload> AllWorkloads() {
  std::vector<Workload> all;
  for (const auto& some : {TensorWorkloads(), GptWorkloads(), DecodeWorkloads(), ImageWorkloads(), RecurrentWorkloads(),
                           ReinforcementWorkloads(), PhysicsWorkloads()}) {
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

namespace {

struct Options {
  std::string workload;
  std::string mode = "eager";
  std::string device = "cpu";
  int64_t threads = 0;
  double seconds = 1;
  bool list = false;
};

double Seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Of this program alone: getrusage() also counts what the process was before it became this program.
double PeakMegabytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::stod(line.substr(6)) / 1024;
  }
  return 0;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// Comes first: LibTorch looks for CUDA once, when anything first asks for it.
torch::Device DeviceOf(const std::string& name) {
  const torch::Device device(name);
  if (!device.is_cuda()) return device;
  if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) throw examples::UserError(std::string("No CUDA: ") + dlerror());
  if (!torch::cuda::is_available()) throw examples::UserError("--device " + name + ": there is no such GPU here.");
  at::globalContext().setFloat32MatmulPrecision("high");  // TF32, as who trains on a GPU asks for.
  return device;
}

// Runs a step to its end: what Lazuli still has pending is part of the step, and what the GPU still has to do.
double Timed(const Step& step, const Options& options, torch::Tensor& out) {
  const double start = Seconds();
  out = step();
  if (options.mode == "lazuli") lazuli::sync();
  if (out.is_cuda()) torch::cuda::synchronize(out.device().index());
  return Seconds() - start;
}

// Allocated at most, by LibTorch's allocator; 0 without a GPU.
double PeakGpuMegabytes(const Options& options) {
  const torch::Device device(options.device);
  if (!device.is_cuda()) return 0;
  const auto stats = c10::getDeviceAllocator(device.type())->getDeviceStats(std::max<c10::DeviceIndex>(device.index(), 0));
  return static_cast<double>(stats.allocated_bytes[0].peak) / (1 << 20);
}

struct Measured {
  double first_s = 0;
  double check = 0;
  std::vector<double> times_ms;
  lazuli::Stats warm;
};

Measured Measure(const Workload& workload, const Options& options) {
  const torch::Device device = DeviceOf(options.device);
  torch::manual_seed(0);
  const Step step = workload.build(device);
  const bool lazuli = options.mode == "lazuli";
  Measured measured;
  torch::Tensor out;
  const double start = Seconds();
  if (lazuli) lazuli::enable();
  Timed(step, options, out);
  measured.first_s = Seconds() - start;
  measured.check = out.to(torch::kDouble).abs().mean().item<double>();
  for (int i = 0; i < workload.warm_up; ++i) Timed(step, options, out);
  if (lazuli) lazuli::wait_for_compiles();
  measured.warm = lazuli::stats();
  const double begin = Seconds();
  while (measured.times_ms.size() < static_cast<size_t>(workload.fewest) || Seconds() - begin < options.seconds) {
    out.reset();  // As in a training loop: the previous result is not kept through the next step.
    measured.times_ms.push_back(1e3 * Timed(step, options, out));
  }
  return measured;
}

void Print(const Measured& measured, const Options& options) {
  std::printf(
      "{\"workload\": \"%s\", \"mode\": \"%s\", \"device\": \"%s\", \"threads\": %d, \"first_s\": %.6f, \"check\": %.17g, \"median_ms\": "
      "%.6f, ",
      options.workload.c_str(), options.mode.c_str(), options.device.c_str(), torch::get_num_threads(), measured.first_s, measured.check,
      Median(measured.times_ms));
  std::printf("\"peak_rss_mb\": %.1f, \"peak_gpu_mb\": %.1f, \"times_ms\": [", PeakMegabytes(), PeakGpuMegabytes(options));
  for (size_t i = 0; i < measured.times_ms.size(); ++i) std::printf("%s%.6f", i == 0 ? "" : ", ", measured.times_ms[i]);
  std::printf("]");
  if (options.mode == "lazuli") {
    const lazuli::Stats stats = lazuli::stats();
    std::printf(", \"compiles_after_warm_up\": %lld, \"stats\": %s",
                static_cast<long long>(stats.programs_compiled - measured.warm.programs_compiled), stats.ToJson().c_str());
  }
  std::printf("}\n");
}

int Run(int argc, char** argv) {
  Options options;
  examples::CommandLine line("cpp_workloads", "times one C++ program, eagerly or with Lazuli.");
  line.Text("--workload", options.workload, "its name");
  line.Text("--mode", options.mode, "eager or lazuli");
  line.Text("--device", options.device, "where its tensors are: cpu, or cuda for a GPU, which some are given more work for");
  line.Integer("--threads", options.threads, 0, 4096, "CPU threads; 0: PyTorch's default");
  line.Number("--seconds", options.seconds, 0, 1e6, "time steps for at least this long");
  line.Flag("--list", options.list, "print the workloads, a line each: name, tab, what it is");
  if (!line.Parse(argc, argv)) return 0;
  const std::vector<Workload> all = AllWorkloads();
  if (options.list) {
    for (const Workload& workload : all) std::printf("%s\t%s\n", workload.name.c_str(), workload.about.c_str());
    return 0;
  }
  const auto found = std::find_if(all.begin(), all.end(), [&](const Workload& workload) { return workload.name == options.workload; });
  if (found == all.end()) throw examples::UserError("No workload '" + options.workload + "'. See cpp_workloads --list.");
  if (options.mode != "eager" && options.mode != "lazuli")
    throw examples::UserError("--mode is eager or lazuli, not '" + options.mode + "'.");
  if (options.threads > 0) torch::set_num_threads(static_cast<int>(options.threads));
  const Measured measured = Measure(*found, options);
  Print(measured, options);
  lazuli::disable();
  return 0;
}

}  // namespace
}  // namespace workloads

int main(int argc, char** argv) {
  return examples::RunMain("cpp_workloads", [&] { return workloads::Run(argc, argv); });
}
