set(LAZULI_FOLDERS runtime codegen guards tracer)
find_package(OpenMP REQUIRED COMPONENTS CXX)

# Links the named folders' libraries whole into `target`, with what they need: operators and passes register themselves in static
# objects that nothing refers to. Never for a target that also links liblazuli.so: everything would register twice.
function(lazuli_link_folders target)
  set(archives)
  foreach(folder ${ARGN})
    add_dependencies(${target} lazuli_${folder})
    list(APPEND archives $<TARGET_FILE:lazuli_${folder}>)
  endforeach()
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${archives})
  target_link_libraries(${target} PRIVATE -Wl,--whole-archive ${archives} -Wl,--no-whole-archive)
  if("codegen" IN_LIST ARGN)
    target_link_libraries(${target} PRIVATE Lazuli::llvm ${OpenMP_CXX_LIB_NAMES})
  endif()
  target_link_libraries(${target} PRIVATE Lazuli::absl Lazuli::torch Threads::Threads ${CMAKE_DL_LIBS})
endfunction()

# liblazuli.so, the one library that programs link: every folder's objects, with LLVM and Abseil linked in and hidden.
add_library(lazuli SHARED ${PROJECT_SOURCE_DIR}/tracer/preload/thread_start.cpp)
target_include_directories(lazuli PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
lazuli_warnings(lazuli)
add_library(Lazuli::lazuli ALIAS lazuli)
lazuli_link_folders(lazuli ${LAZULI_FOLDERS})
target_link_libraries(lazuli INTERFACE Lazuli::torch)
target_link_options(lazuli
  PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/lazuli.map -Wl,--gc-sections -Wl,--as-needed -Wl,-z,nodelete
  # A program that only wants LAZULI=1 refers to nothing in the library.
  INTERFACE -Wl,--no-as-needed)
set_property(TARGET lazuli APPEND PROPERTY LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/lazuli.map)
target_include_directories(lazuli INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
