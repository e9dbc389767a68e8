# Lands in share/cmake/NumbaPtxlink of an environment, where find_package looks without being told: CMake searches
# the prefix of each bin folder on PATH. The environment's own command tells where the package is.
get_filename_component(_numba_ptxlink_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
execute_process(COMMAND "${_numba_ptxlink_prefix}/bin/numba-ptxlink" --cmake-dir
                OUTPUT_VARIABLE _numba_ptxlink_dir ERROR_VARIABLE _numba_ptxlink_error
                RESULT_VARIABLE _numba_ptxlink_failed OUTPUT_STRIP_TRAILING_WHITESPACE)
if(_numba_ptxlink_failed)
  set(NumbaPtxlink_FOUND FALSE)
  set(NumbaPtxlink_NOT_FOUND_MESSAGE
      "${_numba_ptxlink_prefix}/bin/numba-ptxlink --cmake-dir failed: ${_numba_ptxlink_failed} ${_numba_ptxlink_error} "
      "Install numba-ptxlink again, or give -DNumbaPtxlink_DIR.")
  return()
endif()
include("${_numba_ptxlink_dir}/NumbaPtxlinkConfig.cmake")
