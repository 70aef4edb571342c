# Abseil as Lazuli::absl, from the distribution's package. Its static archives are not position-independent, so liblazuli.so needs the
# package's shared libraries at run time.
find_package(absl REQUIRED)
add_library(lazuli_absl INTERFACE)
add_library(Lazuli::absl ALIAS lazuli_absl)
target_link_libraries(lazuli_absl INTERFACE absl::status absl::statusor absl::strings absl::str_format absl::flat_hash_map absl::flat_hash_set
                                            absl::inlined_vector absl::span absl::synchronization)
