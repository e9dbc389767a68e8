# Installed in share/cmake/NumbaPtxlink of a Python environment. find_package searches that folder if the
# environment's bin folder is on PATH. The environment's numba-ptxlink command prints the folder of the CMake package.
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
