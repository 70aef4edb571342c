# LibTorch as the imported target Lazuli::torch. LAZULI_TORCH (or Torch_DIR, from which it follows) names the folder that holds include/
# and lib/: a LibTorch archive, or the `torch` folder of the wheel. The wheel's own TorchConfig.cmake asks for a CUDA toolkit, which
# Lazuli does not need. Also installed, for LazuliConfig.cmake.
set(LAZULI_TORCH "$ENV{LAZULI_TORCH}" CACHE PATH "LibTorch: the folder with include/ and lib/")
if(NOT LAZULI_TORCH AND NOT Torch_DIR AND DEFINED ENV{Torch_DIR})
  set(Torch_DIR "$ENV{Torch_DIR}")
endif()
if(NOT LAZULI_TORCH AND Torch_DIR)
  get_filename_component(LAZULI_TORCH "${Torch_DIR}/../../.." ABSOLUTE)
endif()
if(NOT LAZULI_TORCH AND EXISTS "${CMAKE_CURRENT_LIST_DIR}/../.deps/torch/torch/include/ATen/ATen.h")
  get_filename_component(LAZULI_TORCH "${CMAKE_CURRENT_LIST_DIR}/../.deps/torch/torch" ABSOLUTE)
endif()
if(NOT EXISTS "${LAZULI_TORCH}/include/ATen/ATen.h")
  message(FATAL_ERROR "LibTorch not found in '${LAZULI_TORCH}'. Set LAZULI_TORCH to the folder with include/ and lib/ "
                      "(in Lazuli's own source tree, `make setup` gets one).")
endif()
file(READ "${LAZULI_TORCH}/include/torch/headeronly/version.h" LAZULI_TORCH_VERSION)
string(REGEX REPLACE ".*VERSION_MAJOR ([0-9]+).*VERSION_MINOR ([0-9]+).*" "\\1.\\2" LAZULI_TORCH_VERSION "${LAZULI_TORCH_VERSION}")
if(NOT TARGET Lazuli::torch)
  add_library(Lazuli::torch INTERFACE IMPORTED GLOBAL)
  set_target_properties(Lazuli::torch PROPERTIES
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${LAZULI_TORCH}/include;${LAZULI_TORCH}/include/torch/csrc/api/include"
    INTERFACE_INCLUDE_DIRECTORIES "${LAZULI_TORCH}/include;${LAZULI_TORCH}/include/torch/csrc/api/include"
    INTERFACE_LINK_LIBRARIES "${LAZULI_TORCH}/lib/libtorch_cpu.so;${LAZULI_TORCH}/lib/libc10.so"
    # The GPU libraries that libtorch_cpu.so names need not be there to link.
    INTERFACE_LINK_OPTIONS "-Wl,--allow-shlib-undefined;-Wl,-rpath,${LAZULI_TORCH}/lib")
endif()
