# Abseil as Lazuli::absl. Distribution packages configure for the shared libraries; their static archives are preferred here, so that
# liblazuli.so neither needs nor clashes with a libabsl at run time.
find_package(absl REQUIRED)
add_library(lazuli_absl INTERFACE)
add_library(Lazuli::absl ALIAS lazuli_absl)
set(LAZULI_ABSL_TARGETS absl::status absl::statusor absl::strings absl::str_format absl::flat_hash_map absl::flat_hash_set
  absl::inlined_vector absl::span absl::synchronization)
get_target_property(LAZULI_ABSL_TYPE absl::status TYPE)
get_filename_component(LAZULI_ABSL_LIB_DIR "${absl_DIR}/../.." ABSOLUTE)
file(GLOB LAZULI_ABSL_ARCHIVES "${LAZULI_ABSL_LIB_DIR}/libabsl_*.a")
# Programs' own machinery, with static objects that a library must not bring along.
list(FILTER LAZULI_ABSL_ARCHIVES EXCLUDE REGEX "flags|failure_signal_handler|random")
if(LAZULI_ABSL_TYPE STREQUAL "SHARED_LIBRARY" AND LAZULI_ABSL_ARCHIVES)
  target_include_directories(lazuli_absl SYSTEM INTERFACE $<TARGET_PROPERTY:absl::status,INTERFACE_INCLUDE_DIRECTORIES>)
  target_link_libraries(lazuli_absl INTERFACE -Wl,--start-group ${LAZULI_ABSL_ARCHIVES} -Wl,--end-group Threads::Threads)
else()
  message(STATUS "Abseil: no static archives beside the shared libraries; linking ${LAZULI_ABSL_TYPE}")
  target_link_libraries(lazuli_absl INTERFACE ${LAZULI_ABSL_TARGETS})
endif()
