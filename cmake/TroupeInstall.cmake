# What `cmake --install` lays out: the command, the libraries, their headers under include/troupe, the example configs, and the
# CMake package that find_package(troupe) reads.
include(CMakePackageConfigHelpers)

# Headers of the device backends are not part of the interface: gpu/device.hpp and gpu/all_to_all.hpp stand for them.
install(DIRECTORY messages scheduling gpu actors cluster DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/troupe
  FILES_MATCHING PATTERN "*.hpp"
  PATTERN "gpu/cpu" EXCLUDE
  PATTERN "gpu/cuda" EXCLUDE)
install(DIRECTORY configs/ DESTINATION ${CMAKE_INSTALL_DATADIR}/troupe/configs FILES_MATCHING PATTERN "*.toml" PATTERN "*.csv")

set(TROUPE_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/troupe)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/troupeConfig.cmake.in ${PROJECT_BINARY_DIR}/troupeConfig.cmake
  INSTALL_DESTINATION ${TROUPE_PACKAGE_DIR}
  NO_CHECK_REQUIRED_COMPONENTS_MACRO)
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/troupeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(EXPORT troupeTargets NAMESPACE troupe:: DESTINATION ${TROUPE_PACKAGE_DIR})
install(FILES
  ${PROJECT_BINARY_DIR}/troupeConfig.cmake
  ${PROJECT_BINARY_DIR}/troupeConfigVersion.cmake
  ${PROJECT_SOURCE_DIR}/cmake/FindCAF.cmake
  ${PROJECT_SOURCE_DIR}/cmake/FindxxHash.cmake
  ${PROJECT_SOURCE_DIR}/cmake/Findsodium.cmake
  DESTINATION ${TROUPE_PACKAGE_DIR})
