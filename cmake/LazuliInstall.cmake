# `cmake --install`: headers, library, tools, CMake package.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
install(TARGETS lazuli LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS lazuli-options lazuli-cache lazuli-report lazuli-trace lazuli-ulp RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/lazuli DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
set(LAZULI_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/Lazuli)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/LazuliConfig.cmake.in ${PROJECT_BINARY_DIR}/LazuliConfig.cmake
  INSTALL_DESTINATION ${LAZULI_PACKAGE_DIR} PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/LazuliConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/LazuliConfig.cmake ${PROJECT_BINARY_DIR}/LazuliConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/LazuliTorch.cmake DESTINATION ${LAZULI_PACKAGE_DIR})
