# LLVM 19, static, as Lazuli::llvm.
find_package(LLVM 19.1 REQUIRED CONFIG HINTS /usr/lib/llvm-19/lib/cmake/llvm /usr/lib/llvm-19/cmake)
llvm_map_components_to_libnames(LAZULI_LLVM_LIBS orcjit passes native asmparser irreader symbolize)
add_library(lazuli_llvm INTERFACE)
add_library(Lazuli::llvm ALIAS lazuli_llvm)
target_include_directories(lazuli_llvm SYSTEM INTERFACE ${LLVM_INCLUDE_DIRS})
target_link_libraries(lazuli_llvm INTERFACE ${LAZULI_LLVM_LIBS})
