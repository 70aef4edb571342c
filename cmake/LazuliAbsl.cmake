# Abseil as Lazuli::absl. Debian's and Ubuntu's packages: their shared libraries, since their static archives are not
# position-independent; the names are in an inline namespace of the distribution's own, so they cannot clash with another Abseil.
# An Abseil found through absl_DIR that was built static and position-independent is linked in.
find_package(absl REQUIRED)
add_library(lazuli_absl INTERFACE)
add_library(Lazuli::absl ALIAS lazuli_absl)
target_link_libraries(lazuli_absl INTERFACE absl::status absl::statusor absl::strings absl::flat_hash_map absl::flat_hash_set
  absl::inlined_vector absl::span)
