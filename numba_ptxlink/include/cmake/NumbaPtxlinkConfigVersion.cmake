file(STRINGS "${CMAKE_CURRENT_LIST_DIR}/../../_version.py" version REGEX "^__version__")
string(REGEX REPLACE ".*\"(.*)\".*" "\\1" version "${version}")
# The version comes from the Python package, so that no release changes this file. CMake's own module writes a version
# file, which handles ranges of versions and the other arguments of find_package.
include(CMakePackageConfigHelpers)
set(version_file "${CMAKE_BINARY_DIR}/CMakeFiles/NumbaPtxlinkConfigVersion.cmake")
write_basic_package_version_file("${version_file}" VERSION "${version}" COMPATIBILITY AnyNewerVersion ARCH_INDEPENDENT)
include("${version_file}")
