set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
find_program(LAZULI_CCACHE ccache)
if(LAZULI_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${LAZULI_CCACHE})
endif()
find_program(LAZULI_LLD ld.lld)
if(LAZULI_LLD)
  add_link_options(-fuse-ld=lld)
endif()

option(LAZULI_WERROR "Warnings are errors" OFF)
option(LAZULI_PRECOMPILE "Precompile ATen's headers for the library's folders; scripts/check_layers.py looks for the includes that this hides" OFF)
set(LAZULI_UNITY "" CACHE STRING "Of library and tests: whose sources are compiled four at a time, which takes half as long")
set(LAZULI_SANITIZE "" CACHE STRING "Sanitizers for everything built here, e.g. address,undefined")
if(LAZULI_SANITIZE)
  # LLVM is built without run-time type information, which the vptr check needs.
  # Instrumented code confuses GCC's analysis of uninitialised values.
  add_compile_options(-fsanitize=${LAZULI_SANITIZE} -fno-omit-frame-pointer $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  foreach(sanitizer address thread)  # Compilers tell the program in ways of their own.
    if(LAZULI_SANITIZE MATCHES ${sanitizer})
      string(TOUPPER ${sanitizer} upper)
      add_compile_definitions(LAZULI_SANITIZE_${upper})
    endif()
  endforeach()
  add_link_options(-fsanitize=${LAZULI_SANITIZE})
  if(LAZULI_SANITIZE MATCHES undefined)
    # Null pointers end the process by themselves, which the address sanitizer reports as well.
    add_compile_options(-fno-sanitize=vptr,null,object-size -fno-sanitize-recover=undefined)
    # Clang would look for a type in front of functions that are compiled at run time.
    add_compile_options($<$<CXX_COMPILER_ID:Clang>:-fno-sanitize=function>)
  endif()
endif()

# LibTorch is built with GCC, which names some templates as Clang did before its version 18.
if(CMAKE_CXX_COMPILER_ID MATCHES Clang AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 18)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fclang-abi-compat=17>)
endif()
# LibTorch's OpenMP is GNU's, whatever the compiler.
if(CMAKE_CXX_COMPILER_ID MATCHES Clang AND NOT DEFINED OpenMP_CXX_FLAGS)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libgomp.so OUTPUT_VARIABLE OpenMP_gomp_LIBRARY OUTPUT_STRIP_TRAILING_WHITESPACE)
  set(OpenMP_CXX_FLAGS -fopenmp=libgomp)
  set(OpenMP_CXX_LIB_NAMES gomp)
endif()

# The warnings that Lazuli's own sources are compiled with.
function(lazuli_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers
                         "$<$<BOOL:${LAZULI_WERROR}>:-Werror;-Wno-error=array-bounds>"
                         "$<$<AND:$<BOOL:${LAZULI_WERROR}>,$<CXX_COMPILER_ID:GNU>>:-Wno-error=maybe-uninitialized;-Wno-error=stringop-overflow>"
                         # GNU's library uses what it deprecates, which Clang says of whom it does that for.
                         "$<$<AND:$<BOOL:${LAZULI_WERROR}>,$<CXX_COMPILER_ID:Clang>>:-Wno-error=deprecated-declarations>")
endfunction()

# Puts those of `sources` that have a line like `regex` into `matching`, all others into `others`.
function(lazuli_split sources regex matching others)
  set(with "")  # Not the caller's.
  set(without "")
  foreach(source ${sources})
    file(STRINGS ${source} lines REGEX "${regex}" LIMIT_COUNT 1)
    if(lines)
      list(APPEND with ${source})
    else()
      list(APPEND without ${source})
    endif()
  endforeach()
  set(${matching} ${with} PARENT_SCOPE)
  set(${others} ${without} PARENT_SCOPE)
endfunction()

# Has `sources` of `target` compiled some four at a time. Which ones go together follows from their names, not from their places: a file more
# leaves the others where they are, and may only clash with names of its own group. Those that take names out of LLVM's namespace, which
# Lazuli's own may clash with, do not mix with others. (CMake leaves out those with compile options of their own.)
function(lazuli_unity target sources)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  lazuli_split("${sources}" "^using llvm::" llvm others)
  foreach(kind llvm others)
    list(LENGTH ${kind} count)
    math(EXPR groups "(${count} / 4 + 7) / 8 * 8")  # Rarely another number.
    foreach(source ${${kind}})
      get_filename_component(name ${source} NAME)
      string(MD5 hash ${name})
      string(SUBSTRING ${hash} 0 4 digits)
      math(EXPR group "0x${digits} % ${groups}")
      set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${kind}_${group})
    endforeach()
  endforeach()
endfunction()

# Adds the static library lazuli_<folder> from every .cpp of the current folder (and the given subfolders).
function(lazuli_folder folder)
  file(GLOB sources CONFIGURE_DEPENDS *.cpp)
  foreach(sub ${ARGN})
    file(GLOB more CONFIGURE_DEPENDS ${sub}/*.cpp)
    list(APPEND sources ${more})
  endforeach()
  if(NOT sources)
    file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/empty.cpp "")
    set(sources ${CMAKE_CURRENT_BINARY_DIR}/empty.cpp)
  endif()
  add_library(lazuli_${folder} STATIC ${sources})
  target_include_directories(lazuli_${folder} PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
  lazuli_warnings(lazuli_${folder})
  # Errors and warnings name files by their place in LibTorch and here, not by where they lay when this was built.
  target_compile_options(lazuli_${folder} PRIVATE "-fmacro-prefix-map=${LAZULI_TORCH}/include/=" "-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=")
  if(LAZULI_PRECOMPILE AND TARGET lazuli_codegen AND NOT folder STREQUAL "codegen")
    target_precompile_headers(lazuli_${folder} REUSE_FROM lazuli_codegen)
  elseif(LAZULI_PRECOMPILE AND folder STREQUAL "codegen")
    target_precompile_headers(lazuli_${folder} PRIVATE <string> <vector> <ATen/core/Tensor.h> <ATen/core/dispatch/Dispatcher.h>
                              <ATen/core/stack.h> <absl/container/flat_hash_map.h> <absl/strings/str_cat.h>)
  endif()
  if("library" IN_LIST LAZULI_UNITY)
    lazuli_unity(lazuli_${folder} "${sources}")
  endif()
  target_link_libraries(lazuli_${folder} PUBLIC Lazuli::torch Lazuli::absl Threads::Threads ${CMAKE_DL_LIBS})
endfunction()
