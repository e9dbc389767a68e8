file(STRINGS "${CMAKE_CURRENT_LIST_DIR}/../../_version.py" version REGEX "^__version__")
string(REGEX REPLACE ".*\"(.*)\".*" "\\1" version "${version}")
# No release changes this file: the version comes from the package. CMake's module writes the version file, which
# handles ranges of versions and the other arguments of find_package.
include(CMakePackageConfigHelpers)
set(version_file "${CMAKE_BINARY_DIR}/CMakeFiles/NumbaPtxlinkConfigVersion.cmake")
write_basic_package_version_file("${version_file}" VERSION "${version}" COMPATIBILITY AnyNewerVersion ARCH_INDEPENDENT)
include("${version_file}")
