file(STRINGS "${CMAKE_CURRENT_LIST_DIR}/../../_version.py" version REGEX "^__version__")
string(REGEX REPLACE ".*\"(.*)\".*" "\\1" version "${version}")
# What is installed is the same for each release; CMake's own file knows ranges and everything else that is asked.
include(CMakePackageConfigHelpers)
set(version_file "${CMAKE_BINARY_DIR}/CMakeFiles/NumbaPtxlinkConfigVersion.cmake")
write_basic_package_version_file("${version_file}" VERSION "${version}" COMPATIBILITY AnyNewerVersion ARCH_INDEPENDENT)
include("${version_file}")
