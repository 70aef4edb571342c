#include "codegen/cuda/cuda_kernel.h"

#include <ATen/Context.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <cstdlib>

#include "codegen/cuda/batch_table.h"
#include "runtime/executor.h"

namespace lazuli::codegen {
namespace {

void CheckDriver(int error, const char* what, const std::string& kernel) {
  if (error == 0) return;
  TORCH_CHECK(false, "lazuli: cannot ", what, " the kernel ", kernel, ": ", runtime::RequireCudaDriver().ErrorText(error));
}

int64_t Multiprocessors(int device) {
  const absl::StatusOr<runtime::CudaDeviceInfo> info = runtime::GetCudaDeviceInfo(device);
  return info.ok() ? info->multiprocessors : kPlannedMultiprocessors;
}

// Of the current device, which is told too.
runtime::CudaStreamHandle CurrentStream(c10::Device* device) {
  const c10::impl::DeviceGuardImplInterface* guard = c10::impl::getDeviceGuardImpl(c10::kCUDA);
  *device = guard->getDevice();
  return static_cast<runtime::CudaStreamHandle>(guard->getStreamNativeHandle(guard->getStream(*device)));
}

}  // namespace

CudaKernel::CudaKernel(const CudaPlan& plan, std::string code, MakeWide wide, OtherPlans::Make others)
    : launch_(plan.launch),
      num_buffers_(static_cast<int>(plan.kernel.buffers.size())),
      num_scalars_(plan.kernel.num_scalars),
      num_symbols_(plan.kernel.symbols.size()),
      make_wide_(std::move(wide)),
      code_(std::move(code)) {
  if (num_symbols_ == 0 || plan.wide) return;
  const KernelIR& kernel = plan.kernel;
  if (others != nullptr) others_ = std::make_unique<const OtherPlans>(HintsOf(kernel), std::move(others));
  Extent points{{runtime::Product{}, runtime::Product{}}};
  int64_t all = 1;
  for (const int64_t size : kernel.sizes) all *= size;
  points[0].first = kernel.symbols.Decode(all);
  extents_.push_back(points);
  for (const KBuffer& buffer : kernel.buffers) {
    Extent extent;
    for (size_t d = 0; d < kernel.sizes.size(); ++d) {
      if (buffer.strides[d] == 0) continue;
      extent.emplace_back(kernel.symbols.Decode(kernel.sizes[d]), kernel.symbols.Decode(buffer.strides[d]));
    }
    if (std::find(extents_.begin(), extents_.end(), extent) == extents_.end()) extents_.push_back(std::move(extent));
  }
}

CudaKernel::~CudaKernel() {
  if (library_ != nullptr) runtime::RequireCudaDriver().library_unload(library_);
}

void CudaKernel::Load() const {
  const runtime::AnyCaptures any;  // Of the program's own on other threads, while it is compiled in the background.
  const std::string& name = launch_.phases[0].function;
  CheckDriver(runtime::RequireCudaDriver().library_load_data(&library_, code_.data(), nullptr, nullptr, 0, nullptr, nullptr, 0), "load",
              name);
  functions_.clear();
  batch_functions_.clear();
  for (const CudaLaunch::Phase& phase : launch_.phases) functions_.push_back(Find(phase.function));
  for (const CudaLaunch::Phase& phase : launch_.batch) batch_functions_.push_back(Find(phase.function));
  // As the text has it (device_helpers.cpp), which says so by the architecture that it was compiled for.
  constexpr int kArchThatWaits = 90;
  int arch = 0;
  const runtime::CudaDriver& driver = runtime::RequireCudaDriver();
  CheckDriver(driver.kernel_get_attribute(&arch, runtime::CudaDriver::kVirtualArch, functions_[0],
                                          c10::impl::getDeviceGuardImpl(c10::kCUDA)->getDevice().index()),
              "ask about", name);
  waits_ = arch >= kArchThatWaits && driver.stream_get_capture_info_v3 != nullptr;
  std::string().swap(code_);
}

runtime::CudaKernelHandle CudaKernel::Find(const std::string& function) const {
  runtime::CudaKernelHandle found = nullptr;
  CheckDriver(runtime::RequireCudaDriver().library_get_kernel(&found, library_, function.c_str()), "find", function);
  return found;
}

c10::DataPtr CudaKernel::Scratch(int64_t bytes) {
  if (bytes == 0 || runtime::LaunchTape::IsPatching()) return {};
  return c10::GetAllocator(c10::kCUDA)->allocate(static_cast<size_t>(bytes));
}

void CudaKernel::AllowRowBytes(int device) const {
  const uint64_t bit = uint64_t{1} << (device % 64);
  if (launch_.row_bytes == 0 || (allowed_devices_.load(std::memory_order_relaxed) & bit) != 0) return;
  for (size_t p = 0; p < functions_.size(); ++p) {
    CheckDriver(runtime::RequireCudaDriver().kernel_set_attribute(runtime::CudaDriver::kDynamicSharedBytes,
                                                                  static_cast<int>(launch_.row_bytes), functions_[p], device),
                "get shared memory for", launch_.phases[p].function);
  }
  allowed_devices_.fetch_or(bit, std::memory_order_relaxed);
}

bool CudaKernel::IsTooLarge(const int64_t* symbols) const {
  return std::any_of(extents_.begin(), extents_.end(), [&](const Extent& extent) {
    int64_t reach = 0;
    for (const auto& [size, stride] : extent) reach += size.Evaluate(symbols) * std::abs(stride.Evaluate(symbols));
    return reach > kNarrowElements;
  });
}

void CudaKernel::Launch(const CudaLaunch::Phase& phase, runtime::CudaKernelHandle function, unsigned blocks, unsigned splits,
                        runtime::CudaStreamHandle stream, absl::Span<const Argument> arguments, size_t num_own) const {
  runtime::GpuLaunch launch;
  launch.kernel = function;
  launch.grid_x = blocks;
  launch.grid_y = phase.split ? splits : 1;
  launch.block_x = static_cast<unsigned>(phase.threads_x);
  launch.block_y = static_cast<unsigned>(phase.threads_y);
  launch.shared_bytes = static_cast<unsigned>(launch_.row_bytes);
  launch.waits = waits_;
  launch.arguments = arguments;
  launch.num_own = num_own;
  const int error = runtime::Launch(launch, stream);
  if (error != 0) CheckDriver(error, "launch", phase.function);
}

void CudaKernel::Run(void* const* buffers, const uint64_t* scalars, const int64_t* symbols) const {
  if (!extents_.empty() && IsTooLarge(symbols)) {
    std::call_once(widened_, [&] {
      absl::StatusOr<std::shared_ptr<const CompiledKernel>> wide = make_wide_();
      TORCH_CHECK(wide.ok(), "lazuli: ", std::string(wide.status().message()));
      wide_ = *std::move(wide);
    });
    return wide_->Run(buffers, scalars, symbols);
  }
  if (launch_.phases.empty() || launch_.Blocks(symbols) == 0) return;
  // A graph keeps the kernel that it was captured with, and deterministic programs the order of their sums.
  if (others_ != nullptr && !runtime::LaunchTape::IsActive() && !at::globalContext().deterministicAlgorithms()) {
    if (const CompiledKernel* other = others_->For(symbols); other != nullptr) return other->Run(buffers, scalars, symbols);
  }
  LoadOnce();
  c10::Device device = c10::kCUDA;
  const runtime::CudaStreamHandle stream = CurrentStream(&device);
  AllowRowBytes(device.index());
  c10::SmallVector<Argument, 64> arguments;
  for (int b = 0; b < num_buffers_; ++b) arguments.push_back({const_cast<void**>(&buffers[b])});
  for (int x = 0; x < num_scalars_; ++x) arguments.push_back({const_cast<uint64_t*>(&scalars[x])});
  for (int s = 0; s < num_symbols_; ++s) arguments.push_back({const_cast<int64_t*>(&symbols[s])});
  c10::DataPtr scratch;
  void* partials = nullptr;
  int splits = 1;
  if (launch_.split) {
    splits = static_cast<int>(launch_.Splits(symbols, Multiprocessors(device.index())));
    scratch = Scratch(launch_.ScratchBytes(symbols, splits));
    partials = scratch.get();
    arguments.push_back({&partials});
    arguments.push_back({&splits, sizeof(splits)});
  }
  for (size_t p = 0; p < functions_.size(); ++p) {
    const int64_t blocks = std::min(launch_.Blocks(launch_.phases[p], symbols), CudaLaunch::kMostBlocks);
    Launch(launch_.phases[p], functions_[p], static_cast<unsigned>(blocks), static_cast<unsigned>(splits), stream,
           {arguments.data(), arguments.size()}, static_cast<size_t>(launch_.OwnArguments()));
  }
}

void CudaKernel::RunTable(BatchTable* table) const {
  if (table->count() == 1) {
    const runtime::BoundKernel& one = table->last();
    Run(one.buffers, one.scalars, one.symbols);
  } else if (table->count() > 1) {
    LoadOnce();
    c10::Device device = c10::kCUDA;
    const runtime::CudaStreamHandle stream = CurrentStream(&device);
    const c10::DataPtr scratch = Scratch(table->scratch_bytes());
    void* partials = scratch.get();
    c10::SmallVector<Argument, 2> arguments = {{table->data(), table->bytes()}};
    if (launch_.split) arguments.push_back({&partials});
    for (size_t p = 0; p < batch_functions_.size(); ++p) {
      if (launch_.split && !launch_.batch[p].split) table->SetOneBlockEach();
      Launch(launch_.batch[p], batch_functions_[p], static_cast<unsigned>(table->blocks()), 1, stream, {arguments.data(), arguments.size()},
             launch_.split ? 1 : 0);
    }
  }
  table->Clear();
}

void CudaKernel::RunFirstOfBatch(absl::Span<const runtime::BoundKernel> batch) const {
  BatchTable table(launch_, num_buffers_, num_scalars_, num_symbols_);
  int64_t multiprocessors = 0;
  if (launch_.split) multiprocessors = Multiprocessors(c10::impl::getDeviceGuardImpl(c10::kCUDA)->getDevice().index());
  for (const runtime::BoundKernel& bound : batch) {
    TORCH_INTERNAL_ASSERT(bound.kernel == static_cast<const CompiledKernel*>(this), "a GPU's batch is of one kernel");
    const int64_t blocks = launch_.Blocks(bound.symbols);
    if (blocks > CudaLaunch::kMostBlocks || (!extents_.empty() && IsTooLarge(bound.symbols))) {
      Run(bound.buffers, bound.scalars, bound.symbols);
      continue;
    }
    if (blocks == 0) continue;
    const int64_t entry_blocks = launch_.split ? launch_.Splits(bound.symbols, multiprocessors) : blocks;
    if (!table.Fits(entry_blocks)) RunTable(&table);
    table.Add(bound, entry_blocks);
  }
  RunTable(&table);
}

void CudaKernel::RunUnits(void* const* /*buffers*/, const uint64_t* /*scalars*/, const int64_t* /*symbols*/, int64_t /*begin*/,
                          int64_t /*end*/) const {
  TORCH_CHECK(false, "lazuli: a GPU's kernel has no units");
}

}  // namespace lazuli::codegen
