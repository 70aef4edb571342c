# LibTorch as the imported target Lazuli::torch. LAZULI_TORCH names the folder that holds include/ and lib/ (a LibTorch archive, or the
# `torch` folder of the wheel). The wheel's own TorchConfig.cmake asks for a CUDA toolkit, which Lazuli does not need.
set(LAZULI_TORCH "$ENV{LAZULI_TORCH}" CACHE PATH "LibTorch: the folder with include/ and lib/")
if(NOT LAZULI_TORCH AND Torch_DIR)
  get_filename_component(LAZULI_TORCH "${Torch_DIR}/../../.." ABSOLUTE)
endif()
if(NOT EXISTS "${LAZULI_TORCH}/include/ATen/ATen.h")
  message(FATAL_ERROR "LibTorch not found in '${LAZULI_TORCH}'. Run `make setup`, or set LAZULI_TORCH to the folder with include/ and lib/.")
endif()
add_library(lazuli_torch INTERFACE)
add_library(Lazuli::torch ALIAS lazuli_torch)
target_include_directories(lazuli_torch SYSTEM INTERFACE
  ${LAZULI_TORCH}/include ${LAZULI_TORCH}/include/torch/csrc/api/include)
target_link_libraries(lazuli_torch INTERFACE ${LAZULI_TORCH}/lib/libtorch_cpu.so ${LAZULI_TORCH}/lib/libc10.so)
target_link_options(lazuli_torch INTERFACE -Wl,--allow-shlib-undefined -Wl,-rpath,${LAZULI_TORCH}/lib)
